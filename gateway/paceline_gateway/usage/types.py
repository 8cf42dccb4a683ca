"""Usage's nouns: an amount, what one gateway counted in one month, and what the API server has of a tenant.

Money is decimal: a charge, and so an entry in a status, is exact to a billionth of a dollar.

Calendar months in UTC, as `2026-11`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

SETTLED: Final = "settled"
"""Whose entry holds what gateways that are gone had counted."""
ZERO: Final = Decimal(0)


@dataclass(slots=True, unsafe_hash=True)
class UsageAmount:
    """An amount of use. Never changed, and not frozen: each request makes several, at a fourth of the time so."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: Decimal = ZERO

    @property
    def tokens(self) -> int:
        """Input and output."""
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
    """What a gateway, or all that are gone, counted in a month (`2026-11`). `time`: RFC 3339, when it last grew."""

    gateway: str
    month: str
    spent: UsageAmount
    time: str


@dataclass(frozen=True, slots=True)
class StoredUsage:
    """What the API server has of a tenant. `version` guards the next write; empty while the current one is unknown."""

    version: str
    entries: tuple[UsageEntry, ...] = ()

    def total(self, month: str) -> UsageAmount:
        """Of all gateways together."""
        return sum((entry.spent for entry in self.entries if entry.month == month), NOTHING)

    def own(self, gateway: str) -> dict[str, UsageAmount]:
        """What one gateway has there, by month."""
        return {entry.month: entry.spent for entry in self.entries if entry.gateway == gateway}


@dataclass(frozen=True, slots=True)
class UsageWrite:
    """One guarded change of a tenant's status: `delta` by month is added to the writer's own entries.

    `entries` is everything as it shall be.
    """

    version: str
    month: str
    delta: Mapping[str, UsageAmount]
    entries: tuple[UsageEntry, ...]


def month_of(moment: datetime) -> str:
    """The month that a moment lies in."""
    return f"{moment.astimezone(UTC):%Y-%m}"


def end_of(month: str) -> datetime:
    """The first moment of the month after."""
    year, number = _parts(month)
    return datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)


def before(month: str) -> str:
    """The month before."""
    year, number = _parts(month)
    return f"{year - 1}-12" if number == 1 else f"{year:04}-{number - 1:02}"


def _parts(month: str) -> tuple[int, int]:
    return int(month[:4]), int(month[5:])
