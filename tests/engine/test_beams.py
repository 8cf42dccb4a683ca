"""Beam search against transformers, every step computed from scratch; and its rules one by one."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine import reference
from tests.engine.beam_reference import theirs
from tests.engine.reference import Reference

from paceline_workers.engine.sampling import logprobs
from paceline_workers.engine.scheduling.search import Beam, Beams, Candidates, Search, step

pytestmark = pytest.mark.models

PROMPTS = ([5, 6, 7], [100, 3, 44, 20, 8, 1], [9])
TOKENS = 14
SETTINGS = [
    (width, stops, length_penalty, [False, True, "never"][(row + column) % 3])
    for row, (width, stops) in enumerate([(2, 8), (4, 20), (3, 0), (5, 60)])
    for column, length_penalty in enumerate([1.0, 0.0, -0.7, 2.5])
]
"""Any two values of any two of them meet."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return reference.write(tmp_path_factory.mktemp("beams"), "llama", seed=11)


def found(model: Reference, prompt: list[int], search: Search) -> Beams:
    beams = Beams()
    while not beams.done:
        rows = [model.logits([*prompt, *beam.tokens])[-1].numpy() for beam in beams.running]
        beams = step(beams, [logprobs(row, 0, search.keep)[1] for row in rows], search)
    return beams


@pytest.mark.parametrize(("width", "stops", "length_penalty", "early_stopping"), SETTINGS)
def test_beams_are_those_of_transformers(
    model: Reference, width: int, stops: int, length_penalty: float, early_stopping: Any
) -> None:
    search = Search(width, TOKENS, frozenset(range(0, 2 * stops, 2)), length_penalty, early_stopping)
    for prompt in PROMPTS:
        expected = theirs(model, prompt, search)
        beams = found(model, prompt, search)
        assert [list(beam.tokens) for beam in beams.finished] == [text for text, _ in expected]
        assert [beam.score for beam in beams.finished] == pytest.approx([score for _, score in expected], rel=1e-4)


@pytest.mark.parametrize("width", [2, 3])
def test_before_min_tokens_nothing_stops(model: Reference, width: int) -> None:
    search = Search(width, TOKENS, frozenset(range(0, 120, 2)), min_tokens=5)
    for prompt in PROMPTS:
        texts = [list(beam.tokens) for beam in found(model, prompt, search).finished]
        assert texts == [text for text, _ in theirs(model, prompt, search)]
        assert all(not search.stop_ids.intersection(text[:5]) for text in texts)


def test_the_cases_against_transformers_end_early_late_and_at_different_lengths(model: Reference) -> None:
    search = Search(4, TOKENS, frozenset(range(0, 40, 2)))
    lengths = [{len(beam.tokens) for beam in found(model, prompt, search).finished} for prompt in PROMPTS]
    assert min(map(min, lengths)) < TOKENS
    assert any(len(seen) > 1 for seen in lengths)
    assert {len(beam.tokens) for beam in found(model, PROMPTS[0], Search(4, TOKENS)).finished} == {TOKENS}


@given(st.lists(st.lists(st.floats(-5, -0.01), min_size=3, max_size=3), min_size=13, max_size=13))
def test_a_beam_as_wide_as_there_are_texts_finds_the_best_of_all(chances: list[list[float]]) -> None:
    """Three tokens out of three, each after its own context; 27 texts, and a width that loses none of them."""
    contexts = [text for length in range(3) for text in itertools.product(range(3), repeat=length)]
    table: dict[tuple[int, ...], Candidates] = {
        context: sorted(enumerate(row), key=lambda pair: -pair[1])
        for context, row in zip(contexts, chances, strict=True)
    }
    search, beams = Search(27, 3, length_penalty=0.0), Beams()
    while not beams.done:
        beams = step(beams, [table[beam.tokens] for beam in beams.running], search)
    scores = {
        text: sum(dict(table[text[:place]])[text[place]] for place in range(3))
        for text in itertools.product(range(3), repeat=3)
    }
    assert beams.finished[0].score == pytest.approx(max(scores.values()))
    assert {beam.tokens: beam.score for beam in beams.finished} == pytest.approx(scores)


def test_every_running_beam_names_the_one_that_it_continues() -> None:
    before = Beams((Beam((1,), -0.1), Beam((2,), -0.2)))
    after = step(before, [[(5, -3.0), (6, -4.0)], [(7, -0.5), (8, -2.0)]], Search(2, 9))
    assert [(beam.tokens, beam.parent) for beam in after.running] == [((2, 7), 1), ((2, 8), 1)]
    assert [beam.score for beam in after.running] == pytest.approx([-0.7, -2.2])


def test_what_stops_may_come_early_where_nothing_else_is_left() -> None:
    after = step(Beams(), [[(0, -0.1), (1, -0.2)]], Search(1, 9, frozenset({0, 1}), min_tokens=3))
    assert after.done
    assert [beam.tokens for beam in after.finished] == [(0,)]


def test_a_beam_tells_the_log_probabilities_along_its_way() -> None:
    search = Search(1, 2, top=1)
    beams = step(step(Beams(), [[(4, -0.5), (5, -2.0)]], search), [[(6, -0.25), (7, -2.0)]], search)
    assert [beam.logprobs for beam in beams.finished] == [((-0.5, [(4, -0.5)]), (-0.25, [(6, -0.25)]))]


def test_a_stop_below_the_width_does_not_finish_and_does_not_run_on() -> None:
    after = step(Beams(), [[(1, -0.1), (2, -0.2), (0, -0.3), (3, -0.4)]], Search(2, 9, frozenset({0})))
    assert after.finished == ()
    assert [beam.tokens for beam in after.running] == [(1,), (2,)]
