"""The condition SLOFeasible: what an idle replica takes decides, once lengths and speeds are known."""

from dataclasses import replace

import pytest
from tests.autoscaler.factories import INTERACTIVE, goal, pool
from tests.every import cases

from paceline_autoscaler.output.feasibility import slo_feasible
from paceline_autoscaler.state import LearnedState, PoolSpeed
from paceline_autoscaler.types import CompletedRequests, SloTarget
from paceline_core.objects.fields import Metric
from paceline_core.wire import StepTime

STEP = StepTime(base=0.02, prefill=1e-4, sequence=1e-5, kv=0.0)
ALIKE = CompletedRequests(10, 10 * 4000, 0, 10 * 200, 10 * 8_000_000, 10 * 200 * 4100)
"""Prompts of 4,000 tokens, which take 0.4 s and three steps, a half and one on the way."""
LEARNED = LearnedState(completed=ALIKE, speeds=(PoolSpeed("main", STEP, 64, 500_000),))


def target(metric: Metric, seconds: float, quantile: float = 0.95) -> SloTarget:
    return SloTarget(INTERACTIVE, metric, quantile, seconds)


@cases(
    ("targets", "fact"),
    [
        ((target("ttft", 0.5), target("tpot", 0.05)), ("True", "Feasible")),
        ((target("ttft", 0.4),), ("False", "TooSlow")),
        ((target("tpot", 0.01),), ("False", "TooSlow")),
        ((target("e2e", 0.01),), ("Unknown", "NoTargets")),
        ((), ("Unknown", "NoTargets")),
    ],
)
def test_a_target_that_an_idle_replica_misses_is_not_feasible(
    targets: tuple[SloTarget, ...], fact: tuple[str, str]
) -> None:
    assert slo_feasible(goal(targets=targets), LEARNED)[:2] == fact


def test_the_message_has_the_sum_and_the_fix() -> None:
    *_, message = slo_feasible(goal(targets=(target("ttft", 0.3), target("tpot", 0.01))), LEARNED)
    assert message == (
        "a prompt of 4,000 tokens takes 470ms on an idle replica of pool main, and ttft p95 promises 300ms; "
        "a token takes 20ms on an idle replica of pool main, and tpot p95 promises 10ms; "
        "no number of replicas mends that: promise more time, shorten prompts, or use a faster accelerator"
    )


def test_the_prompt_is_that_of_the_promised_quantile() -> None:
    spread = replace(ALIKE, attended_pairs=2 * ALIKE.attended_pairs)
    learned = replace(LEARNED, completed=spread)
    assert slo_feasible(goal(targets=(target("ttft", 0.6, 0.5),)), learned)[0] == "True"
    assert slo_feasible(goal(targets=(target("ttft", 0.6, 0.95),)), learned)[0] == "False"


def test_a_limit_that_grows_with_the_prompt_is_that_of_this_prompt() -> None:
    longer = SloTarget(INTERACTIVE, "ttft", 0.95, 0.1, per_prompt_token=1e-4)
    assert slo_feasible(goal(targets=(longer,)), LEARNED)[0] == "True"


def test_one_pool_that_is_fast_enough_makes_it_feasible() -> None:
    slow, fast = pool(name="main"), pool(name="fast")
    speeds = (*LEARNED.speeds, PoolSpeed("fast", replace_prefill(5e-5), 64, 500_000))
    service = goal(pools=(slow, fast), targets=(target("ttft", 0.4),))
    assert slo_feasible(service, replace(LEARNED, speeds=speeds))[0] == "True"


def replace_prefill(seconds: float) -> StepTime:
    return STEP.model_copy(update={"prefill": seconds})


@pytest.mark.parametrize("learned", [replace(LEARNED, completed=None), replace(LEARNED, speeds=()), LearnedState()])
def test_without_lengths_or_speeds_nothing_is_known(learned: LearnedState) -> None:
    assert slo_feasible(goal(targets=(target("ttft", 1e-6),)), learned)[:2] == ("Unknown", "LengthsUnknown")
