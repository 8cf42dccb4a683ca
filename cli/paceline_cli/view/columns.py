"""The columns of `kubectl get pisvc`, made here from the same rows of the CRD, so that both always say the same."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from paceline_core.objects import InferenceService
from paceline_core.objects.crd import crd


@cache
def header() -> tuple[str, ...]:
    """NAMESPACE, NAME, then MODEL SERVED READY DESIRED SLO BURN REASON COST/H AGE."""
    return ("NAMESPACE", "NAME", *(title.upper() for title, _, _ in _columns()))


def cells(document: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    """One InferenceService under that header."""
    metadata = document["metadata"]
    found = ((type_, _at(document, path)) for _, type_, path in _columns())
    return (metadata["namespace"], metadata["name"], *(_cell(type_, value, now) for type_, value in found))


def age(since: str | None, now: datetime) -> str:
    """`45s`, `12m`, `5h`, `3d`; empty when there is no time."""
    if not since:
        return ""
    passed = max(0, int((now - datetime.fromisoformat(since)).total_seconds()))
    for size, unit, enough in ((86400, "d", 2), (3600, "h", 2), (60, "m", 2)):
        if passed >= size * enough:
            return f"{passed // size}{unit}"
    return f"{passed}s"


@cache
def _columns() -> tuple[tuple[str, str, str], ...]:
    (version,) = crd(InferenceService)["spec"]["versions"]
    shown = (column for column in version["additionalPrinterColumns"] if not column.get("priority"))
    return tuple((column["name"], column["type"], column["jsonPath"]) for column in shown)


def _at(document: Any, path: str) -> Any:
    for step in path.removeprefix(".").split("."):
        document = document.get(step) if isinstance(document, Mapping) else None
    return document


def _cell(type_: str, value: Any, now: datetime) -> str:
    if value is None:
        return ""
    return age(str(value), now) if type_ == "date" else str(value)
