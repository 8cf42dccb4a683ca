"""Whole fluid runs: queues worked out by hand, what is paid, what policies see, and what holds for every demand."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autoscaler.factories import goal

from paceline_autoscaler.policies.constant import Constant
from paceline_autoscaler.policies.fluid import run
from paceline_autoscaler.policies.fluid_pool import STEPS_AHEAD
from paceline_autoscaler.policies.fluid_types import CLASS, DemandBin, FluidPlan, FluidResult
from paceline_autoscaler.policies.replica_policy import BaselinePolicy, ProductionPolicy
from paceline_autoscaler.state import PoolSpeed
from paceline_autoscaler.types import DEMAND_WINDOWS_S, Observation, SloTarget
from paceline_core.registry.enums import ReplicaState
from paceline_core.wire import StepTime

STEP = StepTime(base=0.0, prefill=1e-4, observations=50)
"""A prompt of 1,000 tokens takes 0.1 s and nothing else takes any: a replica serves ten a second."""
TARGETS = (SloTarget(CLASS, "ttft", 0.99, 1.0), SloTarget(CLASS, "tpot", 0.99, 0.2))
SERVICE = replace(goal(targets=TARGETS), step_tokens=1000)


def demand(rate: float, seconds: float = 10.0, prompt: float = 1000.0, output: float = 1.0) -> DemandBin:
    count = rate * seconds
    return DemandBin(
        count, count * prompt, count * output, 0.0, count * prompt**2 / 2, count * output * (prompt + output / 2)
    )


def plan_of(*rates: float, replicas: int = 1, **changes: Any) -> FluidPlan:
    bins = [demand(rate) if rate else DemandBin() for rate in rates]
    made = FluidPlan(SERVICE, PoolSpeed("main", STEP, 256, 1_000_000), bins, replicas, bin_s=10.0)
    return replace(made, ttft=TARGETS[0], tpot=TARGETS[1], **changes)


@dataclass
class Script:
    """Orders by time; keeps what it saw."""

    orders: Mapping[float, int]
    period_s: float = 1.0
    lag_s: float = 0.0
    retires: bool = False
    seen: list[Observation] = field(default_factory=list)

    def replicas(self, observation: Observation) -> dict[str, int]:
        self.seen.append(observation)
        return {"main": max((at, count) for at, count in self.orders.items() if at <= observation.now)[1]}


def static(replicas: int) -> BaselinePolicy:
    return BaselinePolicy(Constant(replicas))


def queued(result: FluidResult) -> list[float]:
    return [round(moment.queued, 1) for moment in result.timeline]


def test_a_queue_grows_by_what_a_replica_cannot_serve() -> None:
    result = run(plan_of(15.0, 15.0, 0.0, 0.0), static(1))
    assert queued(result) == [0.0, 50.0, 100.0, 0.0]
    assert result.answered == pytest.approx(result.offered) == pytest.approx(300)


def test_the_wait_of_a_step_in_demand_decides_attainment() -> None:
    result = run(plan_of(15.0, 0.0), static(1))
    # the wait grows by half a second each second; a step takes 0.1 s, as the own prefill does
    assert result.attainment == pytest.approx((1.0 - 0.1 - STEPS_AHEAD * 0.1) / 0.5 / 10, abs=1e-3)


def test_replicas_that_are_there_from_the_start_teach_the_autoscaler_nothing_about_starts() -> None:
    policy = ProductionPolicy()
    run(plan_of(5.0, 5.0, replicas=1), policy)
    assert policy.state.learned.starts == ()


def test_policies_see_what_the_requests_of_the_last_minute_took() -> None:
    policy = Script({0: 1})
    cached = replace(demand(5.0), cached_tokens=10_000.0)
    run(plan_of(replicas=1, bins=[cached] * 10), policy)
    completed = policy.seen[90].demand.classes[0].completed
    assert completed is not None
    assert completed.requests == pytest.approx(5 * DEMAND_WINDOWS_S[-1], rel=0.02)
    per_request = [value / completed.requests for value in astuple(completed)]
    assert per_request == pytest.approx([1.0, 1000.0, 200.0, 1.0, 500_000.0, 1000.5])


def test_a_replica_that_starts_in_mid_bin_serves_from_then_on() -> None:
    policy = Script({0: 1, 1: 2})
    result = run(plan_of(15.0, 15.0, 15.0, replicas=1, lead_s=11.5), policy)
    # at 12.5 s, 62.5 requests wait; then five fewer each second
    assert queued(result) == [0.0, 50.0, 25.0]


def test_a_start_is_paid_from_its_order() -> None:
    result = run(plan_of(*[1.0] * 10, lead_s=30.0), Script({0: 1, 20: 2}))
    assert result.gpu_s == pytest.approx(100 + 80, abs=2)
    assert [(m.ready, m.starting) for m in result.timeline] == [*[(1, 0)] * 3, *[(1, 1)] * 2, *[(2, 0)] * 5]


def test_a_start_that_is_no_longer_wanted_ends_at_once() -> None:
    result = run(plan_of(*[1.0] * 10, lead_s=60.0), Script({0: 1, 20: 2, 40: 1}))
    assert result.gpu_s == pytest.approx(100 + 20, abs=2)


def test_a_drain_is_paid_until_its_streams_have_moved() -> None:
    slow = PoolSpeed("main", StepTime(base=0.05, prefill=1e-5, observations=50), 256, 1_000_000)
    bins = [demand(2.0, output=400.0)] * 10
    result = run(replace(plan_of(replicas=2, score=(0.0, 100.0)), bins=bins, speed=slow), Script({0: 2, 60: 1}))
    assert 100 + 60 + 5 > result.gpu_s > 100 + 60
    assert result.answered == pytest.approx(200)


def test_starts_differ_around_the_lead_in_turn() -> None:
    result = run(plan_of(*[1.0] * 20, lead_s=100.0, lead_spread=0.2), Script({0: 1, 10: 9}))
    ready = [moment.ready for moment in result.timeline]
    assert (ready[7], ready[11], ready[15]) == (1, 1 + 4, 1 + 8)  # 31 % sooner, the lead, 31 % later


def test_a_start_may_take_no_time() -> None:
    assert queued(run(plan_of(15.0, 15.0, 15.0, lead_s=0.0), Script({0: 1, 10: 2}))) == [0.0, 50.0, 0.0]


@pytest.mark.parametrize("bin_s", [0.1, 0.3, 7.0, 30.0])
def test_bins_of_any_width_bring_the_same_requests(bin_s: float) -> None:
    bins = [demand(5.0, seconds=bin_s)] * 20
    result = run(replace(plan_of(), bins=bins, bin_s=bin_s), static(1))
    assert result.attained == pytest.approx(result.offered) == pytest.approx(100 * bin_s)


def test_only_the_scored_window_counts_and_is_paid() -> None:
    result = run(plan_of(5.0, 5.0, 5.0, 5.0, score=(10.0, 30.0)), static(1))
    assert result.offered == pytest.approx(result.attained) == pytest.approx(100)
    assert result.gpu_s == 20


def test_the_hours_of_the_scored_window_add_up_to_its_sums() -> None:
    plan = plan_of(*[2.0, 8.0, 5.0] * 260, replicas=5, score=(600.0, 7500.0))
    result = run(plan, static(5))
    assert [round(hour.gpu_s) for hour in result.hours] == [5 * 3600, 5 * 3300]
    assert sum(hour.offered for hour in result.hours) == pytest.approx(result.offered)
    assert sum(hour.gpu_s for hour in result.hours) == pytest.approx(result.gpu_s)
    met = [sum(hour.met[place] for hour in result.hours) for place in range(2)]
    assert min(met) == pytest.approx(result.attained, rel=0.02)
    assert result.end >= 7800.0


def test_our_policy_decides_alike_without_measured_latencies() -> None:
    plan = plan_of(*[2.0, 2.0, 9.0, 9.0, 4.0] * 12, lead_s=30.0)
    measured, without = run(plan, ProductionPolicy()), run(replace(plan, latencies=False), ProductionPolicy())
    assert without.timeline == measured.timeline
    assert [(at, decision.sentence) for at, decision in without.decisions] == [
        (at, decision.sentence) for at, decision in measured.decisions
    ]


def test_a_run_that_is_stopped_ends_there_and_is_the_same_until_then() -> None:
    plan, looks = plan_of(*[5.0] * 100, replicas=5), iter([False] * 40 + [True])
    result, whole = run(plan, static(5), lambda: next(looks)), run(plan, static(5))
    assert result.end == 400.0
    assert result.timeline == whole.timeline[: len(result.timeline)]
    assert result.offered == pytest.approx(0.4 * whole.offered, rel=0.01)


def test_requests_that_wait_too_long_are_never_answered() -> None:
    result = run(plan_of(5.0, replicas=0, hold_s=20.0), static(0))
    assert result.offered == pytest.approx(50)
    assert result.answered == result.attainment == 0
    full = run(plan_of(15.0, queue_limit=20.0), static(1))
    assert full.answered < full.offered


def test_an_empty_demand_attains_and_costs_its_replicas() -> None:
    result = run(plan_of(0.0, 0.0, replicas=2), static(2))
    assert (result.offered, result.attainment, result.gpu_s) == (0.0, 1.0, 40)
    assert run(plan_of(), static(1)).timeline == ()


def test_a_policy_sees_old_signals_and_the_replicas_of_now() -> None:
    policy = Script({0: 1, 20: 2}, period_s=15.0, lag_s=10.0)
    run(plan_of(15.0, 15.0, 15.0, 15.0, lead_s=10.0), policy)
    assert [seen.now for seen in policy.seen] == [11.0, 26.0, 41.0]
    third = policy.seen[2]
    (cls,) = third.demand.classes
    assert third.demand_age_s == 10.0
    assert [flow.arrivals for flow in cls.flows] == [pytest.approx(15 * (s - 0.5)) for s in (5, 15, 31)]
    assert [flow.seconds for flow in cls.flows] == [5, 15, 31]
    assert cls.flows[-1].prompt_tokens == pytest.approx(cls.flows[-1].arrivals * 1000)
    assert third.pools[0].count(ReplicaState.READY) == 2
    assert len(third.pools[0].loads) == 1  # the second one was not ready yet


def test_a_policy_sees_the_queue_and_the_misses() -> None:
    policy = Script({0: 1})
    run(plan_of(15.0, 15.0, 15.0, 15.0, 15.0), policy)
    last = next(seen for seen in policy.seen if seen.now == 46.0)
    (cls,) = last.demand.classes
    load = last.pools[0].loads[0]
    assert cls.queued + load.waiting == pytest.approx(46 * 5, abs=1)
    assert load.running + load.waiting == pytest.approx(5, abs=1)  # half a second of prompts
    assert 230 / 15 < cls.oldest_s < 46  # an overdue request, which lets those in time go first
    assert cls.queued_tokens == pytest.approx(1000 * cls.queued, abs=1000)
    assert last.attainment is not None
    ttft, tpot = last.attainment.verdicts
    assert (ttft.slo, tpot.slo) == ("ttft_p99", "tpot_p99")
    assert ttft.bad > 0.9 * (ttft.good + ttft.bad)
    assert tpot.bad == 0
    assert last.latencies[0].seconds > 10


def test_our_policy_scales_a_pool_and_its_decisions_are_kept() -> None:
    result = run(plan_of(*[5.0] * 6, *[25.0] * 30, lead_s=20.0), ProductionPolicy())
    assert max(moment.ready for moment in result.timeline) >= 3
    assert result.decisions
    assert result.decisions[0][1].replicas > 1
    assert queued(result)[-1] == 0


rates = st.lists(st.floats(0, 60), max_size=8)


@settings(max_examples=25, deadline=None)
@given(rates, st.integers(1, 5))
def test_every_request_is_answered_if_it_may_wait(found: list[float], replicas: int) -> None:
    result = run(plan_of(*found, replicas=replicas, hold_s=inf), static(replicas))
    assert result.answered == pytest.approx(result.offered, abs=1e-6)
    assert result.offered == pytest.approx(sum(rate * 10 for rate in found))


@settings(max_examples=25, deadline=None)
@given(rates, st.integers(1, 5))
def test_more_replicas_never_attain_less(found: list[float], replicas: int) -> None:
    fewer, more = (run(plan_of(*found, replicas=count), static(count)) for count in (replicas, replicas + 1))
    assert more.attained >= fewer.attained - 1e-6


def test_equal_inputs_give_equal_results() -> None:
    plan = plan_of(5.0, 25.0, 25.0, 5.0, 40.0, 0.0, lead_s=5.0)
    assert run(plan, ProductionPolicy()) == run(plan, ProductionPolicy())
