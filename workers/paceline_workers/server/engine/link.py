"""One engine process and the socket to it: spawn, frames both ways, end.

The child inherits one end of a socketpair and ends itself when that end reads EOF, so it cannot outlive this process.
Malformed data from the child closes the link, and a closed link means a dead engine: the link never recovers.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

import msgspec

from paceline_core.errors import PacelineError
from paceline_core.telemetry import get_logger
from paceline_workers.messages import FrameReader, FromEngine, Shutdown, ToEngine, frame, from_engine

_log = get_logger(__name__)
END_GRACE_S = 2.0
_USER_TIME = 11
"""The index of `utime` after the command's name in /proc/<pid>/stat, as in proc(5); `stime` follows."""
Receive = Callable[[FromEngine], None]


class EngineLink(asyncio.Protocol):
    """Frames over one connected socket. `lost` resolves when the peer is gone, for any reason."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """asyncio calls this: decode every whole frame and pass it on."""
        try:
            for body in self._reader.feed(data):
                self._receive(from_engine.decode(body))
        except (ValueError, msgspec.DecodeError) as error:
            _log.error("the engine sent a malformed frame", extra={"reason": str(error)})
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the name is asyncio's
        """asyncio calls this on EOF, reset or abort."""
        if not self.lost.done():
            self.lost.set_result(None)

    def send(self, message: ToEngine) -> None:
        """Queue one frame; drops it silently on a dead link, whose requests get their error anyway."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(message))

    def close(self) -> None:
        """Write the queued frames, then send EOF."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class EngineHandle(Protocol):
    """A running engine, as its supervisor sees it."""

    @property
    def pid(self) -> int:
        """The process id, for logs."""

    def cpu_seconds(self) -> float | None:
        """CPU time that it has used; None if that is unknown."""

    def send(self, message: ToEngine) -> None:
        """Queue one message to it."""

    def kill(self) -> None:
        """End it at once; `ended` returns soon after."""

    async def ended(self) -> int:
        """Wait until it has ended; returns its exit status (negative: the signal)."""

    async def stop(self) -> None:
        """Send a shutdown message, wait a moment, then kill it."""


Launch = Callable[[Receive], Awaitable[EngineHandle]]


class EngineProcess:
    """A spawned engine behind an EngineLink."""

    def __init__(self, process: asyncio.subprocess.Process, link: EngineLink) -> None:
        self._process = process
        self._link = link
        self.pid = process.pid
        self.send = link.send

    @classmethod
    async def spawn(cls, argv: Sequence[str], receive: Receive) -> "EngineProcess":
        """Run `argv --fd N`, where N is its end of a fresh socketpair. Raises PacelineError if that is impossible."""
        ours, theirs = socket.socketpair()
        with theirs:
            end = theirs.fileno()
            try:
                process = await asyncio.create_subprocess_exec(
                    *argv, "--fd", str(end), stdin=asyncio.subprocess.DEVNULL, pass_fds=(end,)
                )
            except BaseException as error:
                ours.close()
                if isinstance(error, OSError):
                    raise PacelineError(f"the engine process cannot be started: {error}") from None
                raise
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: EngineLink(receive), sock=ours)
        return cls(process, link)

    def cpu_seconds(self) -> float | None:
        """User and system time of all its threads, on Linux."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b") ")[2].split()
            return (int(fields[_USER_TIME]) + int(fields[_USER_TIME + 1])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return None

    def kill(self) -> None:
        """SIGKILL: a hung process reacts to nothing else."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._link.abort()

    async def ended(self) -> int:
        """Wait until the link is lost, then until the process is reaped."""
        await asyncio.shield(self._link.lost)
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        return await self._process.wait()

    async def stop(self) -> None:
        """Send a shutdown frame and EOF, wait a moment, then SIGKILL."""
        self.send(Shutdown())
        self._link.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_GRACE_S):
                await self._process.wait()
        self.kill()
        await self._process.wait()
