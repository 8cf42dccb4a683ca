"""Edits by other writers, conflicts with them, and when the autoscaler yields."""

from hypothesis import given
from hypothesis import strategies as st

from paceline_autoscaler.model.scale_conflicts import (
    CONFLICTS,
    CONFLICTS_S,
    WINDOW_S,
    ReplicaChange,
    ScaleConflicts,
)

HPA = "HorizontalPodAutoscaler web"


def edit(at: float, before: int, after: int, pool: str = "main") -> ReplicaChange:
    return ReplicaChange(at, pool, before, after, HPA)


def write(at: float, before: int, after: int, pool: str = "main") -> ReplicaChange:
    return ReplicaChange(at, pool, before, after)


def after(*changes: ReplicaChange) -> ScaleConflicts:
    machine = ScaleConflicts()
    for change in changes:
        (machine.on_edit if change.writer else machine.on_write)(change)
    return machine


def three_conflicts(at: float = 0.0, apart_s: float = 60.0) -> list[ReplicaChange]:
    """Another writer raises what the autoscaler lowers, until it yields."""
    half = apart_s / 2
    return [
        edit(at, 3, 5),
        write(at + half, 5, 4),
        edit(at + apart_s, 4, 5),
        write(at + apart_s + half, 5, 4),
        edit(at + 2 * apart_s, 4, 5),
    ]


def test_one_edit_is_named_for_ten_minutes_and_is_no_conflict() -> None:
    machine = after(edit(0, 3, 5))
    assert machine.recent_edit(599) == "pool main was scaled from 3 to 5 by HorizontalPodAutoscaler web"
    assert machine.recent_edit(WINDOW_S) == ""
    assert machine.other_scaler(1) == ""


def test_after_three_conflicts_it_yields_and_names_who_scales_too() -> None:
    changes = three_conflicts()
    assert after(*changes[:-1]).other_scaler(120) == ""
    assert after(*changes).other_scaler(120) == "pool main is scaled by HorizontalPodAutoscaler web too"
    nameless = [*changes[:-1], ReplicaChange(120, "main", 4, 5, "")]
    machine = after(*changes[:-1])
    machine.on_edit(nameless[-1])
    assert machine.other_scaler(120) == "pool main is scaled by another writer too"


def test_an_edit_that_the_next_write_reverses_counts_as_one_that_reverses_a_write_does() -> None:
    reversed_by_us = [change for n in range(3) for change in (edit(n * 1200, 3, 5), write(n * 1200 + 60, 5, 3))]
    assert after(*reversed_by_us).other_scaler(2460) != ""
    reverses_us = [change for n in range(3) for change in (write(n * 1200, 5, 3), edit(n * 1200 + 60, 3, 5))]
    assert after(*reverses_us).other_scaler(2460) != ""


def test_it_scales_again_after_ten_minutes_without_an_edit_and_yields_to_the_next_conflict() -> None:
    machine = after(*three_conflicts())
    machine.on_edit(edit(400, 5, 6))
    assert machine.other_scaler(120 + WINDOW_S) != ""
    assert machine.other_scaler(400 + WINDOW_S) == ""
    machine.on_write(write(1100, 6, 5))
    machine.on_edit(edit(1110, 5, 6))
    assert machine.other_scaler(1110) != ""


def test_an_edit_after_the_quiet_time_is_no_reason_to_yield_by_itself() -> None:
    machine = after(*three_conflicts())
    machine.on_edit(edit(1000, 5, 7))
    assert machine.other_scaler(1001) == ""


def test_another_generation_of_the_service_ends_the_yielding_at_once() -> None:
    machine = ScaleConflicts()
    machine.on_spec(1)
    for change in three_conflicts():
        (machine.on_edit if change.writer else machine.on_write)(change)
    machine.on_spec(1)
    assert machine.other_scaler(121) != ""
    machine.on_spec(2)
    assert machine.other_scaler(121) == ""
    machine.on_write(write(130, 5, 4))
    machine.on_edit(edit(140, 4, 5))
    assert machine.other_scaler(140) != ""


def test_one_that_takes_over_yields_on_and_to_the_next_conflict_after_that() -> None:
    scaler = "pool main is scaled by HorizontalPodAutoscaler web too"
    heir = ScaleConflicts()
    heir.resume(scaler, 1000)
    assert (heir.other_scaler(1599), heir.other_scaler(1600)) == (scaler, "")
    heir.on_write(write(1700, 5, 4))
    heir.on_edit(edit(1710, 4, 5))
    assert heir.other_scaler(1710) == scaler


STEPS = st.lists(
    st.tuples(st.booleans(), st.integers(1, 1500), st.sampled_from(["main", "spot"]), st.integers(-3, 3).filter(bool)),
    max_size=30,
)


def played(steps: list[tuple[bool, int, str, int]]) -> tuple[ScaleConflicts, list[ReplicaChange], list[float]]:
    """The machine after these steps (by another, seconds later, pool, difference); the edits; when it yielded."""
    machine, at, replicas = ScaleConflicts(), 0.0, {"main": 50, "spot": 50}
    edits, yielded = [], []
    for by_another, later, pool, difference in steps:
        at += later
        if not by_another and machine.other_scaler(at):
            continue  # it writes nothing while it yields
        change = ReplicaChange(at, pool, replicas[pool], replicas[pool] + difference, HPA if by_another else "")
        replicas[pool] += difference
        before = machine.other_scaler(at)
        if by_another:
            machine.on_edit(change)
            edits.append(change)
        else:
            machine.on_write(change)
        if machine.other_scaler(at) and not before:
            yielded.append(at)
    return machine, edits, yielded


@given(STEPS)
def test_it_yields_to_nobody_who_has_not_edited_three_times_within_the_hour(
    steps: list[tuple[bool, int, str, int]],
) -> None:
    _, edits, yielded = played(steps)
    for at in yielded:
        within = [one for one in edits if at - CONFLICTS_S - WINDOW_S <= one.at <= at]
        assert len(within) >= CONFLICTS


@given(STEPS)
def test_ten_minutes_without_an_edit_always_end_it(steps: list[tuple[bool, int, str, int]]) -> None:
    machine, edits, _ = played(steps)
    if edits:
        assert machine.other_scaler(edits[-1].at + WINDOW_S) == ""
        assert machine.recent_edit(edits[-1].at + WINDOW_S) == ""


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 1500)), max_size=30), st.sampled_from([1, -1]))
def test_whoever_moves_the_same_way_is_no_opponent(steps: list[tuple[bool, int]], way: int) -> None:
    _, _, yielded = played([(other, later, "main", way) for other, later in steps])
    assert yielded == []
