"""Beam search by the engine, model and pages included, against transformers: in any company, and after preemption."""

from pathlib import Path

import pytest
from tests.engine import reference
from tests.engine.beam_reference import theirs
from tests.engine.driver import Driver, load
from tests.engine.reference import Reference
from tests.engine.reference_scheduler import beams

from paceline_workers.engine.backends.cpu.backend import CpuBackend
from paceline_workers.engine.scheduling.search import Search

pytestmark = pytest.mark.models

Pair = tuple[Reference, CpuBackend]
PROMPTS = {f"p{length}": [(place * 7 + length) % reference.VOCAB for place in range(length)] for length in (31, 48, 5)}
STOPS = frozenset(range(0, 120, 2))
SEARCHES = {
    "p31": Search(4, 20, STOPS),
    "p48": Search(3, 25, frozenset(range(0, 40, 2)), 2.0, "never", min_tokens=4),
    "p5": Search(5, 18, STOPS, -0.5, early_stopping=True),
}
AHEAD = pytest.mark.parametrize("ahead", [False, True], ids=["at once", "one step late"])


@pytest.fixture(scope="module", params=["llama-untied-odd-heads", "mistral-window", "qwen3"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    model = reference.write(tmp_path_factory.mktemp(request.param), request.param, seed=5)
    return model, load(model.folder)


@pytest.fixture(scope="module")
def expected(pair: Pair) -> dict[str, list[list[int]]]:
    return {name: [text for text, _ in theirs(pair[0], PROMPTS[name], search)] for name, search in SEARCHES.items()}


def answers(run: Driver) -> dict[str, list[list[int]]]:
    """All three searches, and a plain request beside each."""
    for name, search in SEARCHES.items():
        ids = [f"{name}-{place}" for place in range(search.width)]
        lead = beams(ids[0], PROMPTS[name], search, ids, min_tokens=search.min_tokens)
        assert run.core.submit(lead) is None
        run.submit(f"plain-{name}", PROMPTS[name], 30)
    run.drain()
    return {name: [run.text(f"{name}-{place}") for place in range(search.width)] for name, search in SEARCHES.items()}


@AHEAD
def test_searches_in_one_batch_find_what_transformers_finds(
    pair: Pair, expected: dict[str, list[list[int]]], ahead: bool
) -> None:
    run = Driver(pair[1], ahead=ahead)
    assert answers(run) == expected
    assert run.core.memory.pool.held == 0


@AHEAD
def test_searches_that_preempt_each_other_find_the_same(
    pair: Pair, expected: dict[str, list[list[int]]], ahead: bool
) -> None:
    run = Driver(pair[1], pages=15, max_seqs=16, step_tokens=128, ahead=ahead)
    assert answers(run) == expected
    assert run.core.counters.preemptions > 0
    assert run.core.memory.pool.held == 0


def test_requests_beside_searches_say_what_they_say_alone(pair: Pair) -> None:
    alone, run = Driver(pair[1]), Driver(pair[1], pages=14, max_seqs=8, step_tokens=24)
    for name, prompt in PROMPTS.items():
        alone.submit(f"plain-{name}", prompt, 30)
    alone.drain()
    answers(run)
    assert all(run.text(f"plain-{name}") == alone.text(f"plain-{name}") for name in PROMPTS)


def test_a_search_of_a_short_model_ends_at_its_context(tmp_path: Path) -> None:
    model = reference.write(tmp_path, "llama", seed=5)
    run = Driver(load(model.folder, max_model_len=40))
    search = Search(3, 9)
    run.core.submit(beams("s", PROMPTS["p31"], search))
    run.drain()
    assert run.text("s") == theirs(model, PROMPTS["p31"], search)[0][0]
