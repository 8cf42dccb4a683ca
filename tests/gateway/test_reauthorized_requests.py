"""Who waits must still have the right to when keys and tenants change; what has begun goes on."""

import asyncio
from collections.abc import Callable

import httpx
import pytest
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, STREAM, Stand, until
from tests.gateway.worker_double import Script

pytestmark = pytest.mark.real
BATCH = {"x-paceline-class": "batch"}


def no_key(stand: Stand) -> None:
    (secret,) = stand.cluster.board("Secret").items
    stand.cluster.drop("Secret", secret)


def no_tenant(stand: Stand) -> None:
    (tenant,) = stand.cluster.board("Tenant").items
    stand.cluster.drop("Tenant", tenant)


def no_batch(stand: Stand) -> None:
    stand.cluster.put(manifests.tenant(classes=["interactive"]))


def no_service(stand: Stand) -> None:
    stand.cluster.put(manifests.tenant(services=["default/other"]))


def nothing_of_it(stand: Stand) -> None:
    stand.cluster.put(manifests.tenant(weight=3))


async def waiting(stand: Stand) -> asyncio.Task[httpx.Response]:
    """A batch request that waits, there being no worker."""
    post = asyncio.create_task(stand.client.post("/v1/chat/completions", json=CHAT, headers=BATCH))

    async def waits() -> bool:
        return bool((await stand.queue())["held"])

    await until(waits)
    return post


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        (no_key, 401, "invalid_api_key"),
        (no_tenant, 401, "invalid_api_key"),
        (no_batch, 403, "class_forbidden"),
        (no_service, 404, "model_not_found"),
    ],
)
async def test_a_revoked_caller_is_refused_at_once(
    stand: Stand, change: Callable[[Stand], None], status: int, code: str
) -> None:
    post = await waiting(stand)
    change(stand)
    response = await post
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert stand.calls == []


async def test_who_still_may_waits_on(stand: Stand, make_worker: MakeWorker) -> None:
    post = await waiting(stand)
    before = stand.process.registry.snapshot
    nothing_of_it(stand)
    await until(lambda: stand.process.registry.snapshot is not before)
    stand.work(await make_worker())
    assert (await post).status_code == 200


async def test_a_stream_that_has_begun_goes_on_without_its_key(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(delay_s=0.1)
    stand.work(worker)
    await stand.ready()
    async with stand.client.stream("POST", "/v1/chat/completions", json=STREAM) as response:
        lines = response.aiter_lines()
        assert (await anext(lines)).startswith("data: ")
        before = stand.process.registry.snapshot
        no_key(stand)
        await until(lambda: stand.process.registry.snapshot is not before)
        rest = [line async for line in lines if line]
    assert rest[-1] == "data: [DONE]"
