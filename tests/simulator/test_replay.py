"""One copy of a trace is played as it was logged; several are the same trace, shifted."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.errors import InvalidInput
from paceline_simulator.replay import Replay
from paceline_simulator.traces import TraceRequest

TRACE = [TraceRequest(float(second), 100 + second, 10) for second in range(60)]


def test_one_copy_is_the_log_itself_for_every_seed() -> None:
    assert Replay().requests(TRACE, 1) == Replay().requests(TRACE, 2) == TRACE
    assert Replay().seconds(TRACE) == 60.0


def test_a_part_of_the_log_begins_at_0() -> None:
    replay = Replay(start_s=10.0, span_s=20.0)
    played = replay.requests(TRACE, 1)
    assert [request.prompt_tokens for request in played] == list(range(110, 130))
    assert (played[0].at, played[-1].at, replay.seconds(TRACE)) == (0.0, 19.0, 20.0)


def test_arrivals_that_a_log_rounds_to_one_instant_are_spread() -> None:
    batched = [TraceRequest(at, 5, 5) for at in (0.0, 0.0, 0.0, 3.0)]
    assert [request.at for request in Replay().requests(batched, 1)] == [0.0, 1.0, 2.0, 3.0]


@given(st.integers(2, 5), st.integers(0, 99), st.none() | st.floats(0.1, 30.0))
def test_copies_are_all_there_within_the_span_and_differ_by_seed(times: int, seed: int, crowd_s: float | None) -> None:
    replay = Replay(times, crowd_s)
    played = replay.requests(TRACE, seed)
    assert set(Counter(request.prompt_tokens for request in played).values()) == {times}
    assert all(0 <= request.at < replay.seconds(TRACE) for request in played)
    assert played != replay.requests(TRACE, seed + 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"times": 0}, "--times: 0 copies offer nothing"),
        ({"crowd_s": 5.0}, "--crowd: .* add --times"),
        ({"span_s": 0.0}, "--span: is 0"),
    ],
)
def test_a_replay_of_nothing_is_refused_by_option(fields: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Replay(**fields)  # type: ignore[arg-type]
