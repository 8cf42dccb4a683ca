"""Structured logs: one JSON object a line on standard error. Prompts, keys and secrets never get here.

A line never waits for whoever reads them (`outlet`).

Fields are given as `extra={...}`; a value under a forbidden name is replaced, and anything that looks like an API key
is masked wherever it stands: the last line of defence, not the first.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from paceline_core.telemetry.outlet import BackgroundWriter

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
_FORBIDDEN = frozenset({"prompt", "messages", "content", "authorization", "key", "secret", "token", "api_key"})
_FLOORS = dict.fromkeys(("aiohttp", "asyncio", "httpcore", "urllib3", "uvicorn"), logging.INFO) | dict.fromkeys(
    ("httpx", "kopf"), logging.WARNING
)
"""What others' loggers must at least be worth: httpx tells of each request at INFO, kopf of each event."""
_KEY = re.compile(r"pl_[a-z2-7]{8}_[a-z2-7]{4,}")


class JsonFormatter(logging.Formatter):
    """Time (RFC 3339 UTC), level, logger, message, then the extra fields."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        """One line; an exception becomes its text in `error`, its trace in `trace` at debug level only."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "component": self._component,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: _safe(name, value) for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
            if logging.getLogger().isEnabledFor(logging.DEBUG):
                line["trace"] = self.formatException(record.exc_info)
        return _KEY.sub("pl_***", json.dumps(line, default=str, ensure_ascii=False))


def _safe(name: str, value: Any) -> Any:
    return "***" if name.lower() in _FORBIDDEN else value


class OutletHandler(logging.Handler):
    """Puts lines into an outlet. The first line after some were lost says how many: `lost_lines`."""

    def __init__(self, outlet: BackgroundWriter) -> None:
        super().__init__()
        self._outlet = outlet
        self._told = 0

    def emit(self, record: logging.LogRecord) -> None:
        """logging: one line."""
        lost, self._told = self._outlet.lost - self._told, self._outlet.lost
        if lost:
            record.lost_lines = lost
        try:
            self._outlet.put(f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except Exception:  # noqa: BLE001 - logging's own way: a line that cannot be made must not stop who logs it
            self.handleError(record)

    def close(self) -> None:
        """logging: no more lines; also called at the process's end."""
        self._outlet.close()
        super().close()


def configure(component: str, level: str = "INFO", stream: TextIO | None = None) -> BackgroundWriter:
    """Send every logger's lines to `stream` (standard error) in this format; DEBUG is for our own loggers alone.

    Returns where they go, for what is written there past the loggers.
    """
    outlet = BackgroundWriter(stream or sys.stderr)
    handler = OutletHandler(outlet)
    handler.setFormatter(JsonFormatter(component))
    logging.basicConfig(handlers=[handler], force=True)
    set_level(level)
    return outlet


def set_level(level: str) -> None:
    """What is logged from now on: `debug`, `info`, `warning` or `error`, in any case of letters."""
    logging.getLogger().setLevel(level.upper())
    for name, floor in _FLOORS.items():
        logging.getLogger(name).setLevel(max(floor, logging.getLogger().level))


def log_level() -> str:
    """The level now, in small letters."""
    return logging.getLevelName(logging.getLogger().level).lower()


def get_logger(name: str) -> logging.Logger:
    """The logger of a module."""
    return logging.getLogger(name)
