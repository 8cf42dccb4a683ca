"""The chat of `paceline up --check` against a server of a few bytes that answers right, wrong or not at all."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from paceline_cli.up.check import ChatAnswer, ChatTarget, ask
from paceline_core.clock import SystemClock
from paceline_core.errors import Unreachable

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def event(data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def delta(text: str) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}}]})


USAGE = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}})
ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]})
DONE = b"data: [DONE]\n\n"


@asynccontextmanager
async def server(answer: bytes, requests: list[bytes]) -> AsyncIterator[ChatTarget]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
        requests.append(head + await reader.readexactly(length))
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield ChatTarget(f"http://127.0.0.1:{port}", "pl_key", "demo")


async def asked(answer: bytes) -> ChatAnswer:
    async with server(answer, []) as target:
        return await ask(target, SystemClock())


async def test_a_stream_is_measured_and_its_text_kept() -> None:
    requests: list[bytes] = []
    async with server(HEAD + ROLE + delta("Time ") + delta("flies.") + USAGE + DONE, requests) as target:
        answer = await ask(target, SystemClock())
    assert (answer.text, answer.tokens) == ("Time flies.", 2)
    assert 0 < answer.ttft_s <= answer.total_s
    (request,) = requests
    assert b"bearer pl_key" in request.lower()
    body = json.loads(request.partition(b"\r\n\r\n")[2])
    assert (body["model"], body["stream"], body["stream_options"]) == ("demo", True, {"include_usage": True})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 7\r\n\r\nbad key", "answered 401: bad key"),
        (HEAD + delta("Time ") + event({"error": {"message": "the worker is gone"}}) + DONE, "the worker is gone"),
        (HEAD + delta("Time "), "ended without \\[DONE\\]"),
        (HEAD + ROLE + USAGE + DONE, "ended without a token"),
        (HEAD + b"data: {\n\n" + DONE, "no JSON object"),
        (b"", "broke off"),
    ],
)
async def test_a_wrong_answer_fails_the_check_and_says_why(answer: bytes, reason: str) -> None:
    with pytest.raises(Unreachable, match=reason):
        await asked(answer)


def test_speed_counts_the_tokens_after_the_first() -> None:
    assert ChatAnswer(ttft_s=0.5, total_s=1.5, tokens=11, text="").tokens_per_s == 10.0
    assert ChatAnswer(ttft_s=0.5, total_s=0.5, tokens=1, text="").tokens_per_s == 0.0
