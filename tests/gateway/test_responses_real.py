"""`/v1/responses` through a gateway: the official client's view, limits and charges, and streams whose workers die."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError
from tests.gateway.official_client import where
from tests.gateway.replicas import EMULATED, replicas
from tests.gateway.stand import Stand, gateway, until

from paceline_core.auth import new_hop_key

pytestmark = pytest.mark.real
KEY = new_hop_key()
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
        async with gateway(tmp_path, hop_key=KEY) as stand, AsyncOpenAI(**where(stand, 0)) as client:
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
        async with gateway(tmp_path, hop_key=KEY) as stand, AsyncOpenAI(**where(stand, 0)) as client:
            await stand.serve([worker.endpoint for worker in workers])
            response = await client.responses.create(model="chat", input="hello", max_output_tokens=TOKENS)
            assert response.usage is not None
            for kind, tokens in (("input", response.usage.input_tokens), ("output", response.usage.output_tokens)):
                assert await stand.metric("paceline_tenant_tokens_total", kind=kind) == tokens
            with pytest.raises(BadRequestError) as caught:
                await client.responses.create(model="chat", input="hello", max_output_tokens=1 << 40)
            assert caught.value.param == "max_output_tokens"


def _far(stand: Stand, worker: str) -> bool:
    return any(call.life.worker == worker and call.life.meter.output > 1 for call in stand.calls)
