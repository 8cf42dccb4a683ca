"""The access log: one JSON line a request, without prompts, answers or keys; in the format of all other log lines.

Lines are collected and written a few times a second: the logging module would cost more than routing the request.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import orjson

from paceline_core.errors import RequestError
from paceline_core.telemetry import BackgroundWriter
from paceline_gateway.request.types import RequestRecord

FLUSH_LINES = 256
PATH_LONGEST = 256
"""Characters of a path in a line; a longer path is cut."""


class AccessLog:
    """Fills `outlet` when `flush` is called, or when many lines wait. Without an outlet it keeps nothing."""

    def __init__(self, outlet: BackgroundWriter | None, utc: Callable[[], datetime]) -> None:
        self._outlet = outlet
        self._utc = utc
        self._lines: list[bytes] = []

    def ended(self, record: RequestRecord, request_id: bytes, path: str, trace_id: int = 0, charged: int = 0) -> None:
        """Log one request; `trace_id`: of its trace, if traced; `charged`: the input tokens it was charged for."""
        if self._outlet is None:
            return
        terms, meter = record.terms, record.meter
        asked = (
            {} if terms is None else {"service": terms.service, "class": terms.request_class, "stream": terms.stream}
        )
        line = {
            **self._start(request_id, path),
            "tenant": record.tenant,
            **asked,
            "status": record.status,
            "outcome": record.outcome,
            "code": record.code or "",
            "e2e": record.e2e,
            "ttft": record.ttft,
            "wait": record.waited,
            "attempts": record.attempts,
            "resumed": record.resumed,
            "diverted": record.diverted,
            "worker": record.worker,
            "input": meter.prompt or charged,
            "output": meter.output,
            "cached": meter.cached,
        }
        if terms is not None and terms.degraded:
            line["degraded"] = terms.degraded
        if trace_id:
            line["trace"] = f"{trace_id:032x}"
        self._note(line)

    def refused(self, error: RequestError, request_id: bytes, path: str, key_id: str | None = None) -> None:
        """Log a request that was refused when only the id of its key was known."""
        if self._outlet is not None:
            end = {"status": error.row.status, "outcome": error.row.outcome, "code": error.code}
            key = {} if key_id is None else {"key_id": key_id}
            self._note(self._start(request_id, path) | end | key)

    def _start(self, request_id: bytes, path: str) -> dict[str, Any]:
        return {
            "time": self._utc(),
            "level": "info",
            "component": "gateway",
            "logger": "access",
            "message": "request",
            "request_id": request_id.decode("latin-1"),
            "path": path if len(path) <= PATH_LONGEST else f"{path[:PATH_LONGEST]}... ({len(path)} characters)",
        }

    def _note(self, line: dict[str, Any]) -> None:
        self._lines.append(orjson.dumps(line, option=orjson.OPT_UTC_Z))
        if len(self._lines) >= FLUSH_LINES:
            self.flush()

    def flush(self) -> None:
        if self._lines and self._outlet is not None:
            self._outlet.put(b"\n".join(self._lines) + b"\n", len(self._lines))
            self._lines.clear()
