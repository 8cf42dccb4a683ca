"""The autoscaler's decisions and a service's Events as lines, oldest first."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from paceline_core.clock import rfc3339
from paceline_core.units import counted


def told(entry: Mapping[str, Any]) -> Iterator[str]:
    """One decision: when, which way, why in one sentence; below it what bound it and what was rejected."""
    decision = entry["decision"]
    moment = rfc3339(datetime.fromtimestamp(entry["observation"]["now"], UTC))
    yield f"{moment}  {decision['direction']:<4}  {decision['reason']}: {decision['sentence']}"
    if decision["limit"] != "none":
        yield f"    bound by {decision['limit']}"
    if decision["gaps"]:
        yield f"    missing: {', '.join(decision['gaps'])}"
    yield from (f"    not {rejected}" for rejected in decision["rejected"])
    if entry["held"]:
        yield f"    before it, {counted(entry['held'], 'pass', 'passes')} decided the same as the one above"


def last(scaling: Mapping[str, Any]) -> Iterator[str]:
    """What `status.scaling` keeps: the last decision alone."""
    if scaling.get("decision"):
        bound = "" if scaling.get("limit", "none") in ("", "none") else f" (bound by {scaling['limit']})"
        yield f"{scaling.get('time', '')}  {scaling.get('reason', '')}: {scaling['decision']}{bound}".strip()


def event_line(event: Mapping[str, Any]) -> str:
    """`2026-01-31T12:00:00Z  Scaled: 1 -> 2 ...`, and how often it was said."""
    count = event.get("count") or (event.get("series") or {}).get("count") or 1
    often = f" (x{count})" if count > 1 else ""
    return f"{event_time(event)}  {event.get('reason', '')}: {event.get('message', '')}{often}"


def event_time(event: Mapping[str, Any]) -> str:
    """When it was said last, by whichever of its fields the writer used."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(time) for time in times if time), event["metadata"].get("creationTimestamp") or "")
