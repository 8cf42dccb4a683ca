"""The attacker: one case at a time, over raw connections, for so many seconds; what it was answered is counted.

HTTP answers are counted by status, WebSocket closes by code. `closed`: the connection ended and nothing had been
answered on it; `unreadable`: what came is no HTTP; `open`: no answer was there when time was over, which says nothing
where a request is never finished.
"""

import asyncio
import contextlib
import os
import resource
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import httptools
import uvloop
from benchmarks.attacks.case import NUMBER, Case, Parts, Port, Reads, written

CONNECT_S, PAUSE_S, MOMENT_S = 3.0, 0.02, 0.005
_ABOVE_ATTACKERS = 5
_CLOSE = 8
_ENDLESS = 1 << 60


@dataclass(frozen=True, slots=True)
class Place:
    """Where the ports are, and the keys and tokens by their names."""

    ports: Mapping[Port, int]
    names: Mapping[str, str]


@dataclass(slots=True)
class Sent:
    """What one case came to."""

    size: int = 0
    opened: int = 0
    answers: Counter[str] = field(default_factory=Counter)

    def json(self) -> dict[str, object]:
        """As it is kept beside the rows."""
        return {"bytes": self.size, "connections": self.opened, "answers": dict(sorted(self.answers.items()))}


class Answers(asyncio.Protocol):
    """One connection's incoming side; `count` answers have come, `over`: it is closed."""

    def __init__(self, case: Case, answers: Counter[str]) -> None:
        self._case, self._answers = case, answers
        self._parser = httptools.HttpResponseParser(self)
        self._frames: bytearray | None = None
        self._writable = asyncio.Event()
        self._changed = asyncio.Event()
        self.count = 0
        self.begun = self.over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready to be written to."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's is one by its methods
        self._writable.set()
        if self._case.reads is Reads.NOTHING:
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        """The victim reads slower than we write."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It has read."""
        self._writable.set()

    def connection_lost(self, _error: Exception | None) -> None:
        """The victim closed it, or we did."""
        if not self.over:
            self._answers["closed" if not self.count else "ended"] += 1
        self.over = True
        self._writable.set()
        self._changed.set()

    def data_received(self, data: bytes) -> None:
        """A piece of an answer."""
        self.begun = True
        self._changed.set()
        if self._frames is not None:
            self._frames += data
            self._read_frames()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._frames = bytearray(data[upgrade.args[0] :])
            self._answer("101")
            self._read_frames()
        except httptools.HttpParserError:
            self._answer("unreadable")
            self.leave()

    def on_message_complete(self) -> None:
        """httptools: an answer is whole."""
        if (status := self._parser.get_status_code()) != 101:
            self._answer(str(status))

    @property
    def upgraded(self) -> bool:
        """It is a WebSocket now."""
        return self._frames is not None

    async def wait(self, until: float, count: int) -> None:
        """Until so many answers have come, or none can come any more."""
        while not self.over and self.count < count and (left := until - time.monotonic()) > 0:
            if self.begun and self._case.reads is Reads.FIRST:
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)

    async def write(self, data: memoryview, until: float) -> None:
        """Once the victim takes it."""
        if not self._writable.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._writable.wait(), max(until - time.monotonic(), 0))
        if self._writable.is_set() and not self.over:
            self.transport.write(bytes(data))

    def leave(self) -> None:
        """Reset it."""
        self.over = True
        sock = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _answer(self, name: str) -> None:
        self._answers[name] += 1
        self.count += 1
        self._changed.set()

    def _read_frames(self) -> None:
        """Frames of a server, which have no mask."""
        frames = self._frames
        while frames is not None and len(frames) > 1:
            size, begin = frames[1] & 127, 2
            if size > 125:
                begin = 4 if size == 126 else 10
                size = int.from_bytes(frames[2:begin], "big")
            if len(frames) < begin + size:
                return
            if frames[0] & 15 == _CLOSE:
                self._answer(f"close {int.from_bytes(frames[begin : begin + 2], 'big')}")
            del frames[: begin + size]


class Attack:
    """One case against one place; `turns`: each connection sends its message so often and no more."""

    def __init__(self, case: Case, place: Place, seconds: float, turns: int | None = None) -> None:
        self._case, self._place, self._turns = case, place, turns
        self._until = time.monotonic() + seconds
        self._numbers = iter(range(10**8))
        self._expected = sum(text.count(b" HTTP/1.1\r\n") * count for text, count in case.opening) or 1
        self._greeting = 1 if case.opening and b"upgrade: websocket" in case.opening[0][0].lower() else None
        pieces = (case.opening[: self._greeting], case.opening[self._greeting or 0 :], case.repeated)
        self._fixed = {part: self._text(part) for part in pieces if not _varies(part)}
        self.sent = Sent()

    async def run(self) -> Sent:
        """Until time or bytes are used up."""
        await asyncio.gather(*(self._connection() for _ in range(self._case.connections)))
        return self.sent

    @property
    def _going(self) -> bool:
        return time.monotonic() < self._until and self.sent.size < self._case.limit

    async def _connection(self) -> None:
        left = _ENDLESS if self._turns is None else self._turns
        while left:
            victim = await self._open()
            if victim is None:
                await asyncio.sleep(PAUSE_S)
            else:
                left -= await self._talk(victim, left)
                if self._turns is None and (not self._case.again or not self._going):
                    await victim.wait(self._until, _ENDLESS)
                if not (victim.over or victim.count):
                    self.sent.answers["open"] += 1
                victim.leave()
            if not self._case.again or not self._going:
                return

    async def _open(self) -> Answers | None:
        loop, port = asyncio.get_running_loop(), self._place.ports[self._case.port]
        victim = Answers(self._case, self.sent.answers)
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.create_connection(lambda: victim, "127.0.0.1", port)
        except (OSError, TimeoutError):
            self.sent.answers["not connected"] += 1
            return None
        self.sent.opened += 1
        return victim

    async def _talk(self, victim: Answers, most: int) -> int:
        """Message after message over one connection; how many."""
        case = self._case
        for turn in range(1, most + 1):
            before = victim.count
            await self._write(victim, case.opening[: self._greeting])
            if self._greeting is not None:  # frames are read only behind the answer to the handshake
                await victim.wait(self._until, before + 1)
                await self._write(victim, case.opening[self._greeting :])
            while case.repeated and self._going and not victim.over:
                await self._write(victim, case.repeated)
            await victim.wait(self._until, _ENDLESS if victim.upgraded else before + self._expected)
            if victim.over or not case.again or case.reads is Reads.FIRST or not self._going:
                return turn
        return most

    async def _write(self, victim: Answers, given: Parts) -> None:
        data = memoryview(self._fixed[given] if given in self._fixed else self._text(given))
        case = self._case
        pause = case.piece * case.connections / case.rate if case.rate else 0.0
        for begin in range(0, len(data), case.piece):
            if victim.over or not self._going:
                return
            piece = data[begin : begin + case.piece]
            await victim.write(piece, self._until)
            self.sent.size += len(piece)
            await asyncio.sleep(min(pause, max(self._until - time.monotonic(), 0)))

    def _text(self, given: Parts) -> bytes:
        return written(given, self._place.names, next(self._numbers))


def _varies(given: Parts) -> bool:
    return any(NUMBER in text for text, _ in given)


def serve(pipe: Connection, core: int, place: Place) -> None:
    """A process of its own: a case, its seconds and its turns come through the pipe, what was sent goes back."""
    os.sched_setaffinity(0, {core})
    os.nice(_ABOVE_ATTACKERS)  # who measures shares the core
    raise_files()
    for case, seconds, turns in _received(pipe):
        pipe.send(uvloop.run(Attack(case, place, seconds, turns).run()))


def raise_files() -> None:
    """Thousands of connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _received(pipe: Connection) -> Iterator[tuple[Case, float, int | None]]:
    while (given := pipe.recv()) is not None:
        yield given
