from hypothesis import given
from hypothesis import strategies as st

from paceline_local.process import LIMIT_S, Backoff


def test_the_rest_doubles_from_half_a_second_to_thirty() -> None:
    backoff, rests = Backoff(), []
    for _ in range(8):
        backoff = backoff.after_exit(lived_s=0.1)
        rests.append(backoff.delay_s)
    assert rests == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_healthy_minute_is_forgiven() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff = backoff.after_exit(lived_s=1.0)
    assert backoff.after_exit(lived_s=60.0) == Backoff(exits=1, delay_s=0.5)


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=2000))
def test_no_history_makes_the_rest_longer_than_its_limit(lives: list[float]) -> None:
    backoff = Backoff()
    for lived in lives:
        backoff = backoff.after_exit(lived)
        assert 0 < backoff.delay_s <= LIMIT_S
