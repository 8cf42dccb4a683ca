"""The load client: raw uvloop and httptools, every answer checked against its script, no error is overlooked.

A connection carries one request at a time and is kept. Closed loop: so many connections, each asks again as soon as it
has its answer. Open loop: requests begin at their moments whatever has become of those before, on free or new
connections.
"""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import httptools
from benchmarks.gateway.script import Script

LIMIT_S = 120.0
SAMPLES = 3


@dataclass(frozen=True, slots=True)
class Target:
    """Where a load goes: `ports` are taken in turn by new connections; `key` is whose."""

    name: str
    ports: tuple[int, ...]
    key: str = "none"

    def requests(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Whole requests with these bodies."""
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        head += f"authorization: Bearer {self.key}\r\n"
        return [f"{head}content-length: {len(body)}\r\n\r\n".encode() + body for body in bodies]


@dataclass(slots=True)
class Tally:
    """What became of a load: seconds in all, and of each good request to its first content and to its end.

    `statuses` are those of all requests; 0 where no answer was whole.
    """

    seconds: float = 0.0
    first_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)
    errors: int = 0
    complaints: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    def fail(self, complaint: str) -> None:
        """One request went wrong."""
        self.errors += 1
        if len(self.complaints) < SAMPLES:
            self.complaints.append(complaint)

    @property
    def done(self) -> int:
        """Good answers."""
        return len(self.whole_s)


class Connection(asyncio.Protocol):
    """One connection; `ask` again when its answer is there."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._answer: asyncio.Future[str | None] | None = None
        self.first = self.end = 0.0
        self.status = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready."""
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Whoever waits is told."""
        self._finish(f"connection lost: {error!r}")

    def data_received(self, data: bytes) -> None:
        """A piece of the answer."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._finish(f"no HTTP: {error!r}")
            self.transport.abort()

    def on_body(self, body: bytes) -> None:
        """Content."""
        if not self._body:
            self.first = time.perf_counter()
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        self.end = time.perf_counter()
        self.status = self._parser.get_status_code()
        self._finish(self._script.complaint(self.status, b"".join(self._body)))

    def ask(self, request: bytes) -> "asyncio.Future[str | None]":
        """Send; the result is what was wrong, None if nothing."""
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._answer = asyncio.get_running_loop().create_future()
        self.status = 0
        self.begin = time.perf_counter()
        self.transport.write(request)
        return self._answer

    def _finish(self, complaint: str | None) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(complaint)


class Load:
    """Requests of one script to one target, their bodies taken in turn."""

    def __init__(self, target: Target, script: Script, bodies: Sequence[bytes]) -> None:
        self._ports = itertools.cycle(target.ports)
        self._script = script
        self._requests = itertools.cycle(target.requests(bodies))
        self.tally = Tally()

    async def closed(self, connections: int, count: int) -> Tally:
        """So many requests over so many connections."""
        left = iter(range(count))
        opened = [await self._open() for _ in range(connections)]
        begin = time.perf_counter()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*(self._repeat(connection, left) for connection in opened))
        self.tally.seconds = time.perf_counter() - begin
        return self.tally

    async def open(self, moments: Sequence[float]) -> Tally:
        """Requests at these seconds from now."""
        begin, free, tasks = time.perf_counter(), list[Connection](), list[asyncio.Task[None]]()
        async with asyncio.timeout(LIMIT_S):
            for moment in moments:
                await asyncio.sleep(begin + moment - time.perf_counter())
                tasks.append(asyncio.create_task(self._once(free)))
            await asyncio.gather(*tasks)
        self.tally.seconds = time.perf_counter() - begin
        for connection in free:
            connection.transport.close()
        return self.tally

    async def kept(self, streams: int, seconds: float, ramp_s: float) -> Tally:
        """So many requests under way for so long; they begin spread over `ramp_s`, and each is followed by another."""
        begin = time.perf_counter()
        left = itertools.takewhile(lambda _: time.perf_counter() - begin < seconds, itertools.count())
        async with asyncio.timeout(seconds + ramp_s + LIMIT_S):
            await asyncio.gather(*(self._later(ramp_s * number / streams, left) for number in range(streams)))
        self.tally.seconds = time.perf_counter() - begin
        return self.tally

    async def _later(self, delay_s: float, left: Iterator[int]) -> None:
        await asyncio.sleep(delay_s)
        await self._repeat(await self._open(), left)

    async def _once(self, free: list[Connection]) -> None:
        connection = free.pop() if free else await self._open()
        if connection.transport.is_closing():
            connection = await self._open()
        await self._ask(connection)
        free.append(connection)

    async def _repeat(self, connection: Connection, left: Iterator[int]) -> None:
        for _ in left:
            if connection.transport.is_closing():
                connection = await self._open()
            await self._ask(connection)
        connection.transport.close()

    async def _ask(self, connection: Connection) -> None:
        complaint = await connection.ask(next(self._requests))
        self.tally.statuses[connection.status] += 1
        if complaint is not None:
            self.tally.fail(complaint)
            connection.transport.abort()
            return
        self.tally.first_s.append(connection.first - connection.begin)
        self.tally.whole_s.append(connection.end - connection.begin)

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Connection(self._script), "127.0.0.1", next(self._ports))
        return connection
