"""The machine's timer: never early."""

import pytest

from paceline_workers.engine.timer import SystemTimer


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.0001, 0.003])
def test_a_wait_never_ends_before_its_target(seconds: float) -> None:
    timer = SystemTimer()
    target = timer.now() + seconds
    timer.until(target)
    assert timer.now() >= target
