"""The recorded series: how many requests missed each promise, over seven windows, and what share is too many.

Everything comes from what the gateways export, joined by service, class and SLO; no rule names an object, so the file
is the same for every install. Numerator and denominator are recorded, and ratios are made from their sums. Objectives
come from each gateway; while they disagree the strictest counts. Boards and alerts read these same series, and so can
the autoscaler.
Known hole: two clusters that one Prometheus scrapes must be told apart by their namespaces' names.
"""

from paceline_core.registry.metrics import SERVICE
from tools.dashboards.promql import LEVELS, LONG, TARGET, WINDOWS, growth, ratio, total
from tools.dashboards.rules import Group, Record

_SHORT = ("5m", "30m", "1h", "2h")
_POOL = (*SERVICE, "pool")


def groups() -> list[Group]:
    """Short windows at the server's own interval; long ones, which move slowly and read much, every two minutes."""
    long = tuple(window for window in WINDOWS if window not in _SHORT)
    return [
        Group("paceline-slo-limits", _limits()),
        Group("paceline-slo-short", [rule for window in _SHORT for rule in _window(window)]),
        Group("paceline-slo-long", [rule for window in long for rule in _window(window)], "2m"),
        Group("paceline-capacity", _capacity()),
    ]


def _limits() -> list[Record]:
    objective = total("paceline_slo_objective_ratio", TARGET, how="max")
    levels = [Record(f"paceline:slo_{level}:ratio", _level(*terms)) for level, terms in LEVELS.items()]
    return [
        Record("paceline:slo_objective:ratio", objective),
        Record("paceline:slo_budget:ratio", "1 - paceline:slo_objective:ratio"),
        *levels,
    ]


def _level(factor: float, cap: float) -> str:
    # 14.4 budgets of a 90 % promise are more than can ever be bad, hence the cap; and a limit that is not above the
    # budget would fire on a promise that is kept. A promise of 100 % has no budget: any miss is too many.
    budget = "paceline:slo_budget:ratio"
    # The margin keeps 1 - 0.9, which is a little less than 0.1, from counting as less than a cap of 0.1.
    return f"clamp_max({factor} * {budget}, {cap}) > 1.001 * {budget}\nor\n{budget} == 0"


def _window(window: str) -> list[Record]:
    bad, judged = f"paceline:slo_bad:increase{window}", f"paceline:slo_judged:increase{window}"
    share = f"paceline:slo_bad:ratio{window}"
    burn = f"paceline:slo_burn:ratio{window}"
    counter = "paceline_slo_requests_total"
    rules = [
        Record(judged, growth(counter, TARGET, window=window)),
        Record(bad, growth(counter, TARGET, {"verdict": "!good"}, window)),
        Record(share, ratio(bad, judged)),
        Record(burn, ratio(share, "paceline:slo_budget:ratio")),
    ]
    return [*rules, _exhaustion(window)] if window in LONG else rules


def _exhaustion(window: str) -> Record:
    keys = ", ".join((*SERVICE, "class"))
    whole = total("paceline_slo_window_seconds", (*SERVICE, "class"), how="max")
    burn = f"(paceline:slo_burn:ratio{window} > 0)"
    return Record(f"paceline:slo_exhaustion:seconds{window}", f"{whole} / on ({keys}) group_right () {burn}")


def _capacity() -> list[Record]:
    counts = {
        state: total("paceline_autoscaler_replicas", _POOL, {"state": state}, "max") for state in ("desired", "ready")
    }
    stages = "sum without (stage) (paceline_cold_start_seconds)"
    return [
        Record("paceline:replicas_missing:count", f"clamp_min({counts['desired']} - {counts['ready']}, 0)"),
        Record("paceline:cold_start:seconds", f"max by ({', '.join(_POOL)}) ({stages})"),
    ]
