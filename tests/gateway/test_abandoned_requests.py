"""What a request costs that its client gives up: the real prompt once an event has come, and all that was made."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, STREAM, Stand, until
from tests.gateway.test_gateway_websocket import dial, hear
from tests.gateway.test_quota_front import limit
from tests.gateway.worker_double import PROMPT_TOKENS, Script, Seen, WorkerDouble, as_sse, in_turn

from paceline_core.wire import StepTime
from paceline_gateway.request.prompt_size import measure
from paceline_gateway.services.usage_estimates import PromptLengthEstimator

pytestmark = pytest.mark.real
PATH = "/v1/chat/completions"
LONG = STREAM | {"messages": [{"role": "user", "content": "word " * 400}], "max_tokens": 50}
TOKENS = ("a",) * 50
INPUT, OUTPUT = 1, 2


def charged(stand: Stand) -> tuple[int, int, int]:
    """Requests, input and output tokens that all that has ended was charged; once nothing is open."""
    requests, prompt, output, _ = stand.process.requests.quotas.totals.settled
    return int(requests), int(prompt), int(output)


async def ended(stand: Stand, count: int = 1) -> None:
    """So many requests have been settled, and nothing is open."""
    quotas = stand.process.requests.quotas
    await until(lambda: stand.process.requests.open == 0 and quotas.totals.settled[3] == count)


async def worker_of(stand: Stand, make_worker: MakeWorker, script: Callable[[Seen], Script]) -> WorkerDouble:
    """A worker that follows a script, and a tenant whose use is counted."""
    worker = await make_worker()
    worker.script = script
    stand.work(worker)
    await limit(stand, requestsPerMinute=100, outputTokensPerMinute=60_000)
    return worker


async def close_after(stand: Stand, events: int, body: dict[str, Any]) -> None:
    """A client that reads so many events with text, and closes its connection."""
    async with stand.client.stream("POST", PATH, json=body) as response:
        seen = b""
        async for data in response.aiter_bytes():
            seen += data
            if seen.count(b'"content":"a"') + seen.count(b'"content": "a"') >= events:
                return


def estimate(body: dict[str, Any]) -> int:
    """What its prompt is expected to be at first."""
    return PromptLengthEstimator().tokens(measure(body, PATH))


async def test_a_stream_closed_early_is_charged_its_real_prompt_and_what_passed(
    stand: Stand, make_worker: MakeWorker
) -> None:
    await worker_of(stand, make_worker, lambda _: Script(tokens=TOKENS, stall_after=8))
    await close_after(stand, 8, LONG)
    await ended(stand)
    assert charged(stand) == (1, PROMPT_TOKENS, 8)


async def test_a_websocket_closed_early_is_charged_alike(stand: Stand, make_worker: MakeWorker) -> None:
    await worker_of(stand, make_worker, lambda _: Script(tokens=TOKENS, stall_after=3))
    async with dial(stand) as chat:
        await chat.send(json.dumps(LONG))
        for _ in range(3):
            await hear(chat)
    await ended(stand)
    assert charged(stand) == (1, PROMPT_TOKENS, 3)


async def test_a_stream_that_went_on_elsewhere_and_was_closed_there_is_charged_once(
    stand: Stand, make_worker: MakeWorker
) -> None:
    made = [await make_worker(name) for name in ("w0", "w1")]
    script = in_turn(Script(tokens=TOKENS, cut_after=4), then=Script(tokens=TOKENS, stall_after=9))
    for worker in made:
        worker.script = script
    stand.work(*made)
    await limit(stand, requestsPerMinute=100, outputTokensPerMinute=60_000)
    await close_after(stand, 9, LONG)
    await ended(stand)
    assert charged(stand) == (1, PROMPT_TOKENS, 9)


async def test_a_stream_closed_before_its_first_event_is_charged_the_estimate(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker = await worker_of(stand, make_worker, lambda _: Script(tokens=TOKENS, stall_after=0))
    asked = asyncio.create_task(stand.client.post(PATH, json=LONG))
    await until(lambda: len(worker.seen) == 1)
    asked.cancel()
    await ended(stand)
    assert charged(stand) == (1, estimate(LONG), 0)


async def test_a_request_closed_in_the_queue_is_charged_nothing(stand: Stand) -> None:
    await limit(stand, requestsPerMinute=100, outputTokensPerMinute=60_000)
    asked = asyncio.create_task(stand.client.post(PATH, json=LONG))
    await until(lambda: stand.process.requests.open == 1)
    asked.cancel()
    await until(lambda: stand.process.requests.open == 0)
    assert charged(stand) == (0, 0, 0)


async def test_a_whole_answer_given_up_is_charged_what_its_worker_has_made_meanwhile(
    stand: Stand, make_worker: MakeWorker
) -> None:
    whole = {**LONG, "stream": False, "n": 2}
    worker = await worker_of(stand, make_worker, lambda _: Script(stall_after=0))
    worker.say(step_time=StepTime(base=1e-9, prefill=0.0))
    service = stand.process.registry.services["default/chat"]
    await until(lambda: all(0 < known.step_s < 1e-6 for known in service.pool))
    asked = asyncio.create_task(stand.client.post(PATH, json=whole))
    await until(lambda: len(worker.seen) == 1)
    asked.cancel()
    await ended(stand)
    assert charged(stand) == (1, estimate(LONG), 2 * 50)


async def test_a_stream_of_another_engine_is_charged_by_its_events(stand: Stand, make_worker: MakeWorker) -> None:
    raw = b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n\r\n"
    await worker_of(
        stand, make_worker, lambda _: Script(raw=raw + as_sse(("a",) * 6).partition(b"data: [")[0], hang=True)
    )
    await close_after(stand, 6, LONG)
    await ended(stand)
    assert charged(stand) == (1, estimate(LONG), 6)


async def test_for_counts_that_are_none_the_estimates_stand(stand: Stand, make_worker: MakeWorker) -> None:
    counts = iter(["-5", "1e300", "7.5", "NaN", "null", '"7"', str(10**30)])
    bodies = ['{"choices":[],"usage":{"prompt_tokens":N,"completion_tokens":N}}'.replace("N", text) for text in counts]
    await worker_of(stand, make_worker, in_turn(*(Script(body=body) for body in bodies)))
    for _ in bodies:
        assert (await stand.client.post(PATH, json={**LONG, "stream": False})).status_code == 200
    await ended(stand, len(bodies))
    assert charged(stand) == (len(bodies), len(bodies) * estimate(LONG), len(bodies) * 50)


async def test_an_answer_of_no_token_is_charged_none(stand: Stand, make_worker: MakeWorker) -> None:
    body = '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":0}}'
    await worker_of(stand, make_worker, lambda _: Script(body=body))
    assert (await stand.client.post(PATH, json={**LONG, "stream": False})).status_code == 200
    await ended(stand)
    assert charged(stand) == (1, 9, 0)


async def test_absurd_choices_are_refused_and_cost_nothing(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await worker_of(stand, make_worker, lambda _: Script())
    for number in (33, 10**15):
        response: httpx.Response = await stand.client.post(PATH, json=CHAT | {"n": number})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "n")
    assert (worker.seen, charged(stand)) == ([], (0, 0, 0))
