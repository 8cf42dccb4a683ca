"""Until when the scaling of a service is paused, checked before it is written. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Final

from paceline_core.clock import rfc3339
from paceline_core.errors import InvalidInput
from paceline_core.units import seconds

LONGEST: Final = timedelta(days=30)
REASON_LIMIT: Final = 256


def until(duration: str, moment: str, now: datetime) -> str:
    """The annotation's text, from exactly one of a duration and a time with its zone; raises InvalidInput."""
    if bool(duration) == bool(moment):
        raise InvalidInput("--for", "give either --for, like --for 2h, or --until, like --until 2026-01-31T18:00:00Z")
    option = "--for" if duration else "--until"
    end = _after(duration, now) if duration else _moment(moment)
    if end <= now:
        raise InvalidInput(option, f"{duration or moment!r} is not in the future")
    if end - now > LONGEST:
        raise InvalidInput(option, f"a pause ends within {LONGEST.days} days; set policy fixed for what should stay")
    return rfc3339(end)


def checked_reason(reason: str) -> str:
    """One line of at most 256 characters; raises InvalidInput."""
    said = " ".join(reason.split())
    if len(said) > REASON_LIMIT:
        raise InvalidInput("--reason", f"has {len(said)} characters; keep it to {REASON_LIMIT}")
    return said


def _after(duration: str, now: datetime) -> datetime:
    try:
        return now + timedelta(seconds=seconds(duration))
    except (ValueError, OverflowError):
        raise InvalidInput("--for", f"{duration!r} is not a duration; write it like 30m, 2h or 3d") from None


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput("--until", f"{text!r} is no time; write it like 2026-01-31T18:00:00Z") from None
    if moment.tzinfo is None:
        raise InvalidInput("--until", f"{text!r} has no time zone; write {text}Z for UTC, or {text}+01:00")
    return moment.astimezone(UTC)
