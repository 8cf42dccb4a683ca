"""What a worker can do wrong at each moment of a request: retried without loss, or ended in a form clients read."""

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, STREAM, Stand, gateway, until
from tests.gateway.worker_double import REFUSAL, Script, Seen, WorkerDouble, in_turn

from paceline_core.wire import WorkerState

pytestmark = pytest.mark.real
WHOLE_TEXT = "Time to first token"


def text_of(response: httpx.Response) -> str:
    """The streamed or whole text of an answer; fails on an error."""
    if not response.headers["content-type"].startswith("text/event-stream"):
        return str(response.json()["choices"][0]["message"]["content"])
    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    assert response.text.endswith("data: [DONE]\n\n")
    return "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events)


FAULTS = {
    "reset before the answer": Script(cut_after=0),
    "reset between head and first token": Script(raw=b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"),
    "not HTTP": Script(raw=b"SSH-2.0-OpenSSH_9.2\r\n"),
    "draining": REFUSAL,
    "engine failed": Script(status=500, body='{"error":{"code":"engine_failed"}}'),
    "bad gateway": Script(status=502, body="oops"),
    "no belief in the gateway": Script(status=401, body='{"error":{"code":"invalid_api_key"}}'),
    "an error event first": Script(error_after=0),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_fault_before_the_first_byte_is_retried(
    stand: Stand, make_worker: MakeWorker, name: str, stream: bool
) -> None:
    workers = [await make_worker(f"w{index}") for index in range(2)]
    script = in_turn(FAULTS[name])
    for worker in workers:
        worker.script = script
    stand.work(*workers)
    await stand.ready(2)
    response = await stand.client.post("/v1/chat/completions", json=CHAT | {"stream": stream})
    assert response.status_code == 200
    assert text_of(response) == WHOLE_TEXT
    seen = [len(worker.seen) for worker in workers]
    assert seen == [1, 1] or (name == "an error event first" and not stream and sum(seen) == 1)


async def test_a_worker_that_cannot_be_reached_is_passed_over(stand: Stand, make_worker: MakeWorker) -> None:
    gone, well = await make_worker("gone"), await make_worker("well")
    stand.work(gone, well)
    await stand.ready(2)
    await gone.stop()
    responses = [await stand.client.post("/v1/chat/completions", json=STREAM) for _ in range(4)]
    assert [text_of(response) for response in responses] == [WHOLE_TEXT] * 4
    assert await stand.metric("paceline_requests_total", outcome="ok") == 4


async def test_the_only_worker_may_come_back(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(cut_after=0)
    stand.work(worker)
    await stand.ready()
    waiting = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
    await until(lambda: len(worker.seen) == 1)
    await worker.stop()
    again = await make_worker("w0-again")
    stand.work(again)
    assert text_of(await waiting) == WHOLE_TEXT


@pytest.mark.parametrize("name", ["reset before the answer", "no belief in the gateway"])
async def test_a_request_that_fails_everywhere_ends_with_502(stand: Stand, make_worker: MakeWorker, name: str) -> None:
    workers = [await make_worker(f"w{index}") for index in range(3)]
    for worker in workers:
        worker.script = lambda _: FAULTS[name]
    stand.work(*workers)
    await stand.ready(3)
    response = await stand.client.post("/v1/chat/completions", json=STREAM)
    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_error")
    assert response.headers["x-should-retry"] == "true"
    assert sum(len(worker.seen) for worker in workers) == 2
    assert await stand.metric("paceline_retries_total") == 1


async def test_an_engine_that_fails_everywhere_speaks_for_itself(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: FAULTS["engine failed"]
    stand.work(worker)
    response = await stand.client.post("/v1/chat/completions", json=CHAT)
    assert (response.status_code, response.json()["error"]["code"]) == (500, "engine_failed")
    assert len(worker.seen) == 2


@pytest.mark.parametrize("events", [1, 2, 3, 4])
async def test_a_foreign_worker_lost_after_the_first_byte_ends_with_an_error_event(
    stand: Stand, make_worker: MakeWorker, events: int
) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(cut_after=events, foreign=True)
    stand.work(worker)
    response = await stand.client.post("/v1/chat/completions", json=STREAM)
    blocks = [block for block in response.text.split("\n\n") if block]
    assert response.status_code == 200
    assert json.loads(blocks[-2].removeprefix("data: "))["error"]["code"] == "stream_lost"
    assert blocks[-1] == "data: [DONE]"
    assert await stand.metric("paceline_requests_total", outcome="stream_error") == 1
    assert await stand.metric("paceline_slo_requests_total", slo="availability", verdict="bad_failed") == 1
    assert await stand.metric("paceline_stream_aborted_total", reason="inconsistent") == 1


async def test_a_worker_lost_after_done_has_lost_nothing(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    payload = b'data: {"choices":[{"delta":{"content":"Time to first token"}}]}\n\ndata: [DONE]\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    worker.script = lambda _: Script(raw=head + b"%x\r\n%b\r\n" % (len(payload), payload))
    stand.work(worker)
    assert text_of(await stand.client.post("/v1/chat/completions", json=STREAM)) == WHOLE_TEXT
    assert await stand.metric("paceline_requests_total", outcome="ok") == 1


async def test_a_stream_that_ends_without_done_is_cut(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(done=False, foreign=True)
    stand.work(worker)
    response = await stand.client.post("/v1/chat/completions", json=STREAM)
    assert '"code": "stream_lost"' in response.text


async def test_the_official_client_raises_on_a_lost_stream(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(cut_after=2, foreign=True)
    stand.work(worker)
    client = openai.AsyncOpenAI(api_key=stand.key, base_url=f"http://127.0.0.1:{stand.port}/v1")
    async with client:
        stream = await client.chat.completions.create(
            model="chat", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        with pytest.raises(openai.APIError, match="lost"):
            async for _ in stream:
                pass


async def test_the_workers_own_error_event_is_passed_on_and_counted(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(error_after=2)
    stand.work(worker)
    response = await stand.client.post("/v1/chat/completions", json=STREAM)
    assert response.text.count("engine_failed") == 1
    assert response.text.endswith("data: [DONE]\n\n")
    assert await stand.metric("paceline_requests_total", outcome="stream_error") == 1


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_the_workers_own_refusal_is_passed_on(stand: Stand, make_worker: MakeWorker, status: int) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(status=status, body='{"error":{"code":"context_length_exceeded"}}')
    stand.work(worker)
    response = await stand.client.post("/v1/chat/completions", json=STREAM)
    assert (response.status_code, response.json()["error"]["code"]) == (status, "context_length_exceeded")
    assert len(worker.seen) == 1
    assert await stand.metric("paceline_requests_total", outcome="client_error") == 1


async def test_a_worker_that_says_it_drains_gets_nothing_more(stand: Stand, make_worker: MakeWorker) -> None:
    leaving, staying = await make_worker("leaving"), await make_worker("staying")
    stand.work(leaving, staying)
    await stand.ready(2)
    leaving.say(state=WorkerState.DRAINING)
    await stand.ready(1)
    for _ in range(4):
        await stand.client.post("/v1/chat/completions", json=STREAM)
    assert (len(leaving.seen), len(staying.seen)) == (0, 4)


async def test_a_draining_worker_finishes_its_streams(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(delay_s=0.05)
    stand.work(worker)
    running = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
    await until(lambda: len(worker.seen) == 1)
    worker.say(state=WorkerState.DRAINING)
    assert text_of(await running) == WHOLE_TEXT


async def test_a_worker_that_never_begins_runs_into_the_limit(tmp_path: Any, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(stall_after=0)
    async with gateway(tmp_path, {"first_token_s": 0.2, "answer_s": 0.2}) as stand:
        stand.work(worker)
        for body in (CHAT, STREAM):
            response = await stand.client.post("/v1/chat/completions", json=body)
            assert (response.status_code, response.json()["error"]["code"]) == (504, "upstream_timeout")
        await until(lambda: all(seen.closed.is_set() for seen in worker.seen))


async def test_a_stream_that_falls_silent_runs_into_the_limit(tmp_path: Any, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(stall_after=2, foreign=True)
    async with gateway(tmp_path, {"stream_idle_timeout_s": 0.2}) as stand:
        stand.work(worker)
        response = await stand.client.post("/v1/chat/completions", json=STREAM)
        assert '"code": "upstream_timeout"' in response.text
        assert response.text.endswith("data: [DONE]\n\n")
        await until(worker.seen[0].closed.is_set)
        assert await stand.metric("paceline_requests_total", outcome="timeout") == 1


async def test_an_answer_without_end_is_given_up(tmp_path: Any, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(body="x" * 5000)
    async with gateway(tmp_path, {"answer_bytes": 4096}) as stand:
        stand.work(worker)
        response = await stand.client.post("/v1/chat/completions", json=CHAT)
        assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_error")


@pytest.mark.parametrize("lie", [b"content-length: 999\r\n\r\n{}", b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}"])
async def test_a_worker_that_lies_about_its_length_is_not_believed(
    stand: Stand, make_worker: MakeWorker, lie: bytes
) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(raw=b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + lie)
    stand.work(worker)
    response = await stand.client.post("/v1/chat/completions", json=CHAT)
    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_error")


async def test_bytes_after_the_answer_do_not_reach_the_next_request(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    body = b'{"choices":[{"message":{"content":"mine"}}]}'
    extra = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nyours"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    worker.script = in_turn(Script(raw=head + body + extra))
    stand.work(worker)
    assert text_of(await stand.client.post("/v1/chat/completions", json=CHAT)) == "mine"
    assert text_of(await stand.client.post("/v1/chat/completions", json=CHAT)) == WHOLE_TEXT


async def test_no_accepted_request_is_lost_when_a_busy_worker_dies(stand: Stand, make_worker: MakeWorker) -> None:
    dying, staying = await make_worker("dying", slots=20), await make_worker("staying", slots=40)
    dying.script = lambda _: Script(stall_after=0)
    stand.work(dying, staying)
    await stand.ready(2)
    posts = [asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM)) for _ in range(30)]
    await until(lambda: len(dying.seen) + len(staying.seen) == 30)
    assert dying.seen
    await dying.stop()
    assert [text_of(response) for response in await asyncio.gather(*posts)] == [WHOLE_TEXT] * 30


async def test_the_same_worker_is_not_asked_twice_while_others_are_there(stand: Stand, make_worker: MakeWorker) -> None:
    bad, good = await make_worker("bad"), await make_worker("good")
    bad.script = lambda _: FAULTS["engine failed"]
    stand.work(bad, good)
    await stand.ready(2)
    for _ in range(6):
        assert text_of(await stand.client.post("/v1/chat/completions", json=CHAT)) == WHOLE_TEXT
    ids: list[str] = [seen.headers["x-request-id"] for seen in bad.seen]
    assert len(ids) == len(set(ids))


def _requests(worker: WorkerDouble) -> list[Seen]:
    return worker.seen
