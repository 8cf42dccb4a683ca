"""The promise, end to end and without I/O: a burst of four times what one replica does, cold starts of 20 s.

The discrete model of `plant` is driven by the real meter and the real policy. The SLO breaks, replicas are ordered, the
promise holds again after the cold start, and they leave afterwards; a control that may not scale stays in breach.
"""

from dataclasses import replace
from itertools import pairwise
from math import ceil

import pytest
from tests.autoscaler.factories import STEADY
from tests.autoscaler.plant import Plant, goal_of

from paceline_autoscaler.model.demand_history import DemandHistories
from paceline_autoscaler.model.estimate import USABLE, clear_s
from paceline_core.registry.enums import Direction, ScaleReason

BURST_START, BURST_END, END = 60.0, 180.0, 420.0
COLD_START_S = 20.0
SEEDS = [None, 1, 2, 3]


def burst(plant_work_s: float, calm: float = 0.5, height: float = 4.0) -> "Rate":
    return Rate(calm / plant_work_s, height / plant_work_s)


class Rate:
    """Requests per second before, during and after the burst."""

    def __init__(self, calm: float, high: float) -> None:
        self.calm, self.high = calm, high

    def __call__(self, t: float) -> float:
        return self.high if BURST_START <= t < BURST_END else self.calm


WORK_S = Plant(goal_of(), lambda _: 0.0).work_s
ENOUGH = ceil(4.0 / USABLE)


@pytest.fixture(scope="module", params=SEEDS, ids=lambda seed: f"seed {seed}" if seed else "even arrivals")
def story(request: pytest.FixtureRequest) -> Plant:
    plant = Plant(goal_of(), burst(WORK_S), cold_start_s=COLD_START_S, seed=request.param)
    plant.run(END)
    return plant


def peak(plant: Plant) -> int:
    return max(count for _, count in plant.desired_over_time)


def settled(plant: Plant) -> float:
    """When the backlog of the cold start was worked off: the last breach, plus a second."""
    late = [arrival for arrival, ttft in plant.served if ttft > plant.goal.targets[0].seconds]
    return max(late) - plant.started + 1


def test_the_slo_breaks_and_holds_again_before_the_burst_is_over(story: Plant) -> None:
    assert story.attainment(0, BURST_START) > 0.99
    assert story.attainment(BURST_START, BURST_START + COLD_START_S) < 0.5
    assert settled(story) < BURST_START + 4 * COLD_START_S
    assert story.attainment(settled(story), END) == 1.0


def test_replicas_are_ordered_within_seconds_and_not_again_while_they_start(story: Plant) -> None:
    ordered = [(t, d) for t, d in story.decisions if d.direction is Direction.UP]
    assert ordered[0][0] - BURST_START <= 5
    assert all(t - BURST_START <= COLD_START_S for t, _ in ordered)
    assert {d.reason for _, d in ordered} <= {ScaleReason.DEMAND, ScaleReason.BACKLOG}


def test_no_more_is_ordered_than_demand_needs_and_two_to_catch_up(story: Plant) -> None:
    assert ENOUGH <= peak(story) <= ENOUGH + 2


def test_replicas_leave_afterwards_and_nothing_is_lost(story: Plant) -> None:
    assert story.desired == 1
    downs = [d for _, d in story.decisions if d.direction is Direction.DOWN]
    assert {d.reason for d in downs} == {ScaleReason.CONSOLIDATE}
    assert len(story.served) == story.arrivals - story.waiting


def turns(plant: Plant) -> int:
    """How often it went up after it had gone down, or the reverse."""
    moves = [d.direction for _, d in plant.decisions if d.direction is not Direction.HOLD]
    return sum(before is not after for before, after in pairwise(moves))


def test_it_goes_up_once_and_down_once(story: Plant) -> None:
    """Within the burst it may let go of what only the catching up needed; it never needs it back."""
    assert turns(story) == 1


def test_the_control_that_may_not_scale_stays_in_breach() -> None:
    control = Plant(goal_of(least=1, most=1), burst(WORK_S), cold_start_s=COLD_START_S)
    control.run(300)
    assert control.attainment(0, BURST_START) > 0.99
    assert control.attainment(BURST_START, BURST_END) < 0.05
    assert control.desired == 1
    assert any("max of main is 1" in decision.sentence for _, decision in control.decisions)


def test_noise_around_a_steady_level_does_not_swing_the_pool() -> None:
    plant = Plant(goal_of(), lambda _: 2.6 / WORK_S, cold_start_s=COLD_START_S, seed=1)
    plant.run(900)
    moves = [t for t, decision in plant.decisions if decision.direction is not Direction.HOLD]
    assert len([t for t in moves if t > 120]) <= 2
    assert plant.attainment(120, 900) > 0.99


def test_an_engine_slower_than_its_model_is_found_out_by_attainment() -> None:
    """The model says one replica is enough for 0.76; it is a quarter slower, so the budget burns until one is added."""
    goal = goal_of(ttft_s=0.4)
    plant = Plant(goal, lambda _: 0.76 / WORK_S, COLD_START_S, slowness=1.25, seed=1, knowledge=STEADY)
    plant.run(900)
    added = [d for _, d in plant.decisions if d.direction is Direction.UP and d.reason is ScaleReason.ATTAINMENT]
    assert added
    assert isinstance(plant.state.own, DemandHistories)
    assert plant.state.own.of("both").derate < 1.0


def test_a_service_scales_to_zero_when_nobody_asks_and_wakes_for_the_first_who_does() -> None:
    def rate(t: float) -> float:
        return 0.5 / WORK_S if t < 60 or t >= 400 else 0.0

    plant = Plant(goal_of(least=0, idle_after_s=90.0), rate, cold_start_s=COLD_START_S)
    plant.run(390)
    assert plant.desired == 0
    plant.run(60)
    reasons = [d.reason for _, d in plant.decisions if d.direction is not Direction.HOLD]
    assert reasons[:2] == [ScaleReason.SCALE_TO_ZERO, ScaleReason.SCALE_FROM_ZERO]
    woken = next(t for t, d in plant.decisions if d.reason is ScaleReason.SCALE_FROM_ZERO)
    assert woken - 400 <= 1.5


def slow_burst(seed: int, cold_start_s: float, slowness: float, height: float = 2.3) -> Plant:
    """A burst on an engine that is slower than its model."""
    goal = replace(goal_of(), start_prior_s=cold_start_s)
    plant = Plant(goal, burst(WORK_S, 0.3, height), cold_start_s=cold_start_s, slowness=slowness, seed=seed)
    plant.run(BURST_END)
    return plant


def test_nothing_is_ordered_once_the_slo_is_met_again() -> None:
    """The window of attainment still holds the misses of the backlog, and they teach nothing."""
    for cold_start_s, slowness in ((10.0, 1.1), (20.0, 1.0), (20.0, 1.15)):
        for seed in range(1, 11):
            plant = slow_burst(seed, cold_start_s, slowness)
            late = [t for t, d in plant.decisions if d.direction is Direction.UP and t > settled(plant)]
            assert not late, (cold_start_s, slowness, seed)


def test_nothing_that_leaves_within_a_burst_is_needed_back() -> None:
    """The mean of the last minute says too little until the burst is a minute old."""
    for seed in range(1, 11):
        plant = slow_burst(seed, cold_start_s=10.0, slowness=1.1, height=2.0)
        assert turns(plant) <= 1, seed


def test_a_backlog_that_stays_beyond_its_target_is_never_called_steady() -> None:
    """The model says that three replicas catch up; they do not, and nobody waits for the burst to be over."""
    for seed in range(1, 11):
        plant = slow_burst(seed, cold_start_s=20.0, slowness=1.15)
        calm = [
            (seed, t, d.sentence)
            for t, d in plant.decisions
            if d.reason is ScaleReason.STEADY and (d.reading.burn or 0) > 1 and d.reading.backlog > 5
        ]
        assert not calm
        assert settled(plant) < BURST_START + 20 + 2 * clear_s(20.0)
