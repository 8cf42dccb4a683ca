"""Whether a promise can be kept at all: what an idle replica takes for the requests that it is made for. Pure.

Replicas shorten waits and no request's own prefill or step. So a TTFT that an idle replica misses for a prompt of the
promised quantile, or a TPOT that a sequence alone misses, is missed however many replicas there are. Lengths are those
of answered requests, as log-normal; speeds are what workers fitted.
"""

from collections.abc import Iterator
from math import floor, log10

from paceline_autoscaler.state import LearnedState, PoolSpeed
from paceline_autoscaler.types import ScalingSpec, SloTarget
from paceline_core.units import brief
from paceline_planner.goodput import LatencyPromise, PlannedSpeed, PoolModel
from paceline_planner.lengths import LengthDistribution

Fact = tuple[str, str, str]
"""A condition's status, its reason and its message."""


def slo_feasible(goal: ScalingSpec, learned: LearnedState) -> Fact:
    """The condition SLOFeasible; its numbers have two figures, so that it changes only when they do."""
    if not any(target.metric in ("ttft", "tpot") for target in goal.targets):
        return "Unknown", "NoTargets", "no class has a target for ttft or tpot"
    if learned.completed is None or learned.completed.requests <= 0 or not learned.speeds:
        return "Unknown", "LengthsUnknown", "no request has been answered lately, so lengths and speeds are not known"
    lengths = LengthDistribution.of(learned.completed)
    missed = [miss for target in goal.targets if (miss := _miss(target, goal, learned.speeds, lengths))]
    if missed:
        fix = "no number of replicas mends that: promise more time, shorten prompts, or use a faster accelerator"
        return "False", "TooSlow", f"{'; '.join(missed)}; {fix}"
    return "True", "Feasible", "an idle replica keeps every target at the lengths of answered requests"


def _miss(target: SloTarget, goal: ScalingSpec, speeds: tuple[PoolSpeed, ...], lengths: LengthDistribution) -> str:
    """By how much the fastest pool misses the target when idle; empty if it does not."""
    prompt = lengths.prompt_quantile(target.quantile)
    least, pool = min(_idle(target, goal, speeds, lengths, prompt), default=(0.0, ""))
    limit, name = target.limit(prompt), f"{target.metric} p{round(target.quantile * 100)}"
    if least <= limit:
        return ""
    what = f"a prompt of {_figures(prompt):,.0f} tokens" if target.metric == "ttft" else "a token"
    takes, promised = brief(_figures(least)), brief(_figures(limit))
    return f"{what} takes {takes} on an idle replica of pool {pool}, and {name} promises {promised}"


def _idle(
    target: SloTarget, goal: ScalingSpec, speeds: tuple[PoolSpeed, ...], lengths: LengthDistribution, prompt: float
) -> Iterator[tuple[float, str]]:
    """Seconds that each pool takes that has a part in the target."""
    roles = {pool.name: pool.role for pool in goal.pools}
    for speed in speeds:
        if roles.get(speed.pool) not in ("both", "prefill" if target.metric == "ttft" else "decode"):
            continue
        planned = PlannedSpeed(speed.step_time, speed.slots, speed.kv_tokens)
        model = PoolModel(planned, goal.step_tokens, lengths, LatencyPromise())
        yield (model.idle_ttft_s(prompt) if target.metric == "ttft" else model.idle_tpot_s()), speed.pool


def _figures(value: float) -> float:
    return round(value, 1 - floor(log10(abs(value)))) if value else 0.0
