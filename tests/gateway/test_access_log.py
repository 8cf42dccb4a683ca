import io
import json
from datetime import UTC, datetime
from typing import Any

from paceline_core.auth import key_id, new_key
from paceline_core.errors import Code, RequestError
from paceline_core.registry import Outcome, RequestClass
from paceline_core.telemetry import BackgroundWriter
from paceline_gateway.api.admission import sent_key_id
from paceline_gateway.request.types import RequestRecord, RequestTerms, TokenUsage
from paceline_gateway.telemetry.access_log import FLUSH_LINES, AccessLog

NOON = datetime(2026, 1, 2, 12, 0, 0, 5000, tzinfo=UTC)
RECORD = RequestRecord(
    outcome=Outcome.STREAM_ERROR, status=200, code=Code.STREAM_LOST, tenant="team",
    terms=RequestTerms("default/chat", RequestClass.BATCH, True, 10, 30.0, 2),
    received=10.0, queued=10.0, sent=10.5, first=11.0, ended=12.0, attempts=1, worker="w0",
    meter=TokenUsage(prompt=7, cached=2, output=3),
)  # fmt: skip


def written(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_request_is_one_line_in_the_form_of_all_logs() -> None:
    stream = io.StringIO()
    log = AccessLog(BackgroundWriter(stream), lambda: NOON)
    log.ended(RECORD, b"id-1", "/v1/completions")
    log.flush()
    assert written(stream) == [
        {
            "time": "2026-01-02T12:00:00.005000Z", "level": "info", "component": "gateway", "logger": "access",
            "message": "request", "request_id": "id-1", "path": "/v1/completions", "tenant": "team",
            "service": "default/chat", "class": "batch", "stream": True, "status": 200, "outcome": "stream_error",
            "code": "stream_lost", "e2e": 2.0, "ttft": 1.0, "wait": 0.5, "attempts": 1, "resumed": 0, "diverted": 0,
            "worker": "w0", "input": 7, "output": 3, "cached": 2,
        }
    ]  # fmt: skip


def test_a_traced_request_names_its_trace() -> None:
    stream = io.StringIO()
    log = AccessLog(BackgroundWriter(stream), lambda: NOON)
    log.ended(RECORD, b"id-1", "/v1/completions", 0xABC)
    log.ended(RECORD, b"id-2", "/v1/completions")
    log.flush()
    assert [line.get("trace") for line in written(stream)] == [f"{0xABC:032x}", None]


def test_a_refusal_is_logged_too() -> None:
    stream = io.StringIO()
    log = AccessLog(BackgroundWriter(stream), lambda: NOON)
    log.refused(RequestError(Code.INVALID_API_KEY, "The API key is not valid."), b"id-2", "/v1/completions")
    log.flush()
    (line,) = written(stream)
    assert (line["status"], line["outcome"], line["code"]) == (401, "client_error", "invalid_api_key")


def test_a_refused_key_is_known_by_its_id_alone() -> None:
    stream = io.StringIO()
    log = AccessLog(BackgroundWriter(stream), lambda: NOON)
    _, key = new_key("team")
    for sent in (f"Bearer {key}", f"Bearer {key}x", "Bearer pl_\nabc", "Basic abc", ""):
        error = RequestError(Code.INVALID_API_KEY, "The API key is not valid.")
        log.refused(error, b"id-2", "/v1/models", sent_key_id({b"authorization": sent.encode()}))
    log.flush()
    assert [line.get("key_id") for line in written(stream)] == [key_id(key), None, None, None, None]
    assert key.rpartition("_")[2] not in stream.getvalue()


def test_lines_are_gathered_but_not_without_end() -> None:
    stream = io.StringIO()
    log = AccessLog(BackgroundWriter(stream), lambda: NOON)
    for _ in range(FLUSH_LINES - 1):
        log.ended(RECORD, b"x", "/")
    assert stream.getvalue() == ""
    log.ended(RECORD, b"x", "/")
    assert len(written(stream)) == FLUSH_LINES


def test_without_an_outlet_nothing_is_buffered() -> None:
    log = AccessLog(None, lambda: NOON)
    log.ended(RECORD, b"x", "/")
    log.refused(RequestError(Code.INVALID_JSON, "no"), b"x", "/")
    log.flush()


def test_a_long_path_goes_into_the_log_by_its_beginning() -> None:
    stream = io.StringIO()
    log = AccessLog(BackgroundWriter(stream), lambda: NOON)
    log.refused(RequestError(Code.ROUTE_NOT_FOUND, "no"), b"id-3", "/" + "a" * 31_000)
    log.flush()
    (line,) = written(stream)
    assert line["path"] == "/" + "a" * 255 + "... (31001 characters)"
