"""Structured logs: one JSON object a line on standard error. They contain no prompts, keys or secrets.

Fields are given as `extra={...}`; a value under a forbidden name is replaced, and any text that looks like an API key
is masked: the last line of defence, not the first. A lasting fault (`FaultLog`) is logged when it begins or changes and
when it ends, not in between.

A pipe without a reader blocks its writer, and a log line must never block an event loop, so a thread writes the lines
(`BackgroundWriter`); those that do not fit are lost and counted. It bypasses Python's own buffer, whose lock a blocked
thread would hold when the process ends.
Known hole: lines that wait when a process is killed are lost uncounted; a normal end waits for them, END_S at most.
"""

import json
import logging
import os
import re
import select
import sys
import threading
from collections import deque
from datetime import UTC, datetime
from typing import Any, TextIO


class FaultLog:
    """`standing` holds the current faults, by subject, with their reasons."""

    def __init__(self, log: logging.Logger) -> None:
        self.standing: dict[str, str] = {}
        self._log = log

    def begin(self, subject: str, reason: str, **more: str) -> bool:
        if self.standing.get(subject) == reason:
            return False
        self.standing[subject] = reason
        self._log.warning("%s", subject, extra={"reason": reason, **more})
        return True

    def end(self, subject: str) -> None:
        if self.standing.pop(subject, None) is not None:
            self._log.info("no longer: %s", subject)


LIMIT = 4 << 20
END_S = 1.0


class BackgroundWriter:
    """Writes to `stream`, directly if it has no file descriptor. `limit`: bytes that may wait."""

    def __init__(self, stream: TextIO, limit: int = LIMIT) -> None:
        self._stream = stream
        self._limit = limit
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._size = 0
        self.lost = 0
        self._closed = False
        self._change = threading.Condition()
        try:
            self._fd: int | None = stream.fileno()
        except OSError:  # includes io.UnsupportedOperation
            self._fd = None
        if self._fd is not None:
            threading.Thread(target=self._run, args=(self._fd,), name="log", daemon=True).start()

    def put(self, text: bytes, lines: int = 1) -> None:
        """Write whole lines soon. Never waits for a reader."""
        if self._fd is None:
            self._stream.write(text.decode())
            return
        with self._change:
            if self._closed or self._size + len(text) > self._limit:
                self.lost += lines
                return
            self._waiting.append((text, lines))
            self._size += len(text)
            self._change.notify_all()

    def flush(self, limit_s: float = END_S) -> bool:
        with self._change:
            return self._change.wait_for(lambda: not self._size, limit_s)

    def close(self, limit_s: float = END_S) -> None:
        self.flush(limit_s)
        with self._change:
            self._closed = True
            self._change.notify_all()

    def _run(self, fd: int) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                text, lines = self._waiting.popleft()
            written = _write(fd, text)
            with self._change:
                self._size -= len(text)
                self.lost += 0 if written else lines
                self._change.notify_all()


def _write(fd: int, text: bytes) -> bool:
    rest = memoryview(text)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:  # another process made the descriptor non-blocking
            select.select([], [fd], [])
        except OSError:
            return False
    return True


_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
_FORBIDDEN = frozenset({"prompt", "messages", "content", "authorization", "key", "secret", "token", "api_key"})
_MIN_LEVELS = dict.fromkeys(("aiohttp", "asyncio", "httpcore", "urllib3", "uvicorn"), logging.INFO) | {
    "httpx": logging.WARNING,
    "kopf": logging.ERROR,
}
"""The lowest levels of other libraries: httpx logs each request at INFO, kopf warns of its handlers' cancellation."""
_KEY = re.compile(r"pl_[a-z2-7]{8}_[a-z2-7]{4,}")


class JsonFormatter(logging.Formatter):
    """Time (RFC 3339 UTC), level, logger, message, then the extra fields."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "component": self._component,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        line |= {name: "***" if name.lower() in _FORBIDDEN else value for name, value in fields.items()}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
            if logging.getLogger().isEnabledFor(logging.DEBUG):
                line["trace"] = self.formatException(record.exc_info)
        return _KEY.sub("pl_***", json.dumps(line, default=str, ensure_ascii=False))


class OutletHandler(logging.Handler):
    """Puts lines into an outlet. The first line after lost ones says how many: `lost_lines`."""

    def __init__(self, outlet: BackgroundWriter) -> None:
        super().__init__()
        self._outlet = outlet
        self._reported = 0

    def emit(self, record: logging.LogRecord) -> None:
        lost, self._reported = self._outlet.lost - self._reported, self._outlet.lost
        if lost:
            record.lost_lines = lost
        try:
            self._outlet.put(f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except Exception:  # noqa: BLE001 - as in logging: a line that cannot be made must not fail its caller
            self.handleError(record)

    def close(self) -> None:
        self._outlet.close()
        super().close()


def configure(component: str, level: str = "INFO", stream: TextIO | None = None) -> BackgroundWriter:
    """Send every logger's lines to `stream` (standard error) in this format; DEBUG is only for our own loggers.

    Returns the writer, for lines that bypass the loggers.
    """
    outlet = BackgroundWriter(stream or sys.stderr)
    handler = OutletHandler(outlet)
    handler.setFormatter(JsonFormatter(component))
    logging.basicConfig(handlers=[handler], force=True)
    set_level(level)
    return outlet


def set_level(level: str) -> None:
    """Set the level from now on: `debug`, `info`, `warning` or `error`, in upper or lower case."""
    logging.getLogger().setLevel(level.upper())
    for name, minimum in _MIN_LEVELS.items():
        logging.getLogger(name).setLevel(max(minimum, logging.getLogger().level))


def log_level() -> str:
    return logging.getLevelName(logging.getLogger().level).lower()


def get_logger(name: str) -> logging.Logger:
    return logging.getLogger(name)
