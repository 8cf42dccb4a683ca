"""Faster and slower starts, and more requests: what if, in the fluid model alone.

All settings of a cell at other leads and at 2.5 times the requests, beside the cell as it is: policies as they are
delivered ("default") and as they are tuned for the cell, and our policy with signals as old as the others'. The oracle
and the static pool in hindsight are the cheapest that hold in the same model. No claim rests on these rows.
"""

from bisect import bisect_left
from collections.abc import Sequence

from benchmarks.autoscaling.exact import HOLDS, SCRAPE_LAG_S
from benchmarks.autoscaling.fluid import ORACLE, fluid_plan, fluid_run, oracles, ranked, requests_of
from benchmarks.autoscaling.hindsight import HINDSIGHT, SEED
from benchmarks.autoscaling.jobs import cell_of, decisions_digest
from benchmarks.autoscaling.learned import learned
from benchmarks.autoscaling.settings import POLICIES, Setting, default, settings
from benchmarks.autoscaling.store import CellFile, FluidRow
from benchmarks.simulator.cells import LEAD_S

from paceline_autoscaler.policies.constant import Constant
from paceline_autoscaler.policies.fluid import run
from paceline_autoscaler.policies.fluid_types import FluidPlan, FluidResult
from paceline_simulator.policies import SLO, STATIC

AS_IT_IS = "as it is"
VARIANTS = {
    AS_IT_IS: (LEAD_S, 1.0),
    "lead 10 s": (10.0, 1.0),
    "lead 60 s": (60.0, 1.0),
    "lead 420 s": (420.0, 1.0),
    "2.5 times the requests": (LEAD_S, 2.5),
}
"""Seconds from order to ready, and the factor of requests."""
OLD_SIGNALS = "slo, signals 15 s old"


def look(task: tuple[str, str]) -> list[FluidRow]:
    """All rows of a cell and a variant, both by name."""
    name, variant = task
    lead_s, times = VARIANTS[variant]
    drawn = [(window, requests_of(window, SEED)) for window in cell_of(name).scored]
    plans = [fluid_plan(window, requests, lead_s, times) for window, requests in drawn]
    rows = [_row(variant, each.policy, each, [fluid_run(plan, each) for plan in plans]) for each in _offered(name)]
    known = learned(name)
    for policy, lag_s in ((SLO, 1.0), (OLD_SIGNALS, SCRAPE_LAG_S)):
        ours = [run(plan, known.policy(lead_s, times, lag_s)) for plan in plans]
        rows.append(_row(variant, policy, default(SLO), ours))
    rows.append(_pool(variant, plans))
    ranks = [ranked(plan, oracles(plan, requests, times)) for plan, (_, requests) in zip(plans, drawn, strict=True)]
    best = [next(iter(runs.values())) for runs in ranks]
    rows.append(_row(variant, ORACLE, Setting(ORACLE, "the cheapest of each window"), best))
    return rows


def _offered(name: str) -> list[Setting]:
    """Every baseline as it is delivered, then as it is tuned for the cell."""
    made = [default(policy) for policy in POLICIES if policy not in (SLO, STATIC)]
    for policy, tuned in sorted(CellFile.load(name).tuned.items()):
        made += [each for each in settings(policy) if each.label == tuned.label]
    return made


def _pool(variant: str, plans: Sequence[FluidPlan]) -> FluidRow:
    """The smallest that holds on all windows, or the largest allowed."""
    counts = range(1, plans[0].service.pools[0].max)
    count = 1 + bisect_left(counts, True, key=lambda each: all(run.attainment >= HOLDS for run in _static(plans, each)))
    return _row(variant, HINDSIGHT, Setting(STATIC, f"replicas={count}"), _static(plans, count))


def _static(plans: Sequence[FluidPlan], count: int) -> list[FluidResult]:
    return [fluid_run(plan, Setting(STATIC, f"replicas={count}", Constant(count))) for plan in plans]


def _row(variant: str, policy: str, setting: Setting, results: Sequence[FluidResult]) -> FluidRow:
    digest = decisions_digest(setting.policy, setting.label)
    attained, gpu_s = min(each.attainment for each in results), sum(each.gpu_s for each in results)
    return FluidRow(variant, policy, setting.label, digest, round(attained, 5), round(gpu_s / 3600, 4))
