"""What a request is known by when it has ended, and where that goes.

Spans are made of plain timestamps after the last byte.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from paceline_workers.server.callers import Caller
from paceline_workers.server.phases import Phases
from paceline_workers.server.run import ActiveGeneration


@dataclass(frozen=True, slots=True)
class FinishedGeneration:
    """A request that is over: `now` and `utc` are the same moment, `error` is "" or the code it ended with."""

    run: ActiveGeneration
    caller: Caller
    spent: Phases
    now: float
    utc: datetime
    error: str


class GenerationTracing(Protocol):
    """Where ended requests go."""

    @property
    def dropped(self) -> int:
        """Spans that were lost so far."""
        ...

    def record(self, ended: FinishedGeneration) -> None:
        """Queue the spans of a request; never waits, never raises."""
        ...

    def close(self) -> None:
        """Send what is queued, for a moment; blocks."""
        ...
