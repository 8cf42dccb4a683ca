"""The nouns of a run: what is offered, and what became of it. Times are seconds since the run's start."""

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to offer at `at`, whatever became of the earlier ones."""

    number: int
    at: float
    phase: str
    prompt_tokens: int
    output_tokens: int


class Ending(StrEnum):
    """How an offered request ended, as its client sees it."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"
    CUT = "cut"
    VIOLATION = "violation"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    NOT_SENT = "not_sent"


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Token counts of one answer in the server's own words."""

    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class RequestSample:
    """One offered request. `content` holds the arrival time of every event with text; `detail` says why it failed."""

    arrival: Arrival
    ending: Ending
    sent: float | None = None
    end: float | None = None
    content: tuple[float, ...] = field(default=(), repr=False)
    usage: TokenCounts | None = None
    detail: str = ""

    @property
    def lateness(self) -> float | None:
        """Seconds between the planned and the real start: the generator's own fault."""
        return None if self.sent is None else max(self.sent - self.arrival.at, 0.0)

    @property
    def ttft(self) -> float | None:
        """Request sent (connection included) to the first event with text."""
        return self.content[0] - self.sent if self.content and self.sent is not None else None

    @property
    def tpot(self) -> float | None:
        """(last - first) / (n - 1) with the server's n; None below two tokens."""
        if self.usage is None or self.usage.output_tokens < 2 or not self.content:
            return None
        return (self.content[-1] - self.content[0]) / (self.usage.output_tokens - 1)

    @property
    def e2e(self) -> float | None:
        """Request sent to the last byte of the answer."""
        return self.end - self.sent if self.end is not None and self.sent is not None else None

    @property
    def gaps(self) -> tuple[float, ...]:
        """ITL: gaps between neighbouring events with text; events read together are 0 apart."""
        return tuple(later - earlier for earlier, later in pairwise(self.content))
