"""An embedding is the last token's hidden state as `transformers` computes it, of length 1, whatever else runs."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tests.engine import reference
from tests.engine.driver import Driver, load
from tests.engine.reference import VOCAB, Reference
from torch import Tensor
from torch.nn.functional import normalize

from paceline_workers.engine.backends.cpu.backend import CpuBackend

pytestmark = pytest.mark.models

LENGTHS = (1, 16, 17, 100, 250)
TOLERANCE = 1e-5
"""Of numbers whose squares add up to 1."""
Pair = tuple[Reference, CpuBackend]


@pytest.fixture(scope="module", params=["llama", "llama-untied-odd-heads", "mistral-window", "qwen3"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    expected = reference.write(tmp_path_factory.mktemp(request.param), request.param)
    return expected, load(expected.folder, step_tokens=512)


def prompts() -> dict[str, list[int]]:
    chance = random.Random(11)
    return {f"e{length}": [chance.randrange(VOCAB - 1) for _ in range(length)] for length in LENGTHS}


@torch.inference_mode()
def wanted(expected: Reference, tokens: Sequence[int]) -> Tensor:
    states: Any = expected.model.model(torch.tensor([list(tokens)])).last_hidden_state
    return normalize(states[0, -1], dim=-1)


def vectors(driver: Driver) -> dict[str, Tensor]:
    ends = [event for event in driver.events if event.vector]
    assert all((event.ids, event.finish) == ([], "stop") for event in ends)
    return {event.id: torch.frombuffer(bytearray(event.vector), dtype=torch.float32) for event in ends}


def embed(driver: Driver, asked: dict[str, list[int]]) -> None:
    for name, tokens in asked.items():
        driver.submit(name, tokens, 1).embed = True


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("step_tokens", [23, 512])
def test_vectors_are_those_of_transformers_in_any_mix(pair: Pair, step_tokens: int, ahead: bool) -> None:
    expected, backend = pair
    driver = Driver(backend, cache=False, step_tokens=step_tokens, ahead=ahead)
    alone = Driver(backend, cache=False)
    for one in (driver, alone):
        one.submit("text", list(range(40)), 30)
    embed(driver, prompts())
    driver.drain()
    alone.drain()
    made = vectors(driver)
    assert made.keys() == prompts().keys()
    for name, tokens in prompts().items():
        assert (made[name] - wanted(expected, tokens)).abs().max() <= TOLERANCE
        assert made[name].norm().item() == pytest.approx(1.0, abs=TOLERANCE)
    assert driver.text("text") == alone.text("text")


def test_a_prefix_hit_computes_the_last_token_and_gives_the_same_vector(pair: Pair) -> None:
    expected, backend = pair
    driver = Driver(backend)
    tokens = prompts()["e100"][:64]
    embed(driver, {"first": tokens})
    driver.drain()
    embed(driver, {"second": tokens})
    driver.drain()
    assert [event.cached for event in driver.events] == [0, 48]
    assert (vectors(driver)["second"] - wanted(expected, tokens)).abs().max() <= TOLERANCE


def test_preemption_changes_no_vector_and_leaves_no_page(pair: Pair) -> None:
    expected, backend = pair
    windowed = expected.model.config.model_type == "mistral"  # gives pages back as it goes
    driver = Driver(backend, pages=10 if windowed else 20, step_tokens=40)
    for place in range(3):
        driver.submit(f"t{place}", prompts()["e100"][place : place + 40], 70)
    embed(driver, prompts())
    driver.drain()
    assert driver.core.counters.preemptions
    for name, tokens in prompts().items():
        assert (vectors(driver)[name] - wanted(expected, tokens)).abs().max() <= TOLERANCE
    assert driver.core.memory.pool.held == 0


def test_nothing_is_computed_after_a_vector(pair: Pair) -> None:
    driver = Driver(pair[1], ahead=True)
    embed(driver, {"one": [1, 2, 3]})
    assert driver.drain() == 1
