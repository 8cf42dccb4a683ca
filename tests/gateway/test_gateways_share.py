"""Whole gateways that share their tenants' limits through a real Redis."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.redis_server import redis_server
from tests.gateway.stand import CHAT, Stand, gateway, until

from paceline_core.registry import RequestClass
from paceline_gateway.config import Quota, RedisConfig

pytestmark = pytest.mark.real


async def post(stand: Stand) -> httpx.Response:
    return await stand.client.post("/v1/chat/completions", json=CHAT)


async def limit(*stands: Stand, requests: int, policy: str = "open") -> None:
    """The same tenant at each of them."""
    for stand in stands:
        stand.cluster.put(manifests.tenant(limits={"requestsPerMinute": requests}, onStoreFailure=policy))
    await until(
        lambda: all(
            stand.process.registry.snapshot.tenants["team"].requests_per_minute == requests
            and stand.process.registry.snapshot.tenants["team"].on_store_failure == policy
            for stand in stands
        )
    )


@contextlib.asynccontextmanager
async def pair(directory: Path, make_worker: MakeWorker) -> AsyncIterator[tuple[Stand, Stand]]:
    """Two gateways of one Redis, with one worker behind both."""
    (directory / "a").mkdir()
    (directory / "b").mkdir()
    async with redis_server(directory) as server:
        quota = Quota(redis=server.config, wait_s=4.0)
        async with gateway(directory / "a", quota=quota) as left, gateway(directory / "b", quota=quota) as right:
            worker = await make_worker()
            for stand in (left, right):
                stand.work(worker)
            yield left, right


async def test_two_gateways_have_one_limit_between_them(tmp_path: Path, make_worker: MakeWorker) -> None:
    async with pair(tmp_path, make_worker) as (left, right):
        await limit(left, right, requests=4)
        answers = [await post(stand) for stand in (left, right) * 3]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 429, 429]
        assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers[:4]] == ["3", "2", "1", "0"]
        assert await left.metric("paceline_quota_store_up") == 1
        assert await left.metric("paceline_quota_sync_seconds_count") >= 3


def served(stand: Stand) -> float:
    """What a gateway knows that its tenant was served in interactive requests."""
    line = stand.process.registry.services["default/chat"].dispatcher.queues[RequestClass.INTERACTIVE]
    return line.accounts.counter("team")


async def both_served(left: Stand, right: Stand) -> None:
    """What one of two gateways serves counts at the other one, in part."""
    assert [(await post(stand)).status_code for stand in (left, right)] == [200, 200]
    before = served(right)

    async def counted() -> bool:
        await post(left)  # what there is when a gateway first hears of the sums is none of its business
        return served(right) > before

    await until(counted)


async def test_what_one_gateway_serves_counts_at_the_other(tmp_path: Path, make_worker: MakeWorker) -> None:
    async with pair(tmp_path, make_worker) as (left, right):
        await both_served(left, right)


async def test_without_its_redis_a_gateway_follows_the_tenants_policy_and_says_so(
    tmp_path: Path, make_worker: MakeWorker
) -> None:
    async with (
        redis_server(tmp_path) as server,
        gateway(tmp_path, quota=Quota(redis=server.config, wait_s=4.0, gateways=2)) as stand,
    ):
        stand.work(await make_worker())
        await limit(stand, requests=100)
        assert "x-paceline-quota" not in (await post(stand)).headers
        await server.kill()
        answer = await post(stand)
        while "x-paceline-quota" not in answer.headers:
            answer = await post(stand)  # the slice in hand is spent first
        assert (answer.status_code, answer.headers["x-paceline-quota"]) == (200, "own-share")
        assert await stand.metric("paceline_quota_store_up") == 0
        await limit(stand, requests=3, policy="closed")
        answer = await post(stand)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "quota_unavailable")
        assert answer.headers["retry-after"] == "1"
        await server.start()
        await until(lambda: not stand.process.requests.quotas.away)
        assert "x-paceline-quota" not in (await post(stand)).headers


async def test_who_leaves_while_it_waits_for_the_counters_is_dropped(tmp_path: Path, make_worker: MakeWorker) -> None:
    async with (
        redis_server(tmp_path) as server,
        gateway(tmp_path, quota=Quota(redis=server.config, wait_s=20.0)) as stand,
    ):
        worker = await make_worker()
        stand.work(worker)
        await limit(stand, requests=100)
        await until(lambda: stand.process.requests.quotas.gateways == 1)
        assert server.process is not None
        server.process.send_signal(19)
        with pytest.raises(httpx.ReadTimeout):
            await stand.client.post("/v1/chat/completions", json=CHAT, timeout=httpx.Timeout(5, read=0.2))
        await until(lambda: stand.process.requests.open == 0)
        server.process.send_signal(18)
        assert (await post(stand)).status_code == 200
        assert len(worker.seen) == 1
        assert stand.process.requests.quotas.totals.open[0] == 0


@pytest.mark.parametrize("url", ["redis://user:secret@host:6379", "http://host", "redis://"])
def test_a_redis_is_named_without_its_password(url: str) -> None:
    with pytest.raises(ValidationError):
        RedisConfig(url=url)
