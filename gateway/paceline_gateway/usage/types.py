"""Types of usage: an amount, one gateway's count in a month, and the API server's state of a tenant.

Money is decimal: a charge, and so an entry in a status, is exact to a billionth of a dollar. Months are calendar months
in UTC, as `2026-11`.

A Tenant's `status.usage` is parsed into entries, and written from them. Entries of the status's month are named by
their gateway, those of the month before `<gateway>@<month>`, so that the previous month stays readable until this one
ends; older ones are dropped. An entry that has not grown for `FOLD_S` is folded into `settled`, whether its gateway is
gone or idle: a gateway adds to its entry or begins a new one, so nothing is lost. Beyond `MAX_ENTRIES` entries the
oldest are folded sooner. Invariant: folding changes no sum of either month.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from paceline_core.clock import rfc3339
from paceline_core.objects.tenant import MonthlyUsage
from paceline_core.units import dollars

SETTLED: Final = "settled"
"""The name of the entry with the counts of gateways that are gone."""
ZERO: Final = Decimal(0)
FOLD_S: Final = 3600.0
MAX_ENTRIES: Final = 128
NEVER: Final = "1970-01-01T00:00:00Z"
Key = tuple[str, str]


@dataclass(slots=True, unsafe_hash=True)
class UsageAmount:
    """An amount of use. Never changed, but not frozen: a request makes several, this way in a quarter of the time."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: Decimal = ZERO

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    def __bool__(self) -> bool:
        return bool(self.requests or self.input_tokens or self.output_tokens or self.dollars)

    def __add__(self, other: "UsageAmount") -> "UsageAmount":
        return UsageAmount(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.dollars + other.dollars,
        )

    def __sub__(self, other: "UsageAmount") -> "UsageAmount":
        return UsageAmount(
            self.requests - other.requests,
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.dollars - other.dollars,
        )


NOTHING: Final = UsageAmount()


@dataclass(frozen=True, slots=True)
class UsageEntry:
    """What one gateway, or all that are gone, counted in a month (`2026-11`). `time`: RFC 3339, when it last grew."""

    gateway: str
    month: str
    spent: UsageAmount
    time: str


@dataclass(frozen=True, slots=True)
class StoredUsage:
    """The API server's state of a tenant. `version` guards the next write; empty while the current one is unknown."""

    version: str
    entries: tuple[UsageEntry, ...] = ()

    def total(self, month: str) -> UsageAmount:
        """The sum over all gateways."""
        return sum((entry.spent for entry in self.entries if entry.month == month), NOTHING)

    def own(self, gateway: str) -> dict[str, UsageAmount]:
        """One gateway's part, by month."""
        return {entry.month: entry.spent for entry in self.entries if entry.gateway == gateway}


@dataclass(frozen=True, slots=True)
class UsageWrite:
    """One guarded change of a tenant's status: `delta` by month is added to the writer's own entries.

    `entries` is the complete new state.
    """

    version: str
    month: str
    delta: Mapping[str, UsageAmount]
    entries: tuple[UsageEntry, ...]


def month_of(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m}"


def end_of(month: str) -> datetime:
    """The first moment of the next month."""
    year, number = _parts(month)
    return datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)


def before(month: str) -> str:
    year, number = _parts(month)
    return f"{year - 1}-12" if number == 1 else f"{year:04}-{number - 1:02}"


def _parts(month: str) -> tuple[int, int]:
    return int(month[:4]), int(month[5:])


def read_usage(usage: MonthlyUsage) -> tuple[UsageEntry, ...]:
    found = []
    for item in usage.gateways:
        gateway, _, month = item.id.partition("@")
        spent = UsageAmount(
            item.requests, item.input_tokens, item.output_tokens, dollars(item.dollars) if item.dollars else ZERO
        )
        found.append(UsageEntry(gateway, month or usage.month or "", spent, item.time or ""))
    return tuple(found)


def status_of(entries: Iterable[UsageEntry], month: str) -> dict[str, Any]:
    """The status with these entries; every field is written, so that one writer owns them all."""
    gateways = [
        {
            "id": entry.gateway if entry.month == month else f"{entry.gateway}@{entry.month}",
            "requests": entry.spent.requests,
            "inputTokens": entry.spent.input_tokens,
            "outputTokens": entry.spent.output_tokens,
            "dollars": f"{entry.spent.dollars:f}",
            "time": entry.time or NEVER,
        }
        for entry in entries
    ]
    return {"usage": {"month": month, "gateways": gateways}}


def grown(
    entries: Iterable[UsageEntry], gateway: str, delta: Mapping[str, UsageAmount], moment: datetime
) -> tuple[UsageEntry, ...]:
    """The entries with `delta` added for one gateway by month, folded, without those that are too old."""
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
