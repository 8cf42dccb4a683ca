"""A delayed acknowledgement seen in the times to the first content, and a leak seen in the resident memory."""

import pytest
from benchmarks.gateway.memory import growth
from benchmarks.gateway.waiting import base, late

QUIET = [1.0] * 90
DELAYED = [44.0] * 10


def test_requests_that_are_late_by_forty_milliseconds_are_counted() -> None:
    assert late(QUIET + DELAYED, 1.0) == pytest.approx(0.1)
    assert late(QUIET, 1.0) == 0.0


@pytest.mark.parametrize("first_ms", [35.9, 61.0, 500.0])
def test_what_is_late_by_less_or_more_is_no_such_delay(first_ms: float) -> None:
    assert late([first_ms], 1.0) == 0.0


def test_a_queue_is_not_taken_for_a_delay_and_a_delay_of_every_request_not_for_a_queue() -> None:
    assert base(20.0, 1.0) == 20.0
    assert base(45.0, 1.0) == 1.0
    assert late(DELAYED, base(44.0, 1.0)) == 1.0


def test_without_an_answer_everything_is_late() -> None:
    assert late([], 0.0) == 1.0


def test_growth_is_that_of_the_line_through_the_samples_over_their_mean() -> None:
    assert growth([100.0] * 50) == 0.0
    assert growth([100.0 + at for at in range(11)]) == pytest.approx(10 / 105)
    assert growth([100.0, 130.0] * 50) == pytest.approx(0.0, abs=0.01)
    assert growth([7.0]) == 0.0
