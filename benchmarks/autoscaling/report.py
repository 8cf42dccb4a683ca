"""The table of policies and cells, from the runs that are not void.

A policy's attainment on a cell is the median over its seeds, on the window where it is lowest: a cell is held when that
is 99 %. Its cost is GPU time over the oracle's, both summed over windows; the oracle is the cheaper of its own run and
the static pool in hindsight. The *room* of a cell is what the oracle saves against the best static pool: below 8 % the
cell is flat, and asks for no harm rather than a win.

Differences of cost have a 95 % interval from a paired bootstrap: blocks of five minutes are drawn with replacement, the
same ones for both policies, from the seeds and windows that both have. It tells how sure a difference is on this
workload, not on others.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Any

from benchmarks.autoscaling.exact import HOLDS
from benchmarks.autoscaling.fluid import ORACLE
from benchmarks.autoscaling.hindsight import HINDSIGHT
from benchmarks.autoscaling.store import CellFile, RunRow

FLAT = 0.08
_DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Outcome:
    """A policy on a cell. `gpu_hours` of a seed's windows together, `worst` its lowest seed."""

    policy: str
    label: str
    attainment: float
    worst: float
    gpu_hours: float
    seeds: int

    @property
    def holds(self) -> bool:
        return self.attainment >= HOLDS


@dataclass(frozen=True, slots=True)
class CellReport:
    """`oracle_hours`: of the cheaper of oracle and static pool in hindsight; None where neither holds."""

    name: str
    outcomes: Mapping[str, Outcome]
    not_offered: tuple[str, ...]
    oracle_hours: float | None
    room: float | None


def cell_report(file: CellFile, current: Callable[[RunRow], bool]) -> CellReport:
    """`current` tells whether a row's decisions are today's."""
    rows: dict[str, list[RunRow]] = {}
    for row in file.runs.values():
        if current(row):
            rows.setdefault(row.policy, []).append(row)
    outcomes = {policy: _outcome(policy, found) for policy, found in rows.items()}
    best = [outcomes[name].gpu_hours for name in (ORACLE, HINDSIGHT) if name in outcomes and outcomes[name].holds]
    least = min(best, default=None)
    static = outcomes.get(HINDSIGHT)
    room = None if least is None or static is None else 1 - least / static.gpu_hours
    not_offered = tuple(sorted(name for name, tuned in file.tuned.items() if not tuned.label))
    return CellReport(file.name, outcomes, not_offered, least, room)


def _outcome(policy: str, rows: Sequence[RunRow]) -> Outcome:
    windows: dict[str, list[RunRow]] = {}
    for row in rows:
        windows.setdefault(row.window, []).append(row)
    attained = {name: [row.result["attainment"] for row in found] for name, found in windows.items()}
    return Outcome(
        policy=policy,
        label=rows[0].label,
        attainment=min(median(values) for values in attained.values()),
        worst=min(min(values) for values in attained.values()),
        gpu_hours=sum(median(row.result["gpu_hours"] for row in found) for found in windows.values()),
        seeds=min(len(found) for found in windows.values()),
    )


def cost_interval(first: Iterable[RunRow], second: Iterable[RunRow]) -> tuple[float, float, float] | None:
    """GPU time of the first over the second, with its 95 % interval; None without a seed and window in common."""
    others = {(row.window, row.seed): row for row in second}
    pairs = [(row, others[row.window, row.seed]) for row in first if (row.window, row.seed) in others]
    blocks = [
        (a["gpu_s"], b["gpu_s"])
        for one, other in pairs
        for a, b in zip(one.result["blocks"], other.result["blocks"], strict=True)
    ]
    if not blocks:
        return None
    random = Random(1)
    ratios = sorted(_ratio(random.choices(blocks, k=len(blocks))) for _ in range(_DRAWS))
    return _ratio(blocks), ratios[int(0.025 * _DRAWS)], ratios[int(0.975 * _DRAWS)]


def _ratio(blocks: Sequence[tuple[float, float]]) -> float:
    return sum(a for a, _ in blocks) / sum(b for _, b in blocks)


def table(reports: Sequence[CellReport], policies: Sequence[str]) -> str:
    """Markdown: attainment in percent and GPU time over the oracle's; in bold where a cell is not held."""
    head = ["policy", *(report.name for report in reports), "holds"]
    lines = [_line(head), _line(["---"] * len(head))]
    for policy in policies:
        held = sum(policy in report.outcomes and report.outcomes[policy].holds for report in reports)
        lines.append(_line([policy, *(_cell(report, policy) for report in reports), f"{held}/{len(reports)}"]))
    lines.append(_line(["room", *(_room(report) for report in reports), ""]))
    return "\n".join(lines)


def _cell(report: CellReport, policy: str) -> str:
    if (found := report.outcomes.get(policy)) is None:
        return "not offered" if policy in report.not_offered else ""
    attained = f"{100 * found.attainment:.1f}"
    cost = "" if report.oracle_hours is None else f" / {found.gpu_hours / report.oracle_hours:.2f}"
    return f"{attained}{cost}" if found.holds else f"**{attained}**{cost}"


def _room(report: CellReport) -> str:
    if report.room is None:
        return ""
    return f"{100 * report.room:.0f} %" + (" (flat)" if report.room < FLAT else "")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def as_json(report: CellReport) -> dict[str, Any]:
    return {
        "cell": report.name,
        "oracle_gpu_hours": report.oracle_hours,
        "room": report.room,
        "not_offered": report.not_offered,
        "policies": {
            name: {
                "label": found.label,
                "attainment": found.attainment,
                "worst_seed": found.worst,
                "gpu_hours": found.gpu_hours,
                "seeds": found.seeds,
                "holds": found.holds,
            }
            for name, found in sorted(report.outcomes.items())
        },
    }
