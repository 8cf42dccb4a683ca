"""A streamed chat over a new HTTP/1.1 connection, timed as its bytes arrive.

httptools parses at protocol level, because the generator shares its machine with what it measures: 64 events cost 3 ms
of CPU here, 11 ms through httpx (measured on loopback, asyncio's own loop). No connection is reused, so that a request
never waits for another one's socket and every new worker or gateway gets its share.
"""

import asyncio
import json
import ssl
from dataclasses import dataclass, replace
from typing import cast
from urllib.parse import urlsplit

import httptools

from paceline_cli.bench.openloop import Arrival, Ending, RequestSample
from paceline_cli.bench.sse import ChatStream
from paceline_core.clock import Clock
from paceline_core.errors import InvalidInput

REFUSAL_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True)
class BenchTarget:
    """The target of requests: an OpenAI base URL (with or without `/v1`), a key and a model's public name."""

    url: str
    key: str
    model: str

    @property
    def address(self) -> tuple[str, int, bool]:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput("url", f"{self.url!r} is not an http or https address such as http://127.0.0.1:8080/v1")
        tls = parts.scheme == "https"
        return parts.hostname, parts.port or (443 if tls else 80), tls

    def request(self, prompt: str, output_tokens: int) -> bytes:
        """The complete HTTP request of one streamed chat with exactly `output_tokens`."""
        chat = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_completion_tokens": output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body = json.dumps(chat).encode()
        parts = urlsplit(self.url)
        path = parts.path.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {parts.netloc}\r\nauthorization: Bearer {self.key}\r\n"
            f"content-type: application/json\r\naccept: text/event-stream\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        return head.encode() + body


class Exchange(asyncio.Protocol):
    """A request and its answer; `ended` resolves when the answer is complete or the connection gone."""

    def __init__(self, request: bytes, clock: Clock) -> None:
        self.stream = ChatStream()
        self.content: list[float] = []
        self.status = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._clock = clock
        self._parser = httptools.HttpResponseParser(self)
        self._framed = False
        self._complete = False
        self._fault = ""
        self._lost = ""
        self._refusal = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.WriteTransport", transport).write(self._request)  # uvloop's transport only has its methods

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fault = f"not HTTP/1.1: {error}"
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = str(exc) if exc else "closed"
        self._finish()

    def on_header(self, name: bytes, _value: bytes) -> None:
        """httptools: a message with its own framing must end by it, not by a close."""
        self._framed = self._framed or name.lower() in (b"transfer-encoding", b"content-length")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self.status == 200:
            moment = self._clock.monotonic()
            self.content.extend([moment] * self.stream.feed(body))
        elif len(self._refusal) < REFUSAL_LIMIT:
            self._refusal += body

    def on_message_complete(self) -> None:
        self._complete = True
        self._finish()

    def judge(self) -> tuple[Ending, str]:
        if self._fault:
            return Ending.VIOLATION, self._fault
        if self.status == 0:
            return Ending.UNREACHABLE, f"no answer: the connection was {self._lost}"
        if self.status != 200:
            return Ending.REFUSED, f"{self.status} {_code(bytes(self._refusal))}".strip()
        ending = self.stream.close()
        if ending is Ending.OK and self._framed and not self._complete:
            return Ending.CUT, "[DONE] came, the end of the HTTP message did not"
        return ending, self.stream.error or "; ".join(self.stream.faults)

    def _finish(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


class Client:
    def __init__(self, target: BenchTarget, clock: Clock, limit: float) -> None:
        self.prepare = target.request
        self._host, self._port, tls = target.address
        self._tls = ssl.create_default_context() if tls else None
        self._clock = clock
        self._limit = limit

    async def send(self, arrival: Arrival, request: bytes) -> RequestSample:
        """Send a request and read its answer; never raises for errors of the other side. Times are the clock's."""
        sent = self._clock.monotonic()
        exchange = Exchange(request, self._clock)
        unsent = RequestSample(arrival, Ending.UNREACHABLE, sent=sent)
        try:
            async with asyncio.timeout(self._limit):
                loop = asyncio.get_running_loop()
                transport, _ = await loop.create_connection(lambda: exchange, self._host, self._port, ssl=self._tls)
                try:
                    await exchange.ended
                finally:
                    transport.abort()
            ending, detail = exchange.judge()
        except TimeoutError:
            ending, detail = Ending.TIMEOUT, f"no end within {self._limit:g} s"
        except OSError as error:
            return replace(unsent, end=self._clock.monotonic(), detail=str(error))
        content, usage = tuple(exchange.content), exchange.stream.usage
        return RequestSample(arrival, ending, sent, self._clock.monotonic(), content, usage, detail)


def _code(body: bytes) -> str:
    try:
        error = json.loads(body)["error"]
        return f"{error['code']}: {error['message']}"[:200]
    except (ValueError, KeyError, TypeError):
        return body[:80].decode(errors="replace")
