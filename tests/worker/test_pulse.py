"""When silence counts, and how the wait before a restart grows."""

from hypothesis import given
from hypothesis import strategies as st

from paceline_workers.server.pulse import FIRST_DELAY_S, LONGEST_DELAY_S, restart_delay, silence

times = st.floats(0, 1e6)


def test_an_idle_engine_may_be_silent_for_ever() -> None:
    assert silence(1e6, 0.0, None) == 0.0


@given(heard=times, busy=times, later=times)
def test_silence_runs_from_the_last_frame_or_from_when_work_came(heard: float, busy: float, later: float) -> None:
    now = max(heard, busy) + later
    assert silence(now, heard, busy) == now - max(heard, busy)


@given(st.integers(1, 10_000))
def test_the_delay_doubles_up_to_a_cap(failures: int) -> None:
    delay = restart_delay(failures)
    assert delay == min(FIRST_DELAY_S * 2 ** min(failures - 1, 1000), LONGEST_DELAY_S)
