"""Observations of the stack during a run: types and the arithmetic on them. Times are seconds since the run's start.

Decisions come from the autoscaler's ledger, which is read before the stack is stopped, and each is replayed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline_autoscaler.output.ledger_entry import LedgerEntry
from paceline_autoscaler.output.ledger_files import file_of, older, read
from paceline_autoscaler.output.replay import replay
from paceline_core.errors import InvalidInput
from paceline_core.telemetry.instruments import bucket_quantile_bound

LATENESS_LIMIT = 0.05
Buckets = Mapping[float, float]


@dataclass(frozen=True, slots=True)
class Replicas:
    """The service's workers at one moment, over all pools; `desired` is the number that the autoscaler set."""

    at: float
    desired: int
    ready: int
    starting: int
    draining: int


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """An entry of the autoscaler's ledger; `replicas` is the number that it set, over all pools."""

    at: float
    time: str
    direction: str
    reason: str
    limit: str
    replicas: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Decisions:
    """The ledger's entries of a run; `different` of them had another result when they were replayed."""

    rows: tuple[DecisionRow, ...]
    different: int


@dataclass(frozen=True, slots=True)
class HostUse:
    cores: int
    mean: float
    peak: float


@dataclass(frozen=True, slots=True)
class Emulation:
    """Lateness of emulated steps / their time. `p99_at_most` is the upper edge of the bucket that holds the p99."""

    steps: int
    p99_at_most: float | None

    @property
    def late(self) -> bool:
        """Whether the machine was too slow to emulate the other one."""
        return self.p99_at_most is not None and self.p99_at_most > LATENESS_LIMIT


@dataclass(frozen=True, slots=True)
class BenchObservation:
    """All observations; parts without a source are empty (such as for a remote endpoint)."""

    replicas: tuple[Replicas, ...] = ()
    decisions: Decisions | None = None
    emulation: Emulation | None = None
    host: HostUse | None = None


class LatenessTally:
    """Adds up the cumulative lateness buckets of workers that come and go.

    Each worker's last scrape counts, less its count before the run (`base`). Known hole: the steps between a worker's
    last scrape and its end are missing.
    """

    def __init__(self) -> None:
        self.base: dict[str, Buckets] = {}
        self.last: dict[str, Buckets] = {}

    def emulation(self) -> Emulation | None:
        if not self.last:
            return None
        total: dict[float, float] = {}
        for worker, buckets in self.last.items():
            base = self.base.get(worker, {})
            for edge, count in buckets.items():
                total[edge] = total.get(edge, 0.0) + count - base.get(edge, 0.0)
        return Emulation(int(max(total.values(), default=0)), bucket_quantile_bound(0.99, total.items()))


def host_use(cores: int, shares: Sequence[float]) -> HostUse | None:
    return HostUse(cores, sum(shares) / len(shares), max(shares)) if shares else None


LEDGER = Path("run") / "ledger"


def decisions_since(ledger: Path, service: str, start: float) -> Decisions | None:
    """The decisions about a service since `start` (Unix seconds); None if its ledger is missing or damaged."""
    path = file_of(ledger, service)
    try:
        found = [entry for each in (older(path), path) if each == path or each.exists() for entry in read(each)]
    except InvalidInput:
        return None
    entries = [entry for entry in found if isinstance(entry, LedgerEntry) and entry.at >= start]
    if any(isinstance(entry, InvalidInput) for entry in found):
        return None
    rows = tuple(
        DecisionRow(
            at=entry.at - start,
            time=entry.time,
            direction=str(entry.decision.direction),
            reason=str(entry.decision.reason),
            limit=str(entry.decision.limit),
            replicas=entry.decision.replicas,
            sentence=entry.decision.sentence,
        )
        for entry in entries
    )
    return Decisions(rows, len(replay(entries)))
