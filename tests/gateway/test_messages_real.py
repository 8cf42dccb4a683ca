"""`/v1/messages` through a gateway: keys and errors as Anthropic's clients know them, and streams whose workers die."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import MakeWorker
from tests.gateway.replicas import EMULATED, replicas
from tests.gateway.stand import Stand, gateway, until
from tests.gateway.worker_double import Script, Seen

from paceline_core.auth import new_signing_key

pytestmark = pytest.mark.real
KEY = new_signing_key()
ROUTE = "/v1/messages"
TOKENS, STREAMS = 30, 6


def body(number: int, **how: Any) -> dict[str, Any]:
    question = [{"role": "user", "content": f"What is TTFT, {number}?"}]
    return {"model": "chat", "messages": question, "max_tokens": TOKENS, "temperature": 0, **how}


async def told(stand: Stand, number: int) -> tuple[str, Any]:
    """The text of a stream and its last delta."""
    answer = await stand.client.post(ROUTE, json=body(number, stream=True))
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    events = [json.loads(line) for line in lines]
    assert [event["type"] for event in events][:: len(events) - 1] == ["message_start", "message_stop"], answer.text
    text = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
    return text, next(event for event in events if event["type"] == "message_delta")


async def test_workers_that_die_break_no_stream_of_messages(tmp_path: Path) -> None:
    with replicas(tmp_path, 2, KEY, engine=EMULATED) as workers:
        async with gateway(tmp_path, signing_key=KEY) as stand:
            await stand.serve([worker.endpoint for worker in workers])
            asked = [asyncio.create_task(told(stand, number)) for number in range(STREAMS)]
            await until(partial(_far, stand, workers[-1].name))
            workers.pop().kill()
            for text, last in await asyncio.gather(*asked):  # drawn without a seed, so each is a text of its own
                assert text
                assert (last["delta"]["stop_reason"], last["usage"]["output_tokens"]) == ("max_tokens", TOKENS)
            assert await stand.metric("paceline_stream_resumed_total", reason="connection") > 0
            await _whole(stand)


async def _whole(stand: Stand) -> None:
    """The key may come in a header of its own; errors have Anthropic's form, those of the gateway too."""
    stand.client.headers.pop("authorization")
    missing = await stand.client.post(ROUTE, json=body(1))
    assert (missing.status_code, missing.json()["error"]["type"]) == (401, "authentication_error")
    own = {"x-api-key": stand.key, "anthropic-version": "2023-06-01"}
    answer = await stand.client.post(ROUTE, json=body(1), headers=own)
    assert answer.json()["usage"]["output_tokens"] > 0
    refused = await stand.client.post(ROUTE, json=body(1, model="other"), headers=own)
    assert (refused.status_code, refused.json()["type"]) == (404, "error")
    assert refused.json()["error"]["type"] == "not_found_error"
    beta = await stand.client.post(f"{ROUTE}?beta=true", json=body(1), headers=own | {"anthropic-beta": "a,b"})
    assert beta.json()["type"] == "message"
    limited = await stand.client.post(ROUTE, json=body(1, max_tokens=1 << 40), headers=own)
    assert (limited.status_code, limited.json()["error"]["param"]) == (400, "max_tokens")


async def test_a_stream_that_is_cut_ends_with_anthropics_error_event(stand: Stand, make_worker: MakeWorker) -> None:
    """One of another engine, which cannot go on elsewhere; one that has ended needs no `[DONE]`."""
    worker = await make_worker()
    stand.work(worker)
    await stand.ready(1)
    begun: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 7, "output_tokens": 0}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    ended: list[dict[str, Any]] = [
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    answers = []
    for events in (begun, [*begun, *ended]):
        written = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        script = Script(raw=(head + written).encode())
        worker.script = partial(_always, script)
        answers.append((await stand.client.post(ROUTE, json=body(1, stream=True))).text)
    cut, whole = answers
    named, data, done = cut.split("\n\n")[-3].split("\n")[0], cut.split("data: ")[-2], cut.split("data: ")[-1]
    error = json.loads(data)
    assert (named, error["type"], error["error"]["code"]) == ("event: error", "error", "stream_lost")
    assert (error["error"]["type"], done.strip()) == ("api_error", "[DONE]")
    assert whole.strip().endswith('{"type": "message_stop"}')
    assert await stand.metric("paceline_requests_total", outcome="ok") == 1
    assert await stand.metric("paceline_requests_total", outcome="stream_error") == 1


def _always(script: Script, _: Seen) -> Script:
    return script


def _far(stand: Stand, worker: str) -> bool:
    return any(call.machine.worker == worker and call.machine.meter.output > 1 for call in stand.calls)
