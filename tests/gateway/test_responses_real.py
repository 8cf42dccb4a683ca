"""`/v1/responses` through a gateway: the official client's view, limits and charges, and streams whose workers die."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openai import APIError, AsyncOpenAI, BadRequestError
from tests.gateway.conftest import MakeWorker
from tests.gateway.official_client import where
from tests.gateway.replicas import EMULATED, replicas
from tests.gateway.stand import Stand, gateway, until
from tests.gateway.worker_double import Script

from paceline_core.auth import new_signing_key

pytestmark = pytest.mark.real
KEY = new_signing_key()
TOKENS = 30
STREAMS = 6


async def told(client: AsyncOpenAI, number: int) -> tuple[str, list[str], tuple[int, int]]:
    """Text, items and usage of a stream, whose deltas agree with its end."""
    body: dict[str, Any] = {"model": "chat", "input": f"What is TTFT, {number}?", "max_output_tokens": TOKENS}
    deltas, numbers, response = "", list[int](), None
    stream = await client.responses.create(**body, stream=True, extra_body={"seed": number, "ignore_eos": True})
    async for event in stream:
        numbers.append(event.sequence_number)
        deltas += event.delta if event.type == "response.output_text.delta" else ""
        response = event.response if event.type == "response.incomplete" else None
    assert response is not None
    assert response.usage is not None
    assert numbers == sorted(set(numbers))
    assert deltas == response.output_text
    return deltas, [item.type for item in response.output], (response.usage.input_tokens, response.usage.output_tokens)


async def test_workers_that_die_break_no_stream_of_responses(tmp_path: Path) -> None:
    with replicas(tmp_path, 2, KEY, engine=EMULATED) as workers:
        async with gateway(tmp_path, signing_key=KEY) as stand, AsyncOpenAI(**where(stand, 0)) as client:
            await stand.serve([worker.endpoint for worker in workers])
            undisturbed = await asyncio.gather(*(told(client, number) for number in range(STREAMS)))
            asked = [asyncio.create_task(told(client, number)) for number in range(STREAMS)]
            await until(partial(_far, stand, workers[-1].name))
            workers.pop().kill()
            assert await asyncio.gather(*asked) == undisturbed
            assert await stand.metric("paceline_stream_resumed_total", reason="connection") > 0
            assert await stand.metric("paceline_requests_total", outcome="ok") == 2 * STREAMS


async def test_a_response_is_charged_what_its_usage_says(tmp_path: Path) -> None:
    with replicas(tmp_path, 1, KEY, engine=EMULATED) as workers:
        async with gateway(tmp_path, signing_key=KEY) as stand, AsyncOpenAI(**where(stand, 0)) as client:
            await stand.serve([worker.endpoint for worker in workers])
            response = await client.responses.create(model="chat", input="hello", max_output_tokens=TOKENS)
            assert response.usage is not None
            for kind, tokens in (("input", response.usage.input_tokens), ("output", response.usage.output_tokens)):
                assert await stand.metric("paceline_tenant_tokens_total", kind=kind) == tokens
            with pytest.raises(BadRequestError) as caught:
                await client.responses.create(model="chat", input="hello", max_output_tokens=1 << 40)
            assert caught.value.param == "max_output_tokens"


def _foreign(*kinds: str) -> Script:
    """A stream as other engines send it, which may lack `[DONE]`; then the connection ends."""
    response = {"id": "resp_1", "object": "response", "created_at": 1, "output": []}
    events = [
        {"type": kind, "sequence_number": place, "response": response, "delta": "Time", "output_index": 0}
        for place, kind in enumerate(kinds)
    ]
    written = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return Script(raw=(head + written).encode())


async def test_a_stream_that_is_cut_ends_with_an_error_that_the_client_raises(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker = await make_worker()
    begun = ("response.created", "response.in_progress", "response.output_text.delta")
    worker.script = lambda _: _foreign(*begun)
    stand.work(worker)
    await stand.ready(1)
    body: dict[str, Any] = {"model": "chat", "input": "hello", "stream": True}
    async with AsyncOpenAI(**where(stand, 0)) as client:
        stream = await client.responses.create(**body)
        with pytest.raises(APIError) as caught:
            [event async for event in stream]
        assert caught.value.code == "stream_lost"
        answer = await stand.client.post("/v1/responses", json=body)
        last = json.loads(answer.text.rsplit("data: ", 2)[1].strip())
        assert (last["type"], last["code"]) == ("error", "stream_lost")
        worker.script = lambda _: _foreign(*begun, "response.completed")
        whole = [event.type async for event in await client.responses.create(**body)]
    assert whole == [*begun, "response.completed"]
    assert await stand.metric("paceline_requests_total", outcome="ok") == 1
    assert await stand.metric("paceline_requests_total", outcome="stream_error") == 2


def _far(stand: Stand, worker: str) -> bool:
    return any(call.machine.worker == worker and call.machine.meter.output > 1 for call in stand.calls)
