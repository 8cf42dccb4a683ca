"""Waits in the fluid's queue, worked out by hand: distances between the curves of arrival and service."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_autoscaler.policies.fluid_queue import DeadlineQueue, Part
from paceline_planner.replica import RequestMix

ONE_SECOND = RequestMix(1000.0, 1000.0, 100.0, 1.0, 0.0, 0.0)
"""A request whose prompt takes a second."""


def queue_of(*cohorts: tuple[float, float, float]) -> DeadlineQueue:
    queue = DeadlineQueue()
    for start, end, requests in cohorts:
        queue.join(start, end, requests, ONE_SECOND)
    return queue


def test_a_queue_without_enough_capacity_lets_later_requests_wait_longer() -> None:
    queue = queue_of((0.0, 10.0, 20.0))
    (early,) = queue.serve(10.0, inf, 0.0, 10.0)
    assert (early.first, early.last, early.requests) == (0.0, 5.0, 10.0)
    assert (early.wait, early.last_wait) == (0.0, 5.0)
    (late,) = queue.serve(10.0, inf, 10.0, 20.0)
    assert (late.wait, late.last_wait) == (5.0, 10.0)
    assert (queue.requests, queue.work) == (0.0, 0.0)


def test_a_step_in_demand_is_waited_for_until_it_is_worked_off() -> None:
    queue = queue_of((0.0, 1.0, 30.0), (1.0, 2.0, 5.0))
    step = list(queue.serve(10.0, inf, 0.0, 1.0))
    step += list(queue.serve(40.0, inf, 1.0, 2.0))
    assert [(part.wait, part.last_wait) for part in step] == [
        (0.0, pytest.approx(2 / 3)),
        (pytest.approx(2 / 3), pytest.approx(0.5)),
        (pytest.approx(0.5), 0.0),
    ]


def test_the_share_in_time_is_where_the_wait_crosses_the_limit() -> None:
    part = Part(0.0, 1.0, 10.0, ONE_SECOND, wait=1.0, last_wait=5.0)
    assert [part.share_within(limit) for limit in (0.5, 1.0, 2.0, 5.0, 9.0)] == [0.0, 0.0, 0.25, 1.0, 1.0]
    falling = Part(0.0, 1.0, 10.0, ONE_SECOND, wait=5.0, last_wait=1.0)
    assert falling.share_within(2.0) == 0.25


def test_a_part_counts_by_the_time_of_its_arrival() -> None:
    part = Part(8.0, 12.0, 10.0, ONE_SECOND, 0.0, 0.0)
    assert [part.share_between(*window) for window in ((0.0, 20.0), (0.0, 9.0), (9.0, 11.0), (12.0, 20.0))] == [
        1.0,
        0.25,
        0.5,
        0.0,
    ]


def test_no_more_requests_are_served_than_there_is_room_for() -> None:
    queue = queue_of((0.0, 1.0, 10.0))
    (part,) = queue.serve(10.0, 4.0, 0.0, 1.0)
    assert part.requests == 4.0
    assert queue.requests == 6.0


def test_those_that_wait_too_long_leave() -> None:
    queue = queue_of((0.0, 10.0, 10.0), (10.0, 20.0, 10.0))
    gone = list(queue.expire(15.0))
    assert [part.requests for part in gone] == [10.0, 5.0]
    assert queue.requests == 5.0
    assert queue.oldest_s(20.0) == 5.0


amounts = st.floats(0.0, 50.0)


@given(st.lists(st.tuples(amounts, amounts, amounts), max_size=20))
def test_all_that_joins_is_served_expires_or_waits(steps: list[tuple[float, float, float]]) -> None:
    queue, left = DeadlineQueue(lambda _: 2.0), 0.0
    for second, (requests, work, room) in enumerate(steps):
        queue.join(second, second + 1, requests, ONE_SECOND)
        parts = [*queue.serve(work, room, second, second + 1), *queue.expire(second - 3)]
        assert all(part.wait >= 0 and part.last_wait >= 0 for part in parts)
        left += sum(part.requests for part in parts)
    assert left + queue.requests == pytest.approx(sum(requests for requests, _, _ in steps), abs=1e-6)
    assert queue.work == pytest.approx(queue.requests, abs=1e-6)


def test_what_is_overdue_lets_those_in_time_go_first() -> None:
    """Nine of each wait, ten may go: of nine requests, eight are in time and one is overdue; then the others."""
    queue = DeadlineQueue(lambda _: 5.0)
    queue.join(0.0, 0.0, 9.0, ONE_SECOND)
    queue.join(10.0, 10.0, 9.0, ONE_SECOND)
    parts = list(queue.serve(9.0, inf, 10.0, 11.0))
    assert [(part.first, part.requests) for part in parts] == [(10.0, 8.0), (0.0, 1.0)]
    parts = list(queue.serve(9.0, inf, 11.0, 12.0))
    assert [(part.first, part.requests) for part in parts] == [(10.0, 1.0), (0.0, 8.0)]
    assert queue.requests == 0.0


def test_a_part_of_a_cohort_can_be_overdue() -> None:
    queue = DeadlineQueue(lambda _: 5.0)
    queue.join(0.0, 10.0, 10.0, ONE_SECOND)
    parts = list(queue.serve(9.0, inf, 9.0, 10.0))
    assert [(part.first, part.last, part.requests) for part in parts] == [(4.0, 10.0, 6.0), (0.0, 3.0, 3.0)]
