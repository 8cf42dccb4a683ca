"""The machine's timer: never early."""

import pytest
from tests.engine.manual import ManualTimer

from paceline_workers.engine.timer import SystemTimer, quickest


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.0001, 0.003])
def test_a_wait_never_ends_before_its_target(seconds: float) -> None:
    timer = SystemTimer()
    target = timer.now() + seconds
    timer.until(target)
    assert timer.now() >= target


def test_what_holds_up_some_runs_is_no_part_of_what_one_takes() -> None:
    timer, rounds = ManualTimer(), iter([0.5, 0.3, 0.002, 0.4, 0.003])
    assert quickest(lambda: timer.pause(next(rounds)), timer) == pytest.approx(0.002)
