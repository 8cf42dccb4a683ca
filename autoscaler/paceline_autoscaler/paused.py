"""The annotation `paceline.dev/pause-until`: until that time nothing is scaled. Pure.

A text that is no time pauses too, since a pause was meant, and the message says how to mend it; its example changes
once an hour, so that the message may stand in a status.
"""

from datetime import UTC, datetime

from paceline_core.clock import rfc3339
from paceline_core.objects.naming import ANNOTATION_PAUSE_UNTIL

HOUR_S = 3600


def why_paused(annotation: str | None, now: float) -> str | None:
    """Why nothing may be scaled at `now` (Unix seconds), or None."""
    if annotation is None:
        return None
    until = _time(annotation)
    if until is None:
        example = rfc3339(datetime.fromtimestamp((now // HOUR_S + 1) * HOUR_S, UTC))
        told = f"annotation {ANNOTATION_PAUSE_UNTIL} is {annotation[:40]!r}, which is no time"
        return f"{told}; write it like {example} or remove it"
    return f"paused until {rfc3339(until)}" if now < until.timestamp() else None


def _time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
