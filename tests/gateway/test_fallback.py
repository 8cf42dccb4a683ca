"""Requests that go to another service of their route, when they come or while they wait, through real ports."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, STREAM, Stand, until
from tests.gateway.worker_double import Script, Seen, WorkerDouble

from paceline_core.wire import SUSPECT, StepTime
from paceline_gateway.request.group_testing import PROOF

pytestmark = pytest.mark.real
SPARE = "default/spare"
ASKED: dict[str, Any] = STREAM | {"model": "public", "stream_options": {"include_usage": True}}


async def two_services(stand: Stand, make_worker: MakeWorker, slots: int = 16, **spec: Any) -> WorkerDouble:
    """`chat`, with a fallback to the ready worker that is returned."""
    stand.cluster.put(manifests.service("spare", **spec))
    stand.cluster.put(manifests.route("public", {"service": "chat"}, fallback=["spare"]))
    spare = await make_worker("s0", slots=slots, service=SPARE)
    stand.work(spare, service=SPARE)
    await stand.ready(service=SPARE)
    return spare


async def queue(stand: Stand, **terms: Any) -> None:
    """Change the terms under which interactive requests of `chat` wait."""
    service = stand.process.registry.services["default/chat"]
    before = service.spec
    stand.cluster.put(manifests.service(classes={"interactive": terms}))
    await until(lambda: service.spec is not before)


async def ask(stand: Stand, **more: Any) -> int:
    """One request's status; a stream must be whole."""
    response = await stand.client.post("/v1/chat/completions", json=ASKED | more)
    if response.status_code == 200:
        assert response.text.endswith("data: [DONE]\n\n")
        assert response.text.count('"content":"') >= 4
    return response.status_code


@contextlib.asynccontextmanager
async def occupied(stand: Stand) -> AsyncIterator[None]:
    """A stream of `chat` that has begun and does not end."""
    async with stand.client.stream("POST", "/v1/chat/completions", json=STREAM) as busy:
        pieces = busy.aiter_bytes()
        await anext(pieces)
        yield


async def nothing_is_left(stand: Stand) -> None:
    requests = stand.process.requests
    await until(lambda: requests.open == 0)
    totals = requests.quotas.totals
    assert not any(totals.open)
    assert totals.reserved == pytest.approx([a + b for a, b in zip(totals.settled, totals.refunded, strict=True)])
    assert not requests._with_fallbacks
    for service in stand.process.registry.services.values():
        assert (service.dispatcher.waiting, [tally.open for tally in service.tallies.values()]) == (0, [0, 0, 0])
        assert not [worker.name for worker in service.pool if worker.in_flight]
        assert all(abs(line.accounts.spread) == 0 for line in service.dispatcher.queues.values())


def diverted(stand: Stand, reason: str) -> Any:
    return stand.metric("paceline_fallback_requests_total", pisvc="chat", reason=reason)


async def test_a_service_that_is_down_is_replaced_and_asked_again_when_it_is_back(
    stand: Stand, make_worker: MakeWorker
) -> None:
    stand.cluster.put(manifests.service("spare"))
    stand.cluster.put(manifests.route("public", {"service": "chat"}, {"service": "spare", "when": "failure"}))
    first, spare = await make_worker(), await make_worker("w1", service="default/spare")
    stand.work(spare, service="default/spare")
    await stand.ready(service="default/spare")
    asked = CHAT | {"model": "public"}
    assert (await stand.client.post("/v1/chat/completions", json=asked)).status_code == 200
    assert (len(first.seen), len(spare.seen)) == (0, 1)
    assert await diverted(stand, "unavailable") == 1
    stand.work(first)
    await stand.ready()
    assert (await stand.client.post("/v1/chat/completions", json=asked)).status_code == 200
    assert (len(first.seen), len(spare.seen)) == (1, 1)


@pytest.mark.parametrize(
    "fault",
    [Script(cut_after=0), Script(status=503), Script(status=429), Script(status=500), Script(error_after=0)],
    ids=["lost", "503", "429", "500", "error event"],
)
async def test_what_the_only_worker_of_a_service_fails_before_the_first_byte_is_answered_by_the_next_one(
    stand: Stand, make_worker: MakeWorker, fault: Script
) -> None:
    spare, worker = await two_services(stand, make_worker), await make_worker()
    worker.script = lambda _: fault
    stand.work(worker)
    await stand.ready()
    assert await ask(stand) == 200
    assert (len(worker.seen), len(spare.seen)) == (1, 1)
    assert (json.loads(worker.seen[0].body)["model"], json.loads(spare.seen[0].body)["model"]) == ("chat", "spare")
    await nothing_is_left(stand)
    assert stand.process.requests.quotas.totals.settled[:3] == [1, 7, 4]
    assert await diverted(stand, "error") == 1
    for name, ended in (("chat", 0), ("spare", 1)):
        assert await stand.metric("paceline_requests_total", pisvc=name) == ended
        assert await stand.metric("paceline_usage_requests_total", pisvc=name) == ended
        assert await stand.metric("paceline_usage_tokens_total", pisvc=name, kind="output") == 4 * ended


async def test_what_a_worker_may_have_died_of_is_on_trial_at_the_next_service_as_it_would_be_at_its_own(
    stand: Stand, make_worker: MakeWorker
) -> None:
    spare, worker = await two_services(stand, make_worker), await make_worker()
    worker.script = lambda _: Script(dies_after=0)
    stand.work(worker)
    await stand.ready()
    assert await ask(stand) == 200
    (seen,) = spare.seen
    assert seen.headers[SUSPECT].partition(".")[2] == f"1;{PROOF}"
    await nothing_is_left(stand)


async def test_another_worker_of_the_service_is_asked_before_another_service(
    stand: Stand, make_worker: MakeWorker
) -> None:
    spare, made = await two_services(stand, make_worker), [await make_worker(name) for name in ("w0", "w1")]
    faults = [Script(cut_after=0), Script(), Script(cut_after=0), Script(cut_after=0)]
    for worker in made:
        worker.script = lambda _: faults.pop(0)
    stand.work(*made)
    await stand.ready(2)
    assert await ask(stand) == 200
    assert spare.seen == []


async def test_a_request_predicted_to_miss_its_target_goes_to_the_overflow_backend(
    stand: Stand, make_worker: MakeWorker
) -> None:
    stand.cluster.put(manifests.service("spare"))
    stand.cluster.put(manifests.route("public", {"service": "chat"}, {"service": "spare", "when": "overflow"}))
    worker, spare = await make_worker(slots=2), await make_worker("s0", service=SPARE)
    worker.say(step_time=StepTime(base=0.3, prefill=0.00001))  # 4 tokens in 2 slots: the next one is free after 0.6 s
    stand.work(worker)
    stand.work(spare, service=SPARE)
    await stand.ready()
    await stand.ready(service=SPARE)
    await queue(stand, slo={"ttft": {"p95": "500ms"}})
    assert await ask(stand) == 200
    worker.script = lambda _: Script(stall_after=1)
    async with occupied(stand):
        assert len(spare.seen) == 0
        async with occupied(stand):
            assert await asyncio.gather(*(ask(stand) for _ in range(4))) == [200] * 4
    assert (len(worker.seen), len(spare.seen)) == (3, 4)
    assert await diverted(stand, "overloaded") == 4
    await nothing_is_left(stand)


async def test_who_waits_its_share_of_the_time_goes_on_and_its_place_is_given_up(
    stand: Stand, make_worker: MakeWorker
) -> None:
    spare, worker = await two_services(stand, make_worker), await make_worker(slots=1)
    worker.script = lambda _: Script(stall_after=1)
    stand.work(worker)
    await stand.ready()
    await queue(stand, holdTimeout="1s")
    async with occupied(stand):
        assert await ask(stand) == 200
    assert (len(worker.seen), len(spare.seen)) == (1, 1)
    assert await diverted(stand, "timeout") == 1
    await nothing_is_left(stand)


async def test_who_waits_for_a_service_without_workers_goes_to_the_one_that_has_its_first(
    stand: Stand, make_worker: MakeWorker
) -> None:
    stand.cluster.put(manifests.service("spare"))
    stand.cluster.put(manifests.route("public", {"service": "chat"}, fallback=["spare"]))
    await until(lambda: "public" in stand.process.registry.snapshot.names)
    asked = [asyncio.create_task(ask(stand)) for _ in range(3)]
    await until(lambda: stand.process.registry.services["default/chat"].dispatcher.waiting == 3)
    spare = await make_worker("s0", service=SPARE)
    stand.work(spare, service=SPARE)
    assert await asyncio.gather(*asked) == [200] * 3
    assert await diverted(stand, "unavailable") == 3
    await nothing_is_left(stand)


async def test_who_must_leave_the_queue_for_another_tenant_goes_on(stand: Stand, make_worker: MakeWorker) -> None:
    spare, worker = await two_services(stand, make_worker), await make_worker(slots=1)
    worker.script = lambda _: Script(stall_after=1)
    stand.work(worker)
    await stand.ready()
    await queue(stand, queueLimit=2)
    secret, key = manifests.key("other")
    stand.cluster.put(manifests.tenant("other"))
    stand.cluster.put(secret)
    await until(lambda: len(stand.process.registry.snapshot.keys) == 2)
    line = stand.process.registry.services["default/chat"].dispatcher
    async with occupied(stand):
        asked = [asyncio.create_task(ask(stand)) for _ in range(2)]
        await until(lambda: line.waiting == 2)
        theirs = stand.client.post("/v1/chat/completions", json=STREAM, headers={"authorization": f"Bearer {key}"})
        other = asyncio.create_task(theirs)
        done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert ([task.result() for task in done], line.waiting, len(spare.seen)) == ([200], 2, 1)
        assert await diverted(stand, "queue_full") == 1
        for task in (*waiting, other):
            task.cancel()
        await asyncio.gather(*waiting, other, return_exceptions=True)
    await nothing_is_left(stand)


async def test_requests_of_a_deleted_service_go_on(stand: Stand, make_worker: MakeWorker) -> None:
    spare, worker = await two_services(stand, make_worker), await make_worker(slots=1)
    worker.script = lambda _: Script(stall_after=1)
    stand.work(worker)
    await stand.ready()
    async with occupied(stand):
        asked = asyncio.create_task(ask(stand))
        await until(lambda: stand.process.registry.services["default/chat"].dispatcher.waiting == 1)
        stand.cluster.drop("InferenceService", "default/chat")
        assert await asked == 200
    assert len(spare.seen) == 1


async def test_a_service_that_gives_less_than_is_asked_for_is_passed_over(
    stand: Stand, make_worker: MakeWorker
) -> None:
    spare = await two_services(stand, make_worker, classes={"interactive": {"maxTokens": 10}})
    worker = await make_worker()
    worker.script = lambda _: Script(status=500)
    stand.work(worker)
    await stand.ready()
    assert await ask(stand, max_tokens=100) == 500
    assert spare.seen == []
    assert await ask(stand, max_tokens=10) == 200


async def test_a_stream_that_has_begun_is_never_continued_by_another_model(
    stand: Stand, make_worker: MakeWorker
) -> None:
    spare, worker = await two_services(stand, make_worker), await make_worker()
    worker.script = lambda _: Script(cut_after=2)
    stand.work(worker)
    await stand.ready()
    asked = asyncio.create_task(stand.client.post("/v1/chat/completions", json=ASKED))
    await until(lambda: stand.process.registry.services["default/chat"].dispatcher.waiting == 1)
    worker.script = lambda _: Script()
    assert (await asked).text.endswith("data: [DONE]\n\n")
    assert spare.seen == []


async def test_whatever_fails_where_each_of_many_requests_has_one_answer_and_nothing_is_left(
    stand: Stand, make_worker: MakeWorker
) -> None:
    """Two unsound workers with few slots, and a spare that fails too."""
    spare = await two_services(stand, make_worker, slots=3)
    made = [await make_worker(name, slots=2) for name in ("w0", "w1")]
    faults = [Script(), Script(cut_after=0), Script(status=503), Script(status=429), Script(error_after=0)]
    turns = iter(range(10_000))
    unsound: Callable[[Seen], Script] = lambda _: faults[next(turns) % len(faults)]  # noqa: E731
    for worker in (*made, spare):
        worker.script = unsound
    stand.work(*made)
    await stand.ready(2)
    await queue(stand, holdTimeout="3s")
    posts = [stand.client.post("/v1/chat/completions", json=ASKED | {"stream": bool(n % 2)}) for n in range(60)]
    for answer in await asyncio.gather(*posts):
        assert answer.status_code in {200, 429, 500, 502, 503, 504}
        if answer.headers["content-type"].startswith("text/event-stream"):
            assert answer.text.count("data: [DONE]") == 1
            assert (answer.text.count('"content":"') == 4 + 1) != (answer.text.count('{"error"') == 1)
    await nothing_is_left(stand)
    assert await stand.metric("paceline_requests_total") == 60
    assert spare.seen
