"""A Tenant's `status.usage` as entries, and entries as `status.usage`.

Entries of the status's month are named by their gateway, those of the month before `<gateway>@<month>`, so that the
last month can be read whole until this one ends; older ones are dropped. An entry that has not grown for `FOLD_S` is
folded into `settled`, whether its gateway is gone or idle: writers add to what is there, so that nobody minds. Beyond
`MAX_ENTRIES` entries the oldest are folded sooner. Invariant: for both months folding changes no sum.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from paceline_core.clock import rfc3339
from paceline_core.objects.tenant import MonthlyUsage, Usage
from paceline_core.units import dollars
from paceline_gateway.usage.types import NOTHING, SETTLED, ZERO, UsageAmount, UsageEntry, before, month_of

FOLD_S: Final = 3600.0
MAX_ENTRIES: Final = 128
NEVER: Final = "1970-01-01T00:00:00Z"
Key = tuple[str, str]


def read_usage(usage: MonthlyUsage) -> tuple[UsageEntry, ...]:
    """What a status says."""
    return tuple(_read(item, usage.month or "") for item in usage.gateways)


def status_of(entries: Iterable[UsageEntry], month: str) -> dict[str, Any]:
    """The status that says it; every field is written, so that one writer owns them all."""
    return {"usage": {"month": month, "gateways": [_written(entry, month) for entry in entries]}}


def grown(
    entries: Iterable[UsageEntry], gateway: str, delta: Mapping[str, UsageAmount], moment: datetime
) -> tuple[UsageEntry, ...]:
    """With so much more of one gateway by month, folded and without what is too old."""
    time, month = rfc3339(moment), month_of(moment)
    found = {(entry.gateway, entry.month): entry for entry in entries if entry.month >= before(month)}
    for when, spent in delta.items():
        _add(found, UsageEntry(gateway, when, spent, time))
    for entry in _foldable(found.values(), (gateway, month), moment):
        del found[entry.gateway, entry.month]
        _add(found, UsageEntry(SETTLED, entry.month, entry.spent, entry.time))
    return tuple(found[key] for key in sorted(found))


def _add(found: dict[Key, UsageEntry], more: UsageEntry) -> None:
    key = (more.gateway, more.month)
    known = found.get(key, UsageEntry(*key, NOTHING, ""))
    found[key] = UsageEntry(*key, known.spent + more.spent, max(known.time, more.time))


def _foldable(entries: Iterable[UsageEntry], mine: Key, moment: datetime) -> list[UsageEntry]:
    """All but the writer's own of this month that are old, or the oldest of too many."""
    others = [entry for entry in entries if entry.gateway != SETTLED and (entry.gateway, entry.month) != mine]
    others.sort(key=lambda entry: entry.time)
    limit = rfc3339(moment - timedelta(seconds=FOLD_S))
    surplus = max(len(others) - MAX_ENTRIES, 0)
    return [entry for number, entry in enumerate(others) if number < surplus or entry.time < limit]


def _read(item: Usage, month: str) -> UsageEntry:
    gateway, _, named = item.id.partition("@")
    spent = UsageAmount(
        item.requests, item.input_tokens, item.output_tokens, dollars(item.dollars) if item.dollars else ZERO
    )
    return UsageEntry(gateway, named or month, spent, item.time or "")


def _written(entry: UsageEntry, month: str) -> dict[str, Any]:
    return {
        "id": entry.gateway if entry.month == month else f"{entry.gateway}@{entry.month}",
        "requests": entry.spent.requests,
        "inputTokens": entry.spent.input_tokens,
        "outputTokens": entry.spent.output_tokens,
        "dollars": f"{entry.spent.dollars:f}",
        "time": entry.time or NEVER,
    }
