"""A trace as load over HTTP: what was logged is offered, and blocks that were shared are shared text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_cli.bench.profiles import Calibration, Writer
from paceline_cli.bench.trace_load import trace_profile
from paceline_core.errors import InvalidInput
from paceline_simulator.replay import Replay
from paceline_simulator.traces import BLOCK, TraceRequest

TRACE = [TraceRequest(0.0, 600, 20, (1, 2)), TraceRequest(4.0, 700, 10, (1, 3)), TraceRequest(6.0, 50, 30)]


def test_arrivals_and_lengths_are_offered_as_they_were_logged() -> None:
    profile, arrivals = trace_profile("log.csv", TRACE, Replay(), seed=3)
    assert [(a.number, a.at, a.phase, a.prompt_tokens, a.output_tokens, a.blocks) for a in arrivals] == [
        (0, 0.0, "trace", 600, 20, (1, 2)),
        (1, 4.0, "trace", 700, 10, (1, 3)),
        (2, 6.0, "trace", 50, 30, ()),
    ]
    assert (profile.name, profile.prompt_tokens, profile.output_tokens) == ("trace log.csv", 450, 20)
    assert profile.duration == 9.0
    assert profile.phases[0].rate == pytest.approx(3 / 9)


def test_the_options_choose_a_part_and_its_copies() -> None:
    _, arrivals = trace_profile("log.csv", TRACE, Replay(times=2, start_s=3.0, span_s=4.0), seed=1)
    assert len(arrivals) == 4
    assert {arrival.prompt_tokens for arrival in arrivals} == {700, 50}
    first, second = (arrival.blocks for arrival in arrivals if arrival.blocks)
    assert not set(first) & set(second)


def test_a_part_without_requests_is_refused_with_the_end_of_the_trace() -> None:
    with pytest.raises(InvalidInput, match=r"no request from 60 s .* its last one is at 6 s"):
        trace_profile("log.csv", TRACE, Replay(start_s=60.0), seed=1)


costs = st.builds(Calibration, st.floats(0.5, 3.0), st.floats(0.0, 40.0))


@given(costs, st.integers(BLOCK, 4000), st.integers(0, 5))
def test_equal_blocks_are_equal_text_up_to_where_prompts_differ(cost: Calibration, tokens: int, shared: int) -> None:
    blocks = -(-tokens // BLOCK)
    one, other = tuple(range(blocks)), (*range(min(shared, blocks)), *range(100, 100 + max(blocks - shared, 0)))
    writer, words = Writer(1), cost.words(tokens)
    texts = [writer.shared_text(words, names, cost.block_words).split() for names in (one, other)]
    assert [len(text) for text in texts] == [words, words]
    common = min(min(shared, blocks) * cost.block_words, words)
    assert texts[0][:common] == texts[1][:common]
    assert common == words or texts[0][common : common + 16] != texts[1][common : common + 16]


def test_a_seed_has_its_own_texts() -> None:
    first, second = (Writer(seed).shared_text(300, (1, 2), 200) for seed in (1, 2))
    assert first != second
