"""Streams that lose their worker and go on at another: the client sees one stream, whole, whatever broke and when."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import STREAM, Stand, gateway, until
from tests.gateway.worker_double import REFUSAL, Script, Seen, WorkerDouble, in_turn

from paceline_gateway.request.prompt_size import measure
from paceline_gateway.services.usage_estimates import PromptLengthEstimator

pytestmark = pytest.mark.real
TOKENS = (" a", " stream", " that", " has", " begun", " is", " finished")
TEXT = "".join(TOKENS)
WHOLE = Script(tokens=TOKENS, delay_s=0.001)


def script(**fault: Any) -> Script:
    return Script(tokens=TOKENS, delay_s=0.001, **fault)


async def workers(stand: Stand, make_worker: MakeWorker, *faults: Script, count: int = 2) -> list[WorkerDouble]:
    """So many workers of which whoever is asked next meets the next fault; after the last one all goes well."""
    script = in_turn(*faults, then=WHOLE)
    made = [await make_worker(f"w{index}") for index in range(count)]
    for worker in made:
        worker.script = script
    stand.work(*made)
    await stand.ready(count)
    return made


def events_of(response: httpx.Response) -> list[Any]:
    blocks = response.text.split("\n\n")
    assert blocks.pop() == ""
    assert [block[:6] for block in blocks] == ["data: "] * len(blocks)
    assert blocks.pop() == "data: [DONE]"
    return [json.loads(block[6:]) for block in blocks]


def text_of(response: httpx.Response) -> str:
    """The text of a stream that is one: one role, one id, no error, one end."""
    events = events_of(response)
    assert [event["choices"][0]["delta"].get("role") for event in events] == ["assistant"] + [None] * (len(events) - 1)
    assert len({(event["id"], event["created"]) for event in events}) == 1
    return "".join(event["choices"][0]["delta"].get("content", "") for event in events)


def seen(*made: WorkerDouble) -> list[Seen]:
    return [request for worker in made for request in worker.seen]


@pytest.mark.parametrize("told", range(1, len(TOKENS) + 1))
async def test_a_stream_cut_after_any_event_is_whole(stand: Stand, make_worker: MakeWorker, told: int) -> None:
    made = await workers(stand, make_worker, script(cut_after=told))
    response = await stand.client.post("/v1/chat/completions", json=STREAM)
    assert text_of(response) == TEXT
    (resume,) = [request.resume for request in seen(*made) if request.resume]
    assert resume["choices"] == [{"ids": list(range(100, 100 + told)), "ended": False}]
    assert await stand.metric("paceline_requests_total", outcome="ok") == 1
    assert await stand.metric("paceline_stream_resumed_total", reason="connection") == 1
    assert await stand.metric("paceline_stream_resume_gap_seconds_count") == 1
    assert await stand.metric("paceline_retries_total") == 0
    assert await stand.metric("paceline_tenant_tokens_total", kind="output") == len(TOKENS)


async def test_a_resumed_prompt_teaches_and_counts_once(stand: Stand, make_worker: MakeWorker) -> None:
    made = await workers(stand, make_worker, script(cut_after=3))
    counted = STREAM | {"stream_options": {"include_usage": True}}
    await stand.client.post("/v1/chat/completions", json=counted)
    assert any(request.resume for request in seen(*made))
    state = stand.process.registry.services["default/chat"]
    (prompt,) = {measure(json.loads(request.body), request.path) for request in seen(*made)}
    assert len(state.estimates.prompts) == 1
    (service,) = (await stand.admin.get("/v1/services")).json()["services"]
    assert sum(row["arrivals"] for row in service["classes"]) == 1
    assert sum(row["prompt_tokens"] for row in service["classes"]) == PromptLengthEstimator().tokens(prompt)


async def test_the_phases_of_both_lives_sum_to_the_whole(stand: Stand, make_worker: MakeWorker) -> None:
    slow = Script(tokens=TOKENS, delay_s=0.02)
    await workers(stand, make_worker, replace(slow, cut_after=3), slow)
    text_of(await stand.client.post("/v1/chat/completions", json=STREAM))
    spent = await stand.metric("paceline_request_phase_seconds_sum")
    assert spent == pytest.approx(await stand.metric("paceline_request_duration_seconds_sum"), rel=0.05)


@pytest.mark.parametrize("reason", ["evacuate", "drain", "engine"])
async def test_a_stream_that_a_worker_gives_up_is_whole(stand: Stand, make_worker: MakeWorker, reason: str) -> None:
    await workers(stand, make_worker, script(moved_after=3, reason=reason))
    assert text_of(await stand.client.post("/v1/chat/completions", json=STREAM)) == TEXT
    assert await stand.metric("paceline_stream_resumed_total", reason=reason) == 1


async def test_a_stream_that_falls_silent_goes_on_elsewhere(tmp_path: Any, make_worker: MakeWorker) -> None:
    async with gateway(tmp_path, {"stream_idle_timeout_s": 0.2}) as stand:
        made = await workers(stand, make_worker, script(stall_after=2))
        assert text_of(await stand.client.post("/v1/chat/completions", json=STREAM)) == TEXT
        assert await stand.metric("paceline_stream_resumed_total", reason="stall") == 1
        await until(lambda: sum(request.closed.is_set() for request in seen(*made)) >= 1)


async def test_both_lives_have_one_seed_and_the_clients_body_unchanged(stand: Stand, make_worker: MakeWorker) -> None:
    made = await workers(stand, make_worker, script(cut_after=2))
    text_of(await stand.client.post("/v1/chat/completions", json=STREAM))
    requests = seen(*made)
    assert len({request.headers["x-paceline-seed"] for request in requests}) == 1
    assert len({request.headers["x-request-id"] for request in requests}) == 1
    assert [json.loads(request.body) for request in requests] == [STREAM] * 2
    assert len({worker.name for worker in made if worker.seen}) == 2


async def test_the_next_worker_receives_the_meaning_of_the_ids(stand: Stand, make_worker: MakeWorker) -> None:
    made = await workers(stand, make_worker, script(cut_after=2, headers=(("x-paceline-vocabulary", "5f0c"),)))
    text_of(await stand.client.post("/v1/chat/completions", json=STREAM))
    assert [request.resume["vocabulary"] for request in seen(*made) if request.resume] == ["5f0c"]


async def test_a_stream_that_is_lost_again_and_again_goes_on_while_it_may(
    stand: Stand, make_worker: MakeWorker
) -> None:
    await workers(stand, make_worker, *(script(cut_after=told) for told in (1, 3, 6)), count=4)
    assert text_of(await stand.client.post("/v1/chat/completions", json=STREAM)) == TEXT
    assert await stand.metric("paceline_stream_resumed_total") == 3


async def test_moves_are_not_held_against_a_stream(stand: Stand, make_worker: MakeWorker) -> None:
    await workers(stand, make_worker, *(script(moved_after=told) for told in range(1, 7)), count=3)
    assert text_of(await stand.client.post("/v1/chat/completions", json=STREAM)) == TEXT
    assert await stand.metric("paceline_stream_resumed_total", reason="evacuate") == 6


async def test_a_stream_that_kills_whatever_it_meets_ends_with_an_error(stand: Stand, make_worker: MakeWorker) -> None:
    made = await workers(stand, make_worker, *[script(cut_after=2)] * 9, count=5)
    response = await stand.client.post("/v1/chat/completions", json=STREAM)
    assert events_of(response)[-1]["error"]["code"] == "stream_lost"
    assert len(seen(*made)) == 4
    assert await stand.metric("paceline_requests_total", outcome="stream_error") == 1
    assert await stand.metric("paceline_stream_aborted_total", reason="max_attempts") == 1
    assert stand.process.requests.open == 0


REFUSALS = {
    "draining": REFUSAL,
    "engine failed": Script(status=500, body='{"error":{"code":"engine_failed"}}'),
    "refused": Script(status=400, body='{"error":{"code":"invalid_request"}}'),
    "no stream": Script(raw=b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"),
    "cut before the head": Script(cut_after=0),
    "cut behind the head": Script(raw=b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_worker_that_does_not_take_the_stream_over_is_passed_over(
    stand: Stand, make_worker: MakeWorker, name: str
) -> None:
    await workers(stand, make_worker, script(cut_after=3), REFUSALS[name], count=3)
    assert text_of(await stand.client.post("/v1/chat/completions", json=STREAM)) == TEXT
    assert await stand.metric("paceline_stream_resumed_total") == 1


async def test_draining_workers_are_not_held_against_a_stream(stand: Stand, make_worker: MakeWorker) -> None:
    await workers(stand, make_worker, script(cut_after=3), *[REFUSALS["draining"]] * 5, count=7)
    assert text_of(await stand.client.post("/v1/chat/completions", json=STREAM)) == TEXT


async def test_a_stream_waits_for_a_worker_only_so_long(tmp_path: Any, make_worker: MakeWorker) -> None:
    async with gateway(tmp_path, {"resume_s": 0.3}) as stand:
        (worker,) = await workers(stand, make_worker, script(stall_after=3), count=1)
        posted = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
        await until(lambda: bool(worker.seen))
        stand.work()
        await stand.ready(0)
        await _told(stand, worker)
        response = await posted
        assert events_of(response)[-1]["error"]["code"] == "stream_lost"
        assert await stand.metric("paceline_stream_aborted_total", reason="deadline_exceeded") == 1


async def _told(stand: Stand, worker: WorkerDouble) -> None:
    """Stop the worker once its tokens have passed."""
    (call,) = stand.calls
    await until(lambda: call.machine.meter.output == 3)
    await worker.stop()


async def test_a_stream_beyond_the_journal_limit_cannot_resume(tmp_path: Any, make_worker: MakeWorker) -> None:
    async with gateway(tmp_path, {"resume_bytes": 20}) as stand:
        await workers(stand, make_worker, script(cut_after=4))
        response = await stand.client.post("/v1/chat/completions", json=STREAM)
        assert events_of(response)[-1]["error"]["code"] == "stream_lost"
        assert await stand.metric("paceline_stream_aborted_total", reason="journal_overflow") == 1


async def test_a_client_that_leaves_while_its_stream_looks_for_a_worker_is_forgotten(
    stand: Stand, make_worker: MakeWorker
) -> None:
    (worker,) = await workers(stand, make_worker, script(stall_after=3), count=1)
    async with stand.client.stream("POST", "/v1/chat/completions", json=STREAM):
        stand.work()
        await stand.ready(0)
        await _told(stand, worker)
        await until(lambda: _resuming(stand))
    await until(lambda: stand.process.requests.open == 0)
    assert await stand.metric("paceline_requests_total", outcome="cancelled") == 1
    assert len(worker.seen) == 1


def _resuming(stand: Stand) -> bool:
    return any(call.machine.waiting and call.machine.begun for call in stand.calls)


async def test_a_client_that_leaves_the_second_life_of_its_stream_stops_the_worker(
    stand: Stand, make_worker: MakeWorker
) -> None:
    made = await workers(stand, make_worker, script(cut_after=2), script(stall_after=4))
    async with stand.client.stream("POST", "/v1/chat/completions", json=STREAM) as response:
        async for line in response.aiter_lines():
            if TOKENS[3] in line:
                break
    await until(lambda: all(request.closed.is_set() for request in seen(*made) if request.resume))
    assert [bool(request.resume) for request in seen(*made)].count(True) == 1


async def test_no_stream_breaks_when_a_busy_worker_dies(stand: Stand, make_worker: MakeWorker) -> None:
    dying, staying = await make_worker("dying", slots=20), await make_worker("staying", slots=40)
    slow: Callable[[Seen], Script] = lambda _: Script(tokens=TOKENS, delay_s=0.05)  # noqa: E731
    dying.script = staying.script = slow
    stand.work(dying, staying)
    await stand.ready(2)
    posts = [asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM)) for _ in range(30)]
    await until(lambda: any(call.machine.meter.output >= 2 for call in stand.calls))
    assert dying.seen
    await dying.stop()
    assert [text_of(response) for response in await asyncio.gather(*posts)] == [TEXT] * 30
