"""A small worker that does what its script says: real sockets, real SSE, a real load stream, and every fault.

In a test it runs in the test's own loop; `python -m tests.gateway.worker_double '<json>'` runs one as a process that
can be killed. It speaks raw HTTP so that it can break it wherever a script wants.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from paceline_core.auth import TrustBundle
from paceline_core.auth.internal_token import HEADER
from paceline_core.kube import Endpoint
from paceline_core.wire import RESUME, KVLoad, LoadReport, StepTime, WorkerState, encode

SERVICE = "default/chat"
PROMPT_TOKENS = 7
"""What it counts of any prompt."""


@dataclass(frozen=True, slots=True)
class Script:
    """How one request is answered. `cut_after` closes the connection after so many events (0: before the head).

    A stream that is resumed counts on from the tokens it is told. `foreign`: it says nothing of tokens, like an engine
    that is not ours. `dies_after`: the whole worker ends after so many events of this life (0: before the head).
    `moved_after`: it is given up with `reason` after so many events. `hang`: behind
    `raw` the connection stays open. `dribble`: byte by byte. `until`: nothing comes before that.
    """

    tokens: tuple[str, ...] = ("Time", " to", " first", " token")
    delay_s: float = 0.0
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    cut_after: int | None = None
    stall_after: int | None = None
    error_after: int | None = None
    dies_after: int | None = None
    moved_after: int | None = None
    reason: str = "evacuate"
    foreign: bool = False
    done: bool = True
    raw: bytes = b""
    hang: bool = False
    dribble: bool = False
    until: asyncio.Event | None = None


REFUSAL = Script(status=503, headers=(("x-paceline-draining", "1"),), body='{"error":{"code":"draining"}}')
"""What a worker that drains answers."""


@dataclass(slots=True)
class Seen:
    """A request as it arrived. `closed` is set when the gateway closed the connection before the end.

    `resume` is what stands behind the client's body where a stream goes on. `given_up`: it was asked to move.
    """

    path: str
    headers: dict[str, str]
    body: bytes
    resume: dict[str, Any] | None = None
    given_up: bool = False
    closed: asyncio.Event = field(default_factory=asyncio.Event)


def in_turn(*scripts: Script, then: Script = Script()) -> Callable[[Seen], Script]:
    """A script, of one worker or of several: whoever is asked next takes the next one; after the last one `then`."""
    left = iter(scripts)
    return lambda _: next(left, then)


class WorkerDouble:
    """`script` decides per request; `report` is what the load stream says. With a `trust` it answers 401 to strangers,
    and `refused` keeps their tokens; `evacuated` are the requests that it was asked to give up."""

    def __init__(self, name: str = "w0", service: str = SERVICE, slots: int = 16) -> None:
        self.name = name
        self.script: Callable[[Seen], Script] = lambda _: Script()
        self.seen: list[Seen] = []
        self.trust: TrustBundle | None = None
        self.refused: list[str] = []
        self.evacuated: list[str] = []
        self.connections = 0
        self.report = LoadReport(
            worker=name,
            service=service,
            revision="r1",
            pool="main",
            state=WorkerState.READY,
            slots=slots,
            kv=KVLoad(page_tokens=64, total=1000, free=1000),
            step_time=StepTime(base=0.001, prefill=0.00001),
            max_model_len=4096,
        )
        self._server: asyncio.Server | None = None
        self._said = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    @property
    def endpoint(self) -> Endpoint:
        """As the cluster lists it."""
        return Endpoint(self.name, "main", "stable", "r1", "127.0.0.1", self.port, ready=True)

    async def start(self, port: int = 0) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Die: every connection is closed at once."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        self._said.set()

    def say(self, **changes: object) -> None:
        """Change the report and send it."""
        self.report = self.report.model_copy(update=changes)
        said, self._said = self._said, asyncio.Event()
        said.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while (seen := await _read_request(reader)) is not None:
                if self.trust is not None and not self.trust.verify(token := seen.headers.get(HEADER, "")):
                    self.refused.append(token)
                    writer.write(_head(401, (("content-length", "0"),), chunked=False))
                    return
                if seen.path == "/internal/load":
                    await self._load(writer)
                    return
                if seen.path == "/internal/evacuate":
                    writer.write(self._evacuate(json.loads(seen.body)["requests"]))
                    continue
                self.seen.append(seen)
                if not await self._answer(seen, reader, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except RuntimeError:
            if not writer.is_closing():  # uvloop says so where a closed connection is written to
                raise
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    def _evacuate(self, names: list[str]) -> bytes:
        asked = [seen for seen in self.seen if seen.headers.get("x-request-id") in names]
        for seen in asked:
            seen.given_up = True
        self.evacuated += names
        body = b'{"v":1,"moved":%d}' % len(asked)
        return _head(200, (("content-length", str(len(body))),), chunked=False) + body

    async def _load(self, writer: asyncio.StreamWriter) -> None:
        writer.write(_head(200, (("content-type", "application/x-ndjson"),)))
        while not writer.is_closing():
            said = self._said
            writer.write(_chunk(encode(self.report)))
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await said.wait()

    async def _answer(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        script = self.script(seen)
        watcher = asyncio.create_task(_watch(reader, seen))
        try:
            return await self._play(script, seen, writer)
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    async def _play(self, script: Script, seen: Seen, writer: asyncio.StreamWriter) -> bool:
        if script.until is not None:
            await script.until.wait()
        if script.raw:
            writer.write(script.raw)
            await writer.drain()
            if script.hang:
                await seen.closed.wait()
            return False
        if 0 in (script.dies_after, script.cut_after, script.stall_after):
            if script.dies_after == 0:
                await self.stop()
            if script.stall_after == 0:
                await seen.closed.wait()
            return False
        if script.status != 200 or not json.loads(seen.body).get("stream"):
            return await self._whole(script, seen, writer)
        writer.write(_head(200, (("content-type", "text/event-stream; charset=utf-8"), *script.headers)))
        async for event in _events(script, seen):
            if event is None:
                await (self.stop() if script.dies_after else asyncio.sleep(0))
                return False
            await _write(writer, _chunk(event), script)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _whole(self, script: Script, seen: Seen, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(script.delay_s)
        text = "".join(script.tokens)
        usage = {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": len(script.tokens),
            "total_tokens": PROMPT_TOKENS + len(script.tokens),
        }
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": json.loads(seen.body)["model"],
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": usage,
        }
        body = script.body.encode() or json.dumps(answer).encode()
        headers = (("content-type", "application/json"), ("content-length", str(len(body))), *script.headers)
        await _write(writer, _head(script.status, headers, chunked=False) + body, script)
        return True


async def _write(writer: asyncio.StreamWriter, data: bytes, script: Script) -> None:
    for piece in [data[at : at + 1] for at in range(len(data))] if script.dribble else [data]:
        writer.write(piece)
        await writer.drain()
        if script.dribble:
            await asyncio.sleep(0)


def as_sse(tokens: Sequence[str]) -> bytes:
    """A stream's body as an engine that is not ours would write it."""
    payloads = [json.dumps({"id": "c", "choices": [{"index": 0, "delta": {"content": token}}]}) for token in tokens]
    return b"".join(b"data: %b\n\n" % payload.encode() for payload in [*payloads, "[DONE]"])


async def _events(script: Script, seen: Seen) -> AsyncIterator[bytes | None]:
    opening = _event({"delta": {"role": "assistant", "content": ""}}, seen)
    told = len(seen.resume["choices"][0]["ids"]) if seen.resume else 0
    for index, token in list(enumerate(script.tokens))[told:]:
        if index == script.moved_after or seen.given_up:
            yield f": moved {script.reason}\n".encode()
            return
        if index == script.cut_after or index - told == script.dies_after:
            yield None
            return
        if index == script.stall_after:
            await seen.closed.wait()
            return
        if index == script.error_after:
            yield b'data: {"error":{"message":"the engine failed","type":"server_error","code":"engine_failed"}}\n\n'
            yield b"data: [DONE]\n\n"
            return
        await asyncio.sleep(script.delay_s)
        comment = b": p %d %d\n" % (index, 100 + index) if index else b": p 0 100 2\n" + opening
        comment = b": prompt %d 0\n" % PROMPT_TOKENS + comment if index == told else comment
        yield (b"" if script.foreign else comment) + _event({"delta": {"content": token}}, seen)
    if script.cut_after is not None and script.cut_after >= len(script.tokens):
        yield None
        return
    if script.stall_after is not None and script.stall_after >= len(script.tokens):
        await seen.closed.wait()
        return
    if json.loads(seen.body).get("stream_options", {}).get("include_usage"):
        yield _usage(script, seen)
    if script.done:
        yield b': phases {"queue":0.001,"prefill":0.002,"decode":0.003}\ndata: [DONE]\n\n'


def _usage(script: Script, seen: Seen) -> bytes:
    usage = {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": len(script.tokens),
        "total_tokens": PROMPT_TOKENS + len(script.tokens),
    }
    payload = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


def _event(choice: dict[str, object], seen: Seen) -> bytes:
    name = seen.headers.get("x-request-id", "1")
    payload = {
        "id": f"chatcmpl-{name}" if seen.resume is None else seen.resume["id"],
        "object": "chat.completion.chunk",
        "created": len(name) if seen.resume is None else seen.resume["created"],
        "model": "chat",
        "choices": [{"index": 0, **choice, "finish_reason": None}],
    }
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


async def _read_request(reader: asyncio.StreamReader) -> Seen | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    size = int(headers.get(RESUME, "0"))
    resume = json.loads(body[-size:]) if size else None
    return Seen(first.split(" ")[1], headers, body[:-size] if size else body, resume)


async def _watch(reader: asyncio.StreamReader, seen: Seen) -> None:
    # the gateway sends nothing while it waits for an answer: what comes is the end
    with contextlib.suppress(ConnectionError):
        await reader.read(1)
    seen.closed.set()


def _head(status: int, headers: tuple[tuple[str, str], ...], *, chunked: bool = True) -> bytes:
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, *(["transfer-encoding: chunked"] if chunked else []), "", ""]).encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _main(name: str, script: Script) -> None:
    worker = await WorkerDouble(name).start()
    worker.script = lambda _: script
    sys.stdout.write(f"{worker.port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def as_argument(script: Script) -> str:
    """A script for the command line."""
    return json.dumps({key: value for key, value in asdict(script).items() if key not in ("raw", "until")})


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], Script(**json.loads(sys.argv[2]))))
