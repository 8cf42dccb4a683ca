"""When silence counts, and how the wait before a restart grows."""

from hypothesis import given
from hypothesis import strategies as st

from paceline_gateway.config import HttpLimits
from paceline_workers.config import WorkerConfig
from paceline_workers.server.watchdog import (
    FIRST_DELAY_S,
    LONGEST_DELAY_S,
    PATIENCE,
    CpuActivity,
    hung,
    restart_delay,
    silence,
)

times = st.floats(0, 1e6)


def test_an_idle_engine_may_be_silent_for_ever() -> None:
    assert silence(1e6, 0.0, None) == 0.0


@given(heard=times, busy=times, later=times)
def test_silence_runs_from_the_last_frame_or_from_when_work_came(heard: float, busy: float, later: float) -> None:
    now = max(heard, busy) + later
    assert silence(now, heard, busy) == now - max(heard, busy)


def test_who_says_and_does_nothing_is_hung() -> None:
    assert not hung(30.0, 0.0, 0.0, 0.0, limit=30.0)
    assert hung(30.1, 0.0, 0.0, 0.0, limit=30.0)
    assert not hung(1e6, 0.0, 0.0, None, limit=30.0)


def test_a_long_step_is_no_hang_but_an_endless_one_is() -> None:
    last = 30.0 * PATIENCE
    assert not hung(last, 0.0, last - 1, 0.0, limit=30.0)
    assert hung(last + 1, 0.0, last, 0.0, limit=30.0)


def test_a_process_is_at_work_while_it_uses_a_share_of_a_core() -> None:
    work = CpuActivity(at=100.0, reported_at=100.0)
    for now, seconds in ((101.0, 0.5), (102.0, 0.52), (103.0, 0.525), (104.0, 0.525)):
        work.report(seconds, now)
    assert work.at == 102.0


def test_what_nobody_knows_of_a_process_is_nothing_against_it() -> None:
    work = CpuActivity(at=100.0, reported_at=100.0)
    work.report(None, 150.0)
    assert work.at == 150.0


def test_a_worker_tells_of_a_hung_engine_long_before_its_gateway_stops_waiting() -> None:
    assert 2 * WorkerConfig.model_fields["watchdog_s"].default <= HttpLimits().stream_idle_timeout_s


@given(st.integers(1, 10_000))
def test_the_delay_doubles_up_to_a_cap(failures: int) -> None:
    delay = restart_delay(failures)
    assert delay == min(FIRST_DELAY_S * 2 ** min(failures - 1, 1000), LONGEST_DELAY_S)
