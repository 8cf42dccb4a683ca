"""The rows of a study: one JSON line for each run, complete enough that table and report need nothing else.

A file of rows only grows. A row's digest names everything that its run depends on, so a rerun finds the rows that it
need not compute again; rows of other inputs stay where they are and are ignored.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from paceline_autoscaler.types import Decision
from paceline_core.errors import InvalidInput
from paceline_core.registry.enums import Outcome
from paceline_simulator.cluster import EPOCH
from paceline_simulator.results import Moment, RequestResult, SimulationResult


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds, of the requests that ended well; None if there is none."""

    p50: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> "Percentiles":
        """Each is the smallest value that so large a share of them does not exceed."""
        ordered = sorted(values)
        p50, p95, p99 = (ordered[ceil(q * len(ordered) - 1e-9) - 1] if ordered else None for q in (0.5, 0.95, 0.99))
        return cls(p50, p95, p99)


@dataclass(frozen=True, slots=True)
class Interval:
    """Some seconds from `at` on: requests offered a second, the work that they bring, and the state at its start.

    `demand`: replica-seconds a second, by the autoscaler's own cost of tokens; cached prefixes count as work.
    """

    at: float
    offered: float
    demand: float
    desired: int
    ready: int
    starting: int
    draining: int
    queued: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    """A decision that changed replicas: by pool before and after, and why."""

    at: float
    before: dict[str, int]
    after: dict[str, int]
    reason: str
    limit: str
    sentence: str

    @classmethod
    def of(cls, at: float, decision: Decision) -> "ScaleDecision":
        return cls(
            at - EPOCH.timestamp(),
            {pool.name: pool.current for pool in decision.pools},
            {pool.name: pool.replicas for pool in decision.pools},
            str(decision.reason),
            str(decision.limit),
            decision.sentence,
        )


@dataclass(frozen=True, slots=True)
class StudyRow:
    """One run. Shares and counts are of the requests offered in the scored window, `score` in seconds; so is the cost.

    `attainment`: the share that ended well and met all targets of its class; `targets`: the share that met each one.
    `failed` includes requests that were open at the end. `dollars`: None if the price of a pool is unknown.
    """

    policy: str
    seed: int
    digest: str
    version: str
    score: tuple[float, float]
    attainment: float
    targets: dict[str, float]
    gpu_hours: float
    dollars: float | None
    mean_replicas: float
    starts: int
    offered: int
    shed: int
    failed: int
    ttft: Percentiles
    tpot: Percentiles
    timeline: tuple[Interval, ...]
    decisions: tuple[ScaleDecision, ...]


_ROW = TypeAdapter(StudyRow)


def met_share(result: SimulationResult, target: str | None = None) -> float:
    """The share of the offered requests that ended well and met the target, or all targets; 1 if none was offered."""
    met = (not r.missed if target is None else target not in r.missed for r in answered(result))
    offered = result.offered()
    return sum(met) / offered if offered else 1.0


def answered(result: SimulationResult) -> Iterable[RequestResult]:
    return (request for request in result.scored() if request.outcome is Outcome.OK)


def intervals(
    moments: Sequence[Moment], offered: Sequence[int], demand: Sequence[float], seconds: float
) -> list[Interval]:
    """Moments with the requests offered, and the replica-seconds demanded, in the `seconds` after each."""
    rows = zip(moments, offered, demand, strict=False)
    return [
        Interval(
            moment.at,
            count / seconds,
            work / seconds,
            moment.desired,
            moment.ready,
            moment.starting,
            moment.draining,
            moment.queued,
            moment.in_flight,
        )
        for moment, count, work in rows
    ]


def append_row(path: Path, row: StudyRow) -> None:
    """Add a row as one line, whole or not at all as far as the file system allows."""
    with path.open("ab") as file:
        file.write(_ROW.dump_json(row) + b"\n")


def read_rows(path: Path) -> list[StudyRow]:
    """The rows of a file; none if there is none, or a pipe. A last line without its end is removed: its run was cut.

    Raises InvalidInput naming the line that is no row.
    """
    if not path.is_file():
        return []
    content = path.read_bytes()
    whole, _, rest = content.rpartition(b"\n")
    rows = [_row(path, number, line) for number, line in enumerate(whole.splitlines(), 1)]
    if rest:
        path.write_bytes(content[: -len(rest)])
    return rows


def _row(path: Path, number: int, line: bytes) -> StudyRow:
    try:
        return _ROW.validate_json(line)
    except ValidationError:
        fix = "remove the line, or name another file with --out"
        raise InvalidInput(f"{path}:{number}", f"is no row of a simulation; {fix}") from None
