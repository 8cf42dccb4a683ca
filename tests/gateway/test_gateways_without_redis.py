"""Whole gateways that share their tenants' limits among themselves: the holder of a Lease counts for all."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import Stand, gateway, until
from tests.gateway.test_gateways_share import both_served, limit, post

from paceline_core.auth import TokenSigner
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE, HEADER
from paceline_core.clock import SystemClock
from paceline_gateway.config import Quota
from paceline_gateway.quota_store.peer import LEASE, PATH, ExchangeRequest, read_reply, write_call

pytestmark = pytest.mark.real
QUOTA = Quota(lease=True, wait_s=4.0, gateways=2)


@contextlib.asynccontextmanager
async def pair(directory: Path, worker: MakeWorker) -> AsyncIterator[tuple[Stand, Stand]]:
    """Two gateways of one cluster; the first one counts."""
    for name in "ab":
        (directory / name).mkdir()
    async with gateway(directory / "a", quota=QUOTA) as left:
        await until(lambda: LEASE in left.cluster.leases and not left.process.requests.quotas.away)
        async with gateway(directory / "b", quota=QUOTA, signing_key=left.signing_key, cluster=left.cluster) as right:
            made = await worker()
            left.work(made)
            await until(lambda: not right.process.requests.quotas.away and right.process.requests.quotas.gateways == 2)
            right.key, right.client.headers["authorization"] = left.key, f"Bearer {left.key}"
            yield left, right


async def test_two_gateways_have_one_limit_between_them(tmp_path: Path, make_worker: MakeWorker) -> None:
    async with pair(tmp_path, make_worker) as (left, right):
        await limit(left, requests=4)
        await limit(right, requests=4)
        answers = [await post(stand) for stand in (left, right) * 3]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 429, 429]
        assert await right.metric("paceline_quota_store_up") == 1


async def test_what_one_gateway_serves_counts_at_the_other(tmp_path: Path, make_worker: MakeWorker) -> None:
    async with pair(tmp_path, make_worker) as (left, right):
        await both_served(left, right)
        await both_served(right, left)


async def test_when_the_one_that_counts_stops_another_takes_over_and_knows_what_was_used(
    tmp_path: Path, make_worker: MakeWorker
) -> None:
    async with pair(tmp_path, make_worker) as (left, right):
        await limit(left, requests=6)
        await limit(right, requests=6)
        assert [(await post(stand)).status_code for stand in (left, left, right, right)] == [200] * 4
        left.stop.set()
        left.abort.set()
        await left.run
        await until(lambda: f":{right.admin.base_url.port}/" in right.cluster.leases.get(LEASE, ""))
        await until(lambda: not right.process.requests.quotas.away)
        assert [(await post(right)).status_code for _ in range(3)] == [200, 200, 429]


async def test_while_nobody_counts_each_gateway_has_its_share(tmp_path: Path, make_worker: MakeWorker) -> None:
    async with pair(tmp_path, make_worker) as (left, right):
        await limit(right, requests=6)
        left.cluster.leases[LEASE] = "127.0.0.1:1/nobody"
        await until(lambda: right.process.requests.quotas.away)
        answers = [await post(right) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert answers[0].headers["x-paceline-quota"] == "own-share"
        assert await right.metric("paceline_quota_fallback_requests_total") == 3


async def test_only_gateways_are_let_at_the_counters(tmp_path: Path, make_worker: MakeWorker) -> None:
    async with pair(tmp_path, make_worker) as (left, right):
        body, now = write_call(ExchangeRequest("stranger", 10.0, ())), SystemClock().utc()
        own = {HEADER: TokenSigner(left.signing_key, "gateway").token(GATEWAY_AUDIENCE, now)}
        assert (await left.admin.post(PATH, content=body)).status_code == 401
        assert (await left.admin.post(PATH, content=body, headers=left.autoscaler_headers())).status_code == 401
        found = await left.admin.post(PATH, content=body, headers=own)
        assert read_reply(found.content, 0).gateways == 3
        assert (await left.admin.post(PATH, content=b"no call", headers=own)).status_code == 400
        assert (await left.admin.post(PATH, content=b"x" * (1 << 20) + b"x", headers=own)).status_code == 413
        assert (await right.admin.post(PATH, content=body, headers=own)).status_code == 503
