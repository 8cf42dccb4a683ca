"""What the official client makes of a worker's errors, waits and characters, over a real port."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from tests.worker.conftest import TEXT
from tests.worker.harness import Rig, eventually, listening, openai_client, running
from tests.worker.scripted_engine import Script

from paceline_workers.server.request_handler import InFlightLimiter

pytestmark = pytest.mark.real

HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
RETRIES = 4


@contextlib.asynccontextmanager
async def served(folder: Path, *scripts: Script, **settings: Any) -> AsyncIterator[tuple[Rig, AsyncOpenAI]]:
    async with (
        running(*scripts, folder=folder) as rig,
        listening(rig) as address,
        openai_client(address, **settings) as client,
    ):
        yield rig, client


def ended(rig: Rig) -> float:
    """Requests that have come to their end, whatever it was."""
    body = rig.worker.parts.measures.exposition(rig.worker.parts.engine)[0].decode()
    lines = [line for line in body.splitlines() if line.startswith("paceline_worker_requests_total{")]
    return sum(float(line.split()[-1]) for line in lines)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_lost_before_the_first_byte_is_retried_unseen(
    folder: Path, reply: list[int], stream: bool
) -> None:
    dying = Script(reply=reply, fault="crash", phase="prefill", once=str(folder / "struck"))
    async with served(folder, dying, max_retries=RETRIES) as (rig, client):
        answer: Any = await client.chat.completions.create(**HELLO, stream=stream)
        if stream:
            assert "".join([chunk.choices[0].delta.content or "" async for chunk in answer]) == TEXT
        else:
            assert answer.choices[0].message.content == TEXT
        assert rig.worker.parts.engine.restarts == 1
        assert ended(rig) > 1


async def test_what_no_retry_can_mend_is_asked_once(folder: Path) -> None:
    async with served(folder, Script(), max_retries=RETRIES) as (rig, client):
        for wrong, error in (
            ({"model": "other"}, openai.NotFoundError),
            ({"n": 99}, openai.BadRequestError),
            ({"max_tokens": 10**6}, openai.BadRequestError),
        ):
            with pytest.raises(error):
                await client.chat.completions.create(**(HELLO | wrong))
        assert ended(rig) == 3


async def test_a_full_worker_is_waited_for(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply), folder=folder) as rig:
        narrow = replace(rig.worker, parts=replace(rig.worker.parts, gate=InFlightLimiter(1)))
        async with (
            listening(Rig(narrow, rig.app, rig.gateway_headers, rig.autoscaler_headers)) as address,
            openai_client(address, max_retries=1) as client,
        ):
            with narrow.gate.entered():
                asking = asyncio.ensure_future(client.chat.completions.create(**HELLO))
                await eventually(lambda: ended(rig) == 1)
            assert (await asking).choices[0].message.content == TEXT
            assert ended(rig) == 2


async def test_a_stream_that_is_lost_raises_after_what_came(folder: Path, reply: list[int]) -> None:
    async with served(folder, Script(reply=reply, fault="crash", phase="decode"), max_retries=RETRIES) as (_, client):
        stream = aiter(await client.chat.completions.create(**HELLO, stream=True))
        assert TEXT.startswith((await anext(stream)).choices[0].delta.content or "")
        with pytest.raises(openai.APIError, match="engine ended"):
            [chunk async for chunk in stream]


async def test_a_client_that_waits_no_longer_frees_the_engine(folder: Path) -> None:
    log = folder / "engine.log"
    async with served(folder, Script(fault="hold", phase="prefill", log=str(log)), timeout=0.2) as (rig, client):
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(**HELLO)
        await eventually(lambda: log.read_text().split() == ["Submit", "Abort"])
        await eventually(lambda: rig.worker.gate.open == 0)


async def test_closing_a_stream_frees_the_engine(folder: Path, reply: list[int]) -> None:
    log = folder / "engine.log"
    async with served(folder, Script(reply=reply, fault="hold", phase="decode", log=str(log))) as (_, client):
        stream = await client.chat.completions.create(**HELLO, stream=True)
        await anext(aiter(stream))
        await stream.close()
        await eventually(lambda: log.read_text().split() == ["Submit", "Abort"])


@pytest.mark.parametrize("per_frame", [1, 2, 5])
async def test_no_chunk_holds_half_a_character(folder: Path, reply: list[int], per_frame: int) -> None:
    script = Script(reply=reply, per_frame=per_frame, pause_s=0.001, logprobs=True)
    async with served(folder, script) as (_, client):
        stream = await client.chat.completions.create(**HELLO, stream=True, logprobs=True)
        choices = [chunk.choices[0] async for chunk in stream]
    texts = [choice.delta.content or "" for choice in choices]
    assert "".join(texts) == TEXT
    assert not any("\ufffd" in text for text in texts)
    entries = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content or ()]
    assert bytes(byte for entry in entries for byte in entry.bytes or ()).decode() == TEXT


async def test_every_answer_tells_its_request_id(folder: Path, reply: list[int]) -> None:
    async with served(folder, Script(reply=reply)) as (_, client):
        answer = await client.chat.completions.create(**HELLO, extra_headers={"x-request-id": "abc_1"})
        assert answer._request_id == "abc_1"
        with pytest.raises(openai.BadRequestError) as caught:
            await client.embeddings.create(model="chat", input="a", extra_headers={"x-request-id": "abc_2"})
        assert caught.value.request_id == "abc_2"
