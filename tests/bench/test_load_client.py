"""One exchange against a server that does what the case says, on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.every import cases

from paceline_cli.bench.client import BenchTarget, Client
from paceline_cli.bench.openloop import Arrival, Ending, RequestSample, TokenCounts
from paceline_core.clock import SystemClock
from paceline_core.errors import InvalidInput

ARRIVAL = Arrival(0, 0.0, "load", 3, 2)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
OPEN_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def event(**more: object) -> bytes:
    base = {"id": "c1", "object": "chat.completion.chunk", "model": "m"}
    return b"data: " + json.dumps({**base, **more}).encode() + b"\n\n"


def choice(delta: dict[str, str], finish: str | None = None) -> bytes:
    return event(choices=[{"index": 0, "delta": delta, "finish_reason": finish}])


USAGE = event(choices=[], usage={"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5})
EVENTS = [choice({"role": "assistant"}), choice({"content": "a"}), choice({"content": "b"}), choice({}, "stop"), USAGE]
STREAM = [*EVENTS, b"data: [DONE]\n\n"]


def chunked(pieces: Sequence[bytes], end: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + end


def refusal(status: str, code: str) -> bytes:
    body = json.dumps({"error": {"code": code, "message": "later", "type": "x", "param": None}}).encode()
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


class Seen:
    """What the server was sent."""

    def __init__(self) -> None:
        self.head = b""
        self.body: dict[str, object] = {}


@asynccontextmanager
async def serving(answer: bytes, *, hang: bool = False) -> AsyncIterator[tuple[str, Seen]]:
    """A server of one fixed answer; with `hang` it never closes afterwards."""
    seen, over = Seen(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in seen.head.split(b"\r\n") if line.startswith(b"content-length"))
        seen.body = json.loads(await reader.readexactly(length))
        writer.write(answer)
        if hang:
            await over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", seen
    finally:
        over.set()
        server.close()
        await server.wait_closed()


async def asked(url: str, limit: float = 5.0) -> RequestSample:
    client = Client(BenchTarget(url, "pl_key", "chat"), SystemClock(), limit)
    return await client.send(ARRIVAL, client.prepare("hello there", 2))


async def test_a_whole_stream_is_ok_and_timed() -> None:
    async with serving(HEAD + chunked(STREAM)) as (url, _):
        sample = await asked(url)
    assert (sample.ending, sample.detail) == (Ending.OK, "")
    assert sample.usage == TokenCounts(3, 2)
    assert len(sample.content) == 2
    assert sample.sent is not None
    assert sample.end is not None
    assert sample.sent <= sample.content[0] <= sample.content[1] <= sample.end


async def test_the_request_asks_for_a_stream_with_usage_of_an_exact_length() -> None:
    async with serving(HEAD + chunked(STREAM)) as (url, seen):
        await asked(url)
    assert seen.head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert b"authorization: Bearer pl_key\r\n" in seen.head
    assert seen.body["messages"] == [{"role": "user", "content": "hello there"}]
    assert (seen.body["model"], seen.body["max_completion_tokens"]) == ("chat", 2)
    assert (seen.body["stream"], seen.body["stream_options"]) == (True, {"include_usage": True})


CASES: dict[str, tuple[bytes, Ending, str]] = {
    "no [DONE]": (HEAD + chunked(EVENTS), Ending.CUT, ""),
    "closed within an event": (HEAD + chunked(STREAM, b"")[:200], Ending.CUT, ""),
    "no end of the HTTP message": (HEAD + chunked(STREAM, b""), Ending.CUT, "end of the HTTP message"),
    "an error event": (HEAD + chunked([*EVENTS[:2], b'data: {"error": {"code": "lost"}}\n\n']), Ending.FAILED, "lost"),
    "a second role": (HEAD + chunked([*EVENTS[:2], choice({"role": "user"}), *STREAM[2:]]), Ending.VIOLATION, "role"),
    "429": (refusal("429 Too Many Requests", "rate_limit_exceeded"), Ending.REFUSED, "429 rate_limit_exceeded: later"),
    "503 without an object": (b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno", Ending.REFUSED, "503 no"),
    "no HTTP": (b"SSH-2.0-x\r\n", Ending.VIOLATION, "not HTTP/1.1"),
    "nothing": (b"", Ending.UNREACHABLE, "closed"),
    "framed by its close": (OPEN_HEAD + b"".join(STREAM), Ending.OK, ""),
}


@cases(("answer", "ending", "detail"), CASES.values())
async def test_every_kind_of_answer_has_its_ending(answer: bytes, ending: Ending, detail: str) -> None:
    async with serving(answer) as (url, _):
        sample = await asked(url)
    assert sample.ending is ending
    assert detail in sample.detail


async def test_a_server_that_goes_silent_is_a_timeout() -> None:
    async with serving(HEAD + chunked(EVENTS[:2], b""), hang=True) as (url, _):
        sample = await asked(url, limit=0.2)
    assert sample.ending is Ending.TIMEOUT
    assert len(sample.content) == 1


async def test_nobody_listening_is_unreachable(unused_tcp_port_factory: Callable[[], int]) -> None:
    sample = await asked(f"http://127.0.0.1:{unused_tcp_port_factory()}")
    assert sample.ending is Ending.UNREACHABLE
    assert sample.detail


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "ftp://x", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="url"):
        Client(BenchTarget(url, "k", "m"), SystemClock(), 1)


@pytest.mark.parametrize("url", ["http://h/v1", "http://h/v1/", "http://h", "http://h/"])
def test_the_base_url_may_end_in_v1_or_not(url: str) -> None:
    assert BenchTarget(url, "k", "m").request("p", 1).startswith(b"POST /v1/chat/completions ")
