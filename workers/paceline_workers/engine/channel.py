"""The engine's end of the socket: receives and sends frames without ever blocking a step. One thread, no locks.

A Shutdown from the peer means the same as its end of file: PeerGone, at the next read.

Frames that cannot be written yet wait in an outbox. When it exceeds OUTBOX_LIMIT bytes, the channel is `full` and the
loop computes nothing more until the API process reads; if it reads no byte for PATIENCE seconds, it counts as gone.
"""

import select
import socket

import msgspec

from paceline_core.errors import PacelineError
from paceline_workers.engine.timer import Timer
from paceline_workers.messages import Abort, FrameReader, FromEngine, Shutdown, Submit, frame, to_engine

OUTBOX_LIMIT = 8 << 20
PATIENCE = 30.0
_READ = 1 << 18


class PeerGone(PacelineError):
    """The API process sent Shutdown, closed its end, sent malformed frames or does not read."""


class Channel:
    """Frames over one connected stream socket, which it makes non-blocking."""

    def __init__(self, sock: socket.socket, timer: Timer) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._timer = timer
        self._reader = FrameReader()
        self._inbox: list[Submit | Abort] = []
        self._outbox = bytearray()
        self._taken_at = timer.now()

    @property
    def full(self) -> bool:
        """The peer lags so far that the engine should produce nothing more for it."""
        return len(self._outbox) > OUTBOX_LIMIT

    def receive(self, timeout: float) -> list[Submit | Abort]:
        """All available messages; waits at most `timeout` seconds for the first. Raises PeerGone."""
        self.wait(0.0 if self._inbox else timeout)
        messages, self._inbox = self._inbox, []
        return messages

    def wait(self, timeout: float) -> None:
        """Transfer bytes in both directions until some were, for at most `timeout` seconds; keeps the messages."""
        writers = [self._socket] if self._outbox else []
        readable, writable, _ = select.select([self._socket], writers, [], max(timeout, 0.0))
        if readable:
            self._read()
        if writable:
            self.flush()

    def send(self, *messages: FromEngine) -> None:
        """Queue messages; `flush` writes them."""
        for message in messages:
            if not self._outbox:
                self._taken_at = self._timer.now()
            self._outbox += frame(message)

    def flush(self) -> None:
        """Write as much as the socket accepts now. Raises PeerGone."""
        try:
            while self._outbox and (count := self._socket.send(self._outbox)):
                del self._outbox[:count]
                self._taken_at = self._timer.now()
        except BlockingIOError:
            if self._timer.now() - self._taken_at > PATIENCE:
                raise PeerGone(f"the API process has read nothing for {PATIENCE:.0f} s") from None
        except OSError as error:
            raise PeerGone(f"the API process is gone: {error.strerror}") from None

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError as error:
            raise PeerGone(f"the API process is gone: {error.strerror}") from None
        if not data:
            raise PeerGone("the API process has closed the connection")
        try:
            for body in self._reader.feed(data):
                message = to_engine.decode(body)
                if isinstance(message, Shutdown):
                    raise PeerGone("the API process asked for the end")
                self._inbox.append(message)
        except (ValueError, msgspec.DecodeError) as error:
            raise PeerGone(f"the API process sent a malformed frame: {error}") from None
