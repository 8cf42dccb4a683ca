"""When a worker that fails is asked again, and that the others' failures never leave nobody."""

from hypothesis import given
from hypothesis import strategies as st

from paceline_gateway.routing.circuit_breaker import (
    MAX_PAUSE_S,
    MIN_SAMPLES,
    PAUSE_S,
    SHARE,
    Breaker,
    BreakerState,
    ejected,
)

NOW = 100.0


def broken(pauses: int = 1) -> tuple[Breaker, float]:
    """A breaker after so many pauses, at the moment when it failed last."""
    breaker, now = Breaker(), NOW
    breaker.failed(0, now)
    for number in range(1, pauses):
        now = breaker.until
        breaker.sent(number, now)
        breaker.failed(number, now)
    return breaker, now


def test_a_failure_opens_it_and_a_probe_that_succeeds_closes_it() -> None:
    breaker, now = broken()
    assert breaker.state(now) is BreakerState.OPEN
    now += PAUSE_S
    assert breaker.state(now) is BreakerState.HALF_OPEN
    breaker.sent(7, now)
    breaker.succeeded(7)
    assert breaker.state(now) is BreakerState.CLOSED


def test_every_failed_probe_doubles_the_pause_up_to_the_longest() -> None:
    pauses = [breaker.until - now for breaker, now in (broken(count) for count in range(1, 9))]
    assert pauses == [1, 2, 4, 8, 16, 32, MAX_PAUSE_S, MAX_PAUSE_S]


def test_those_under_way_together_fail_as_one() -> None:
    breaker, now = broken()
    until = breaker.until
    for number in range(1, 60):
        breaker.failed(number, now + 0.01)
    assert breaker.until == until
    breaker.sent(100, until)
    breaker.succeeded(100)
    breaker.failed(101, until)
    assert breaker.until == until + PAUSE_S


def test_what_was_sent_before_it_failed_proves_nothing() -> None:
    breaker, now = broken()
    breaker.succeeded(5)
    assert breaker.state(now + PAUSE_S) is BreakerState.HALF_OPEN


def test_there_is_one_probe_at_a_time_until_it_has_been_silent_for_long() -> None:
    breaker, now = broken()
    now += PAUSE_S
    assert breaker.may_probe(now)
    breaker.sent(1, now)
    assert not breaker.may_probe(now)
    assert breaker.may_probe(now + PAUSE_S)


def test_a_probe_whose_client_left_makes_room_for_the_next() -> None:
    breaker, now = broken()
    now += PAUSE_S
    breaker.sent(1, now)
    breaker.left(1)
    assert breaker.may_probe(now)
    assert breaker.state(now) is BreakerState.HALF_OPEN


def test_a_worker_that_answers_only_now_and_then_pauses_for_longer_each_time() -> None:
    breaker, now, lengths = Breaker(), NOW, []
    for number in range(0, 2 * MIN_SAMPLES, 2):
        breaker.sent(number, now)
        breaker.failed(number, now)
        lengths.append(breaker.until - now)
        now = breaker.until
        breaker.sent(number + 1, now)
        breaker.succeeded(number + 1)
        assert breaker.state(now) is BreakerState.CLOSED
    assert lengths[:5] == [PAUSE_S] * 5
    assert lengths[-1] > 4 * PAUSE_S


def test_one_that_recovered_begins_with_a_short_pause_again() -> None:
    breaker, now = broken(5)
    now = breaker.until
    for number in range(100, 130):
        breaker.sent(number, now)
        breaker.succeeded(number)
    breaker.failed(200, now)
    assert breaker.until == now + PAUSE_S


@given(st.lists(st.tuples(st.integers(1, 8), st.floats(0, 60)), min_size=1, max_size=10), st.integers(0, 10))
def test_no_more_than_a_share_of_a_fleet_stays_out_beyond_a_first_pause(
    failures: list[tuple[int, float]], well: int
) -> None:
    pauses = {f"w{number}": (broken(count), ago) for number, (count, ago) in enumerate(failures)}
    now = NOW + 200.0
    breakers = {}
    for name, ((breaker, failed), ago) in pauses.items():
        breaker.until += now - ago - failed
        breaker.failed_at = now - ago
        breakers[name] = breaker
    size = len(breakers) + well
    out = ejected(breakers, size, now)
    long = [name for name in out if now >= breakers[name].failed_at + PAUSE_S]
    assert len(long) <= SHARE * size
    assert all(now < breakers[name].until for name in long)


def test_the_only_worker_is_probed_after_a_first_pause_however_often_it_failed() -> None:
    breaker, now = broken(6)
    assert ejected({"w": breaker}, 1, now + PAUSE_S / 2) == {"w"}
    assert ejected({"w": breaker}, 1, now + PAUSE_S) == set()
    breaker.sent(99, now + PAUSE_S)
    assert ejected({"w": breaker}, 1, now + PAUSE_S) == {"w"}
