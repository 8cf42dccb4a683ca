"""Lines on their way to a stream: bounded, and written by a thread of their own.

A pipe that nobody reads blocks whoever writes to it, and a log line must never hold an event loop up. What does not fit
is lost and counted. Written past Python's own buffer, whose lock a blocked thread would keep through the process's end.
Hole: lines that wait when a process is killed are lost uncounted; one that ends waits for them, END_S at most.
"""

import os
import select
import threading
from collections import deque
from typing import TextIO

LIMIT = 4 << 20
END_S = 1.0


class BackgroundWriter:
    """Writes to `stream`; one without a file descriptor is written to at once. `limit`: bytes that may wait."""

    def __init__(self, stream: TextIO, limit: int = LIMIT) -> None:
        self._stream = stream
        self._limit = limit
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._size = 0
        self._lost = 0
        self._closed = False
        self._change = threading.Condition()
        self._fd = _descriptor(stream)
        if self._fd is not None:
            threading.Thread(target=self._run, args=(self._fd,), name="log", daemon=True).start()

    @property
    def lost(self) -> int:
        """Lines that did not fit, or could not be written."""
        return self._lost

    def put(self, text: bytes, lines: int = 1) -> None:
        """Write whole lines soon. Never waits for a reader."""
        if self._fd is None:
            self._stream.write(text.decode())
            return
        with self._change:
            if self._closed or self._size + len(text) > self._limit:
                self._lost += lines
                return
            self._waiting.append((text, lines))
            self._size += len(text)
            self._change.notify_all()

    def flush(self, limit_s: float = END_S) -> bool:
        """Wait until all is written; False when that took too long."""
        with self._change:
            return self._change.wait_for(lambda: not self._size, limit_s)

    def close(self, limit_s: float = END_S) -> None:
        """Flush, and take nothing more."""
        self.flush(limit_s)
        with self._change:
            self._closed = True
            self._change.notify_all()

    def _run(self, fd: int) -> None:
        while (first := self._next()) is not None:
            text, lines = first
            written = _write(fd, text)
            with self._change:
                self._size -= len(text)
                self._lost += 0 if written else lines
                self._change.notify_all()

    def _next(self) -> tuple[bytes, int] | None:
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._closed)
            return None if self._closed else self._waiting.popleft()


def _write(fd: int, text: bytes) -> bool:
    rest = memoryview(text)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:  # somebody else made the descriptor non-blocking
            select.select([], [fd], [])
        except OSError:
            return False
    return True


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except OSError:  # io.UnsupportedOperation is one
        return None
