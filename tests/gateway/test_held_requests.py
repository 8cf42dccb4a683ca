"""Requests that wait: at zero workers, behind others, and never for ever."""

import asyncio
from typing import Any

import pytest
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import STREAM, Stand, gateway, until
from tests.gateway.worker_double import Script

from paceline_core.wire import WorkerState

pytestmark = pytest.mark.real


def waits(stand: Stand, **interactive: Any) -> None:
    """Promise the interactive class these waits."""
    stand.cluster.put(manifests.service(classes={"interactive": interactive}))


async def held(stand: Stand) -> int:
    return int((await stand.queue())["held"])


async def test_a_request_is_held_at_zero_and_served_when_a_worker_comes(stand: Stand, make_worker: MakeWorker) -> None:
    posts = [asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM)) for _ in range(5)]

    async def all_held() -> bool:
        return await held(stand) == 5

    await until(all_held)
    assert await stand.metric("paceline_held_requests") == 5
    stand.work(await make_worker())
    assert {(await post).status_code for post in posts} == {200}
    assert await held(stand) == 0


async def test_the_first_worker_is_given_no_more_than_it_can_take(stand: Stand, make_worker: MakeWorker) -> None:
    posts = [asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM)) for _ in range(6)]
    worker = await make_worker(slots=2)
    most = 0
    finished = asyncio.Event()

    def script(_: object) -> Script:
        nonlocal most
        most = max(most, int(stand.process.registry.services["default/chat"].pool.workers["w0"].in_flight))
        return Script(delay_s=0.01)

    worker.script = script
    stand.work(worker)
    assert {(await post).status_code for post in posts} == {200}
    finished.set()
    assert most == 2


async def test_a_held_request_ends_with_504_after_its_limit(stand: Stand) -> None:
    waits(stand, holdTimeout="300ms")
    response = await stand.client.post("/v1/chat/completions", json=STREAM)
    assert (response.status_code, response.json()["error"]["code"]) == (504, "held_timeout")
    assert "became ready" in response.json()["error"]["message"]
    assert await stand.metric("paceline_requests_total", outcome="timeout") == 1
    assert await stand.metric("paceline_slo_requests_total", slo="availability", verdict="bad_failed") == 1


async def test_a_request_behind_others_ends_with_504_after_its_limit(stand: Stand, make_worker: MakeWorker) -> None:
    waits(stand, holdTimeout="300ms")
    worker = await make_worker(slots=1)
    worker.script = lambda _: Script(stall_after=1)
    stand.work(worker)
    await stand.ready()
    async with stand.client.stream("POST", "/v1/chat/completions", json=STREAM):
        response = await stand.client.post("/v1/chat/completions", json=STREAM)
    assert (response.status_code, response.json()["error"]["code"]) == (504, "held_timeout")
    assert "had room" in response.json()["error"]["message"]


async def test_a_full_queue_answers_503_and_when_to_come_again(stand: Stand) -> None:
    waits(stand, queueLimit=2)
    posts = [asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM)) for _ in range(2)]
    await until(lambda: stand.process.requests.open == 2)
    response = await stand.client.post("/v1/chat/completions", json=STREAM)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "queue_full")
    assert 1 <= int(response.headers["retry-after"]) <= 60
    assert response.headers["x-should-retry"] == "true"
    assert await stand.metric("paceline_requests_total", outcome="shed") == 1
    assert await stand.metric("paceline_slo_requests_total", slo="availability", verdict="bad_failed") == 1
    for post in posts:
        post.cancel()


async def test_held_requests_have_a_cap(tmp_path: Any) -> None:
    async with gateway(tmp_path, {"held_requests": 1}) as stand:
        post = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
        await until(lambda: stand.process.requests.open == 1)
        response = await stand.client.post("/v1/chat/completions", json=STREAM)
        assert (response.status_code, response.json()["error"]["code"]) == (503, "no_capacity")
        post.cancel()


async def test_urgent_requests_go_before_patient_ones(stand: Stand, make_worker: MakeWorker) -> None:
    posts = []
    for cls in ("offline", "batch", "interactive"):
        headers = {"x-paceline-class": cls}
        posts.append(asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM, headers=headers)))
        await until(lambda: stand.process.requests.open == len(posts))
    worker = await make_worker(slots=1)
    stand.work(worker)
    assert {(await post).status_code for post in posts} == {200}
    assert [seen.headers["x-paceline-class"] for seen in worker.seen] == ["interactive", "batch", "offline"]


async def test_requests_wait_while_the_engine_restarts(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    await stand.ready()
    worker.say(state=WorkerState.FAILED)
    await stand.ready(0)
    post = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
    await until(lambda: stand.process.requests.open == 1)
    assert worker.seen == []
    worker.say(state=WorkerState.READY)
    assert (await post).status_code == 200


async def test_requests_of_a_deleted_service_end_with_an_error(stand: Stand) -> None:
    post = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
    await until(lambda: stand.process.requests.open == 1)
    stand.cluster.drop("InferenceService", "default/chat")
    response = await post
    assert (response.status_code, response.json()["error"]["code"]) == (503, "no_capacity")
    assert "deleted" in response.json()["error"]["message"]
    assert "paceline_held_requests{" not in (await stand.admin.get("/metrics")).text


async def test_a_lost_watch_changes_nothing(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    await stand.ready()
    stand.cluster.lose()
    assert (await stand.client.post("/v1/chat/completions", json=STREAM)).status_code == 200
