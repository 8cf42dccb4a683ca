"""A toy upstream in a process of its own: raw uvloop, answers as its script says, costs next to nothing.

A caller with an internal token is a gateway of ours: it gets comments, and `/internal/load` tells it the prefix keys
that came with prompts, as a worker does. Everybody else gets the same events in the same writes. `POST /script` sets
the script, `GET /counts` says what was served; every other GET is answered with a list of models, which is what peers
ask for. It computes nothing, so it takes no notice of a prompt beyond reading it.
"""

import asyncio
import json
import sys
from typing import Any, cast

import httptools
import uvloop
from benchmarks.gateway.script import STEP_TIME, Script, chunk

from paceline_core.auth.internal_token import HEADER
from paceline_core.wire import PREFIX, KVLoad, LoadReport, PrefixDelta, WorkerState, encode

SLOTS = 16384
KEYS_KEPT = 4096
TELL_S, QUIET_TELLS = 0.25, 8
_TOKEN, _PREFIX = HEADER.encode(), PREFIX.encode()
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
_CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
_MODELS = {"object": "list", "data": [{"id": "chat", "object": "model"}], "model_path": "chat", "version": "0"}


class Upstream:
    """What all connections share."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = self.tokens = self.running = 0
        self.keys: dict[str, None] = {}
        self.play(Script())

    def play(self, script: Script) -> None:
        """From the next request on."""
        self.script = script
        self.writes = {trusted: script.writes(comments=trusted) for trusted in (True, False)}
        self.whole = _whole(script.whole())

    def counts(self) -> dict[str, int]:
        """Requests and tokens so far, and requests under way."""
        return {"requests": self.requests, "tokens": self.tokens, "running": self.running}

    def remember(self, header: bytes) -> None:
        """The keys of a prompt are cached now; the ones longest unused are gone."""
        for key in header.decode().partition(";")[2].split(","):
            self.keys.pop(key, None)
            self.keys[key] = None
        while len(self.keys) > KEYS_KEPT:
            del self.keys[next(iter(self.keys))]

    def report(self, known: set[str]) -> LoadReport:
        """Its state; `known` are the keys that the reader knows of, and is brought up to date."""
        now = set(self.keys)
        delta = PrefixDelta(added=tuple(now - known), evicted=tuple(known - now))
        known.clear()
        known.update(now)
        return LoadReport(
            worker=self.name, service="default/chat", revision="r1", pool="main", state=WorkerState.READY, slots=SLOTS,
            running=self.running, kv=KVLoad(page_tokens=64, total=10_000_000, free=10_000_000), step_time=STEP_TIME,
            max_model_len=1_000_000, prefix=delta,
        )  # fmt: skip


class Connection(asyncio.Protocol):
    """One connection of a gateway, or of the client itself."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._parser = httptools.HttpRequestParser(self)
        self._loop = asyncio.get_running_loop()
        self._writes: list[bytes] = []
        self._at = 0
        self._due = 0.0
        self._pace_s = 0.0
        self._timer: asyncio.Handle | None = None
        self._task: asyncio.Task[None] | None = None
        self._open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A gateway has connected."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        """It has gone: whatever was to come is dropped."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._close()

    def data_received(self, data: bytes) -> None:
        """A piece of a request."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_message_begin(self) -> None:
        """A new request."""
        self._path = self._prefix = b""
        self._trusted = False
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        """Its path."""
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Who asks, and what it knows of the prompt."""
        name = name.lower()
        if name == _TOKEN:
            self._trusted = True
        elif name == _PREFIX:
            self._prefix = value

    def on_body(self, body: bytes) -> None:
        """Read, and kept only where it is a command."""
        if self._path == b"/script":
            self._body.append(body)

    def on_message_complete(self) -> None:
        """Answer."""
        upstream = self._upstream
        if self._path == b"/v1/chat/completions":
            self._answer(upstream)
        elif self._path == b"/internal/load":
            self._task = asyncio.create_task(self._tell())
        elif self._path == b"/script":
            upstream.play(Script(**json.loads(b"".join(self._body))))
            self._transport.write(_whole(b"{}"))
        elif self._parser.get_method() != b"GET":
            self._transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        else:
            body: Any = upstream.counts() if self._path == b"/counts" else _MODELS
            self._transport.write(_whole(json.dumps(body).encode()))

    def _answer(self, upstream: Upstream) -> None:
        script = upstream.script
        upstream.requests += 1
        upstream.tokens += script.tokens
        if self._prefix:
            upstream.remember(self._prefix)
        if not script.stream:
            self._transport.write(upstream.whole)
            return
        vocabulary = b"x-paceline-vocabulary: toy\r\n" if self._trusted else b""
        self._transport.write(_STREAM + vocabulary + _CHUNKED)
        self._writes = upstream.writes[self._trusted]
        self._at, self._due, self._pace_s = 0, self._loop.time(), script.pace_s
        self._open = True
        upstream.running += 1
        if script.pace_s or script.apart:
            self._next()
        else:
            for write in self._writes:
                self._transport.write(write)
            self._close()

    def _next(self) -> None:
        """One write, and when the next is due; what follows the last token comes with it."""
        self._transport.write(self._writes[self._at])
        self._at += 1
        rest = len(self._writes) - self._at
        if not rest:
            self._close()
        elif self._pace_s and rest > 1:
            self._due += self._pace_s
            self._timer = self._loop.call_at(self._due, self._next)
        else:
            self._timer = self._loop.call_soon(self._next)

    def _close(self) -> None:
        self._upstream.running -= self._open
        self._open = False

    async def _tell(self) -> None:
        """A load report when something has changed, and now and then when nothing has."""
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n" + _CHUNKED)
        known: set[str] = set()
        last, quiet = None, 0
        while True:
            quiet += 1
            if not self._transport.get_write_buffer_size():  # else its reader is stopped
                report = self._upstream.report(known)
                if report != last or quiet > QUIET_TELLS:
                    self._transport.write(chunk(encode(report)))
                    last, quiet = report, 0
            await asyncio.sleep(TELL_S)


def _whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


async def _main(name: str) -> None:
    upstream = Upstream(name)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(upstream), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1]))
