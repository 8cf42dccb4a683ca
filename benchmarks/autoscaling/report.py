"""The table of policies and cells, from the runs that are not void.

A policy's attainment on a cell is the median over its seeds, on the window where it is lowest: a cell is held when that
is 99 %. Its cost is GPU time over the oracle's, both summed over windows; the oracle is the cheaper of its own run and
the static pool in hindsight. The *room* of a cell is what the oracle saves against the best static pool: below 8 % the
cell is flat, and asks for no harm rather than a win.

Differences from the tuned static pool have a 95 % interval from a paired bootstrap: blocks of five minutes are drawn
with replacement, the same ones for both policies, from the seeds and windows that both have. It tells how sure a
difference is on this workload, not on others. A margin of cost within the simulator's own error is a tie.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from statistics import median
from typing import Any

from benchmarks.autoscaling.exact import HOLDS
from benchmarks.autoscaling.fluid import ORACLE
from benchmarks.autoscaling.hindsight import HINDSIGHT
from benchmarks.autoscaling.store import CellFile, FluidRow, RunRow
from benchmarks.autoscaling.whatif import OLD_SIGNALS

from paceline_simulator.comparison import TIE
from paceline_simulator.policies import SLO, STATIC

Blocks = Sequence[tuple[Mapping[str, float], Mapping[str, float]]]
"""What two policies' runs say of the same five minutes."""
FLAT = 0.08
_DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Outcome:
    """A policy on a cell. `gpu_hours` of a seed's windows together, `worst` its lowest seed.

    `wasted`: the share (0 to 1) of its starts that were given up soon (`exact.wasted_starts`); None without a start.
    """

    policy: str
    label: str
    attainment: float
    worst: float
    gpu_hours: float
    seeds: int
    wasted: float | None = None

    @property
    def holds(self) -> bool:
        return self.attainment >= HOLDS


@dataclass(frozen=True, slots=True)
class Interval:
    """A value, and between which bounds it is in 95 % of the draws."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True, slots=True)
class Difference:
    """A policy's GPU time over another's, and the points of attainment that it has more."""

    cost: Interval
    points: Interval

    @property
    def tie(self) -> bool:
        """Whether the costs are as good as equal."""
        return abs(self.cost.value - 1) < TIE or self.cost.low <= 1 <= self.cost.high


@dataclass(frozen=True, slots=True)
class FluidError:
    """The fluid model less the exact simulator: percent of GPU time, points of attainment."""

    gpu_time: float
    points: float

    def __str__(self) -> str:
        return f"{self.gpu_time:+.0f} % / {self.points:+.1f}"


@dataclass(frozen=True, slots=True)
class CellReport:
    """`oracle_hours`: of the cheaper of oracle and static pool in hindsight; None where neither holds. `from_static`:
    each policy's difference from the tuned static pool.
    """

    name: str
    outcomes: Mapping[str, Outcome]
    not_offered: tuple[str, ...]
    from_static: Mapping[str, Difference]
    oracle_hours: float | None
    room: float | None


def cell_report(file: CellFile, current: Callable[[RunRow], bool]) -> CellReport:
    """`current` tells whether a row's decisions are today's."""
    rows: dict[str, list[RunRow]] = {}
    for row in file.runs.values():
        if current(row):
            rows.setdefault(row.policy, []).append(row)
    outcomes = {policy: _outcome(policy, found) for policy, found in rows.items()}
    not_offered = tuple(sorted(name for name, tuned in file.tuned.items() if not tuned.label))
    static = rows.get(STATIC, [])
    compared = {policy: difference(found, static) for policy, found in rows.items() if policy != STATIC}
    from_static = {policy: found for policy, found in compared.items() if found is not None}
    return _report(file.name, outcomes, not_offered, from_static)


def fluid_report(name: str, rows: Iterable[FluidRow]) -> CellReport:
    """Of a variant's rows in the fluid model; what is delivered has the policy's name with ", default"."""
    outcomes = {}
    for row in rows:
        delivered = row.label == "default" and row.policy not in (SLO, OLD_SIGNALS)
        policy = f"{row.policy}, default" if delivered else row.policy
        outcomes[policy] = Outcome(policy, row.label, row.attainment, row.attainment, row.gpu_hours, 1)
    return _report(name, outcomes, (), {})


def _report(
    name: str, outcomes: Mapping[str, Outcome], not_offered: tuple[str, ...], from_static: Mapping[str, Difference]
) -> CellReport:
    best = [outcomes[name].gpu_hours for name in (ORACLE, HINDSIGHT) if name in outcomes and outcomes[name].holds]
    least = min(best, default=None)
    static = outcomes.get(HINDSIGHT)
    room = None if least is None or static is None else 1 - least / static.gpu_hours
    return CellReport(name, outcomes, not_offered, from_static, least, room)


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
        wasted=_wasted(rows),
    )


def _wasted(rows: Iterable[RunRow]) -> float | None:
    starts, wasted = (sum(row.result.get(name, 0) for row in rows) for name in ("starts", "wasted"))
    return wasted / starts if starts else None


def difference(first: Iterable[RunRow], second: Iterable[RunRow]) -> Difference | None:
    """Of the first from the second; None without a seed and window in common."""
    others = {(row.window, row.seed): row for row in second}
    pairs = [(row, others[row.window, row.seed]) for row in first if (row.window, row.seed) in others]
    blocks = [(a, b) for one, other in pairs for a, b in zip(one.result["blocks"], other.result["blocks"], strict=True)]
    if not blocks:
        return None
    random = Random(1)
    draws = [random.choices(blocks, k=len(blocks)) for _ in range(_DRAWS)]
    return Difference(_interval(_cost, blocks, draws), _interval(_points, blocks, draws))


def _interval(of: Callable[[Blocks], float], blocks: Blocks, draws: Sequence[Blocks]) -> Interval:
    values = sorted(of(draw) for draw in draws)
    return Interval(of(blocks), values[int(0.025 * _DRAWS)], values[int(0.975 * _DRAWS)])


def _cost(blocks: Blocks) -> float:
    return sum(a["gpu_s"] for a, _ in blocks) / sum(b["gpu_s"] for _, b in blocks)


def _points(blocks: Blocks) -> float:
    more = sum(a["attained"] - b["attained"] for a, b in blocks)
    return 100 * more / max(sum(a["offered"] for a, _ in blocks), 1)


def fluid_errors(fluid: CellReport, exact: CellReport) -> dict[str, FluidError]:
    """By policy, of the settings that both have."""
    errors = {}
    for policy, found in fluid.outcomes.items():
        other = exact.outcomes.get(policy)
        if other is not None and other.label == found.label:
            gpu_time = 100 * (found.gpu_hours / other.gpu_hours - 1)
            errors[policy] = FluidError(gpu_time, 100 * (found.attainment - other.attainment))
    return errors


def error_table(errors: Mapping[str, Mapping[str, FluidError]]) -> str:
    """Markdown, of errors by cell and policy."""
    policies = sorted({policy for found in errors.values() for policy in found})
    rows = [[policy, *(str(found.get(policy, "")) for found in errors.values())] for policy in policies]
    return _markdown(["policy", *errors], rows)


def table(reports: Sequence[CellReport], policies: Sequence[str]) -> str:
    """Markdown: attainment in percent and GPU time over the oracle's; in bold where a cell is not held."""
    head = ["policy", *(report.name for report in reports), "holds"]
    rows = []
    for policy in policies:
        held = sum(policy in report.outcomes and report.outcomes[policy].holds for report in reports)
        rows.append([policy, *(_cell(report, policy) for report in reports), f"{held}/{len(reports)}"])
    if any(report.from_static for report in reports):
        compared = [_compared(report.from_static.get(SLO)) for report in reports]
        rows.append([f"{SLO}: GPU time over {STATIC}'s", *compared, ""])
        rows.append([f"{SLO}: starts wasted", *map(_given_up, reports), ""])
    rows.append(["room", *(_room(report) for report in reports), ""])
    return _markdown(head, rows)


def _cell(report: CellReport, policy: str) -> str:
    if (found := report.outcomes.get(policy)) is None:
        return "not offered" if policy in report.not_offered else ""
    attained = f"{100 * found.attainment:.1f}"
    cost = "" if report.oracle_hours is None else f" / {found.gpu_hours / report.oracle_hours:.2f}"
    return f"{attained}{cost}" if found.holds else f"**{attained}**{cost}"


def _compared(found: Difference | None) -> str:
    return "" if found is None else f"{found.cost}, tie" if found.tie else str(found.cost)


def _given_up(report: CellReport) -> str:
    found = report.outcomes.get(SLO)
    return "" if found is None or found.wasted is None else f"{100 * found.wasted:.0f} %"


def _room(report: CellReport) -> str:
    if report.room is None:
        return ""
    return f"{100 * report.room:.0f} %" + (" (flat)" if report.room < FLAT else "")


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


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
                "wasted": found.wasted,
                "holds": found.holds,
                "from_static": asdict(report.from_static[name]) if name in report.from_static else None,
            }
            for name, found in sorted(report.outcomes.items())
        },
    }
