"""Cases beside quiet, kind by kind, and the rows that come of them.

Before each kind the neighbour is left alone for a while: its longest gap then is what the machine itself does. A case
is over once its bytes or seconds are, and the neighbour's streams flow again. Where a gap is over the bar the case is
repeated, and the median of three counts: other programs on the machine make gaps too, but not three times.
"""

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.attacks.attacker import Sent
from benchmarks.attacks.case import Case, Kind, Model
from benchmarks.attacks.neighbour import Felt
from benchmarks.attacks.stage import BODIES, MIB, Stage
from benchmarks.harness import Bar, Row

GAP_MS = 250.0
ATTACK_S, CALM_S = 0.9, 1.0
REPEATS = 2
GATEWAY_MIB = 2 * BODIES / MIB
"""Beyond what it holds at rest: bodies, and the same again for what reads them."""
WORKER_MIB = 1024.0


@dataclass(slots=True)
class Found:
    """One case: each time's gap in milliseconds, what else was felt, and seconds that each process
    computed and waited for a core."""

    case: Case
    gaps: list[float]
    first: float
    refused: int
    broken: int
    complaints: list[str]
    taken: dict[str, int]
    busy: dict[str, float]
    waited: dict[str, float]
    restarted: list[str]
    sent: Sent

    @property
    def gap(self) -> float:
        """That counts."""
        return statistics.median(self.gaps)

    def json(self) -> dict[str, Any]:
        """As it is kept beside the rows."""
        megabytes = {who: round(size / MIB, 1) for who, size in self.taken.items()}
        return {
            "gaps_ms": [round(gap, 1) for gap in self.gaps],
            "first_ms": round(self.first, 1),
            "refused": self.refused,
            "broken": self.broken,
            "complaints": self.complaints,
            "taken_mib": megabytes,
            "busy_s": {who: round(seconds, 2) for who, seconds in self.busy.items()},
            "waited_s": {who: round(seconds, 2) for who, seconds in self.waited.items()},
            "restarted": self.restarted,
            "sent": self.sent.json(),
        }


@dataclass(slots=True)
class Measured:
    """A kind: quiet gaps, and its cases."""

    kind: Kind
    calm: float
    cases: list[Found] = field(default_factory=list)

    @property
    def worst(self) -> Found:
        """The case with the longest gap."""
        return max(self.cases, key=lambda found: found.gap)

    def row(self) -> Row:
        """Gap under attack beside the quiet one."""
        name = f"{self.kind.name}: gap, {len(self.cases)} cases"
        return Row(name, self.worst.gap, "ms", self.calm, bar=Bar(GAP_MS))

    def json(self) -> dict[str, Any]:
        """As it is kept beside the rows."""
        return {"calm_ms": self.calm, "worst": self.worst.case.name} | {
            "cases": {found.case.name: found.json() for found in self.cases}
        }


def warm(stage: Stage) -> None:
    """Both models have answered before anything is measured."""
    for model in Model:
        stage.choose(model)
    stage.settle()


def attacked(stage: Stage, kind: Kind, cases: Sequence[Case]) -> Measured:
    """These cases of a kind, after a while of quiet."""
    stage.choose(cases[0].model)
    stage.felt()
    time.sleep(CALM_S)
    measured = Measured(kind, stage.felt().gap * 1e3)
    for case in cases:
        found = _repeated(stage, case)
        measured.cases.append(found)
        sys.stderr.write(f"{kind.name}: {case.name}: {found.json()}\n")
    return measured


def _repeated(stage: Stage, case: Case) -> Found:
    found = _once(stage, case)
    for _ in range(REPEATS if found.gap > GAP_MS and not found.restarted else 0):
        again = _once(stage, case)
        found.gaps += again.gaps
        found.restarted += again.restarted
        found.refused, found.broken = max(found.refused, again.refused), max(found.broken, again.broken)
        found.complaints += again.complaints
        found.taken = {who: max(size, again.taken.get(who, 0)) for who, size in found.taken.items()}
        if again.restarted:
            break
    return found


def _once(stage: Stage, case: Case) -> Found:
    stage.felt()
    stage.taken()
    before, queued = stage.busy(), stage.waited()
    sent = stage.attack(case, ATTACK_S)
    flows = stage.flows()
    felt: Felt = stage.felt()
    restarted = stage.ended()
    if not flows:
        restarted = sorted({*restarted, "gateway", f"worker {case.model}"})
    taken, busy, waited = stage.taken(), _since(before, stage.busy()), _since(queued, stage.waited())
    if restarted:
        stage.revive(restarted)
        stage.choose(case.model)
    gaps, first = [felt.gap * 1e3], felt.first * 1e3
    return Found(case, gaps, first, felt.refused, felt.broken, felt.complaints, taken, busy, waited, restarted, sent)


def _since(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {who: seconds - before.get(who, 0.0) for who, seconds in after.items()}


def rows(found: Sequence[Measured]) -> list[Row]:
    """A row a kind, and what holds for all."""
    cases = [case for kind in found for case in kind.cases]
    gateway = max(case.taken.get("gateway", 0) for case in cases) / MIB
    worker = max(size for case in cases for who, size in case.taken.items() if who != "gateway") / MIB
    return [
        *(kind.row() for kind in found),
        Row("kinds", len(found), ""),
        Row("cases", len(cases), ""),
        Row("gateway's memory beyond rest, at most", gateway, "MiB", bar=Bar(GATEWAY_MIB)),
        Row("a worker's memory beyond rest, at most", worker, "MiB", bar=Bar(WORKER_MIB)),
        Row("processes that had to be started anew", sum(len(case.restarted) for case in cases), "", bar=Bar(0)),
        Row("streams of the neighbour's that broke", sum(case.broken for case in cases), "", bar=Bar(0)),
        Row("short requests of the neighbour's that were refused", sum(case.refused for case in cases), "", bar=Bar(0)),
    ]
