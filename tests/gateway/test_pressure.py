"""When pressure on a service begins and ends: never early, never for a blip, and never on and off."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paceline_gateway.queueing.pressure import AFTER_S, MAX_GAP_S, MAX_RECOVERY_S, RECOVERY_S, PressureState

STEP_S = 0.25
Run = tuple[bool, int]
RUNS = st.lists(st.tuples(st.booleans(), st.integers(1, 120)), max_size=12)
"""So many observations in a row that say the same."""


def observed(runs: list[Run], after_s: float = AFTER_S) -> list[tuple[float, bool, bool]]:
    """Time, what was observed, and whether pressure holds then."""
    state, now, seen = PressureState(), 0.0, []
    for broken, times in runs:
        for _ in range(times):
            now += STEP_S
            state.observe(broken, now)
            seen.append((now, broken, state.holds(after_s)))
    return seen


def switches(seen: list[tuple[float, bool, bool]]) -> list[float]:
    return [later for (_, _, before), (later, _, after) in pairwise(seen) if before != after]


def for_s(seconds: float, broken: bool) -> Run:
    return broken, round(seconds / STEP_S)


def test_a_broken_promise_becomes_pressure_once_it_has_lasted() -> None:
    seen = observed([for_s(AFTER_S + STEP_S, True)])
    assert [holds for _, _, holds in seen] == [False] * (len(seen) - 1) + [True]


def test_pressure_ends_once_the_promise_was_kept_for_the_recovery_time() -> None:
    seen = observed([for_s(AFTER_S + STEP_S, True), for_s(RECOVERY_S, False)])
    assert [holds for _, broken, holds in seen if not broken] == [True] * (round(RECOVERY_S / STEP_S) - 1) + [False]


def test_pressure_that_returns_at_once_lasts_twice_as_long_each_time_and_starts_over_after_a_calm() -> None:
    def recovery_s(state: PressureState, start: float) -> float:
        now = start
        while state.holds(AFTER_S):
            now += STEP_S
            state.observe(False, now)
        return now - start

    state, now, found = PressureState(), 0.0, []
    for calm_s in (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, MAX_RECOVERY_S, 0.0):
        now += calm_s
        for _ in range(round(AFTER_S / STEP_S) + 1):
            now += STEP_S
            state.observe(True, now)
        found.append(recovery_s(state, now))
        now += found[-1]
    assert found == [10, 20, 40, 80, 160, 160, 10, 20]


@given(RUNS, st.sampled_from([0.0, 1.0, AFTER_S, 30.0]))
def test_pressure_begins_only_after_so_long_an_unbroken_run(runs: list[Run], after_s: float) -> None:
    seen = observed(runs, after_s)
    for place, (_, broken, holds) in enumerate(seen):
        if holds and not (place and seen[place - 1][2]):
            needed = seen[max(place - round(after_s / STEP_S), 0) : place + 1]
            assert broken
            assert len(needed) == round(after_s / STEP_S) + 1
            assert all(said for _, said, _ in needed)


@given(RUNS)
def test_pressure_ends_only_after_a_run_without_a_broken_promise(runs: list[Run]) -> None:
    seen = observed(runs)
    for place, (_, _, holds) in enumerate(seen):
        if place and seen[place - 1][2] and not holds:
            calm = [said for _, said, _ in seen[max(place + 1 - round(RECOVERY_S / STEP_S), 0) : place + 1]]
            assert not any(calm)


@given(RUNS)
def test_it_never_switches_on_and_off_faster_than_the_times_that_it_waits(runs: list[Run]) -> None:
    times = switches(observed(runs))
    assert all(later - earlier >= min(AFTER_S, RECOVERY_S) - 1e-9 for earlier, later in pairwise(times))


@given(RUNS, st.floats(0.0, 60.0), st.floats(0.0, 60.0))
def test_who_waits_longer_sees_pressure_only_when_others_do(runs: list[Run], one_s: float, other_s: float) -> None:
    for sooner, later in zip(observed(runs, min(one_s, other_s)), observed(runs, max(one_s, other_s)), strict=True):
        assert sooner[2] >= later[2]


@given(st.lists(st.floats(MAX_GAP_S + 0.01, 600.0), min_size=1, max_size=30))
def test_observations_that_are_too_far_apart_are_no_run(gaps: list[float]) -> None:
    state, now = PressureState(), 0.0
    for gap in gaps:
        now += gap
        state.observe(True, now)
        assert not state.holds(1.0)


def test_without_any_observation_there_is_no_pressure() -> None:
    assert not PressureState().holds(0.0)
