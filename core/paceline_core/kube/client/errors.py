"""Converts an API server's answer to an exception: the one place that reads statuses.

The server's own message stays whole, since it names what a person must fix: the manager that owns a field, the verb and
resource of a missing permission, the invalid field.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from paceline_core.clock import Clock
from paceline_core.errors import ApiError, Conflict, Forbidden, NotFound, PacelineError, Unauthorized, Unreachable

WORDS_LIMIT: Final = 2000
RETRY_LIMIT_S: Final = 300.0


def api_error(status: int, body: bytes, headers: Mapping[str, str], request: str) -> PacelineError:
    """The error for an answer of 300 or more; `request` is `PATCH /path`, the text when the server sends none."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    status_object: Mapping[str, Any] = found if isinstance(found, dict) and found.get("kind") == "Status" else {}
    details = status_object.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    # an apply guarded by a uid met a newer object of that name: the server calls it an invalid change of the uid
    invalid = status_object.get("code") == 422
    other_uid = invalid and any(cause.get("field") == "metadata.uid" for cause in causes or ())
    text = " ".join(body[:WORDS_LIMIT].decode(errors="replace").split())[:200]
    message = str(status_object.get("message") or "") or f"{request}: {status} {text}".rstrip()
    reason = str(status_object.get("reason") or "")
    if status == 404:
        return NotFound(message)
    if status == 409 or other_uid:
        return Conflict(message)
    if status == 403:
        return Forbidden(status, reason or "Forbidden", message)
    if status == 401:
        return Unauthorized(f"the API server does not accept our credentials: {message}")
    if 400 <= status < 500:
        return ApiError(status, reason, message, retry_after(status_object, headers))
    return Unreachable(f"the API server answered {status}: {message}")


def retry_after(status_object: Mapping[str, Any], headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from the header or the Status object's details; None when neither has a number."""
    details = status_object.get("details")
    for value in (headers.get("Retry-After"), details.get("retryAfterSeconds") if isinstance(details, dict) else None):
        try:
            return min(max(float(value), 0.0), RETRY_LIMIT_S)  # type: ignore[arg-type]  # None and dates raise
        except (TypeError, ValueError):
            continue
    return None


GAP_S: Final = 1.0
CAUSES: Final = 64


class LogLimiter:
    """`admit(cause)` returns how many lines of this cause were left out before this one, or None to leave it out too.

    Causes come from a closed set in the code; beyond `CAUSES` of them the oldest is forgotten.
    """

    def __init__(self, clock: Clock, gap_s: float = GAP_S) -> None:
        self._clock = clock
        self._gap_s = gap_s
        self._seen: dict[str, tuple[float, int]] = {}

    def admit(self, cause: str) -> int | None:
        now = self._clock.monotonic()
        last, left_out = self._seen.get(cause, (-self._gap_s, 0))
        if now - last < self._gap_s:
            self._seen[cause] = (last, left_out + 1)
            return None
        self._seen[cause] = (now, 0)
        if len(self._seen) > CAUSES:
            self._seen.pop(next(iter(self._seen)))
        return left_out
