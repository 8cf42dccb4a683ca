"""Log-probabilities of a prompt's tokens are those of `transformers`, whatever is cached, cut or preempted."""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.engine import reference
from tests.engine.driver import Driver, load
from tests.engine.reference import VOCAB, Reference
from tests.engine.reference_scheduler import request, scheduler
from torch import Tensor

from paceline_workers.engine.backends.cpu.backend import CpuBackend, Runner
from paceline_workers.engine.sampling import Sampler
from paceline_workers.engine.scheduling import Request, SampledToken
from paceline_workers.engine.scheduling.cost import UNKNOWN
from paceline_workers.engine.scheduling.step_builder import StepBuilder
from paceline_workers.messages import PromptLogprob

LENGTHS = (2, 16, 17, 100, 190)
TOP = 5
TOLERANCE = 1e-4
Pair = tuple[Reference, CpuBackend]


@pytest.fixture(scope="module", params=["llama", "mistral-window", "qwen3"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    expected = reference.write(tmp_path_factory.mktemp(request.param), request.param)
    return expected, load(expected.folder, step_tokens=512)


def prompts() -> dict[str, list[int]]:
    chance = random.Random(7)
    return {f"p{length}": [chance.randrange(VOCAB - 1) for _ in range(length)] for length in LENGTHS}


def ask(driver: Driver, asked: dict[str, list[int]], max_tokens: int = 4) -> list[Request]:
    made = []
    for name, tokens in asked.items():
        entry = request(name, tokens, max_tokens)
        entry.prompt_logprobs = TOP
        assert driver.core.submit(entry) is None
        made.append(entry)
    return made


def told(driver: Driver, name: str) -> list[PromptLogprob]:
    """What came for it, all before its first token."""
    events = [event for event in driver.events if event.id == name]
    tokens = [place for place, event in enumerate(events) if event.ids or event.finish]
    assert not any(event.prompt_logprobs for event in events[tokens[0] :])
    return [score for event in events for score in event.prompt_logprobs]


@torch.inference_mode()
def wanted(expected: Reference, tokens: Sequence[int]) -> Tensor:
    logits: Any = expected.model(torch.tensor([list(tokens)])).logits
    return torch.log_softmax(logits[0].double(), dim=-1)


def check(pair: Pair, driver: Driver, asked: dict[str, list[int]]) -> None:
    for name, tokens in asked.items():
        rows, scores = wanted(pair[0], tokens), told(driver, name)
        assert len(scores) == len(tokens) - 1
        for row, token, (own, rank, best) in zip(rows, tokens[1:], scores, strict=False):
            assert own == pytest.approx(row[token].item(), abs=TOLERANCE)
            assert abs(int((row > row[token]).sum()) + 1 - rank) <= 1
            assert [value for _, value in best] == pytest.approx(row.topk(TOP).values.tolist(), abs=TOLERANCE)
            assert all(value == pytest.approx(row[other].item(), abs=TOLERANCE) for other, value in best)


@pytest.mark.models
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("step_tokens", [23, 512])
def test_they_are_those_of_transformers_in_any_chunks(pair: Pair, step_tokens: int, ahead: bool) -> None:
    driver = Driver(pair[1], step_tokens=step_tokens, ahead=ahead)
    driver.submit("text", list(range(40)), 30)
    ask(driver, prompts())
    driver.drain()
    check(pair, driver, prompts())
    alone = Driver(pair[1], cache=False)
    alone.submit("text", list(range(40)), 30)
    alone.drain()
    assert driver.text("text") == alone.text("text")


@pytest.mark.models
def test_what_is_cached_is_computed_again_for_them_and_still_found_by_others(pair: Pair) -> None:
    driver = Driver(pair[1])
    tokens = prompts()["p100"]
    driver.submit("before", tokens, 4)
    driver.drain()
    ask(driver, {"asked": tokens})
    driver.drain()
    driver.submit("behind", tokens, 4)
    driver.drain()
    check(pair, driver, {"asked": tokens})
    cached = {event.id: event.cached for event in driver.events}
    assert cached["asked"] == 0
    assert cached["behind"] >= 80
    assert driver.text("asked") == driver.text("before") == driver.text("behind")


@pytest.mark.models
@pytest.mark.parametrize("threaded", [False, True])
def test_a_preemption_tells_none_twice(pair: Pair, threaded: bool) -> None:
    asked = {f"r{place}": tokens for place, tokens in enumerate(list(prompts().values())[:3] * 2)}
    with ThreadPoolExecutor(1) as pool:
        runner = Runner(pair[1].decoder, pair[1].cache, Sampler(), pool if threaded else None)
        driver = Driver(replace(pair[1], runner=runner), pages=8, max_model_len=120, step_tokens=23, ahead=True)
        ask(driver, asked, 30)
        driver.drain()
    assert driver.core.counters.preemptions > 0
    check(pair, driver, asked)


@pytest.mark.models
def test_max_tokens_0_scores_a_prompt_as_long_as_the_context_and_draws_nothing(pair: Pair) -> None:
    asked = prompts()
    driver = Driver(pair[1], max_model_len=max(LENGTHS))
    ask(driver, asked, 0)
    driver.drain()
    check(pair, driver, asked)
    ends = [event for event in driver.events if event.finish]
    assert [(event.ids, event.finish) for event in ends] == [([], "length")] * len(asked)


def test_nothing_of_a_request_that_left_meanwhile_is_told() -> None:
    core = scheduler()
    entry = request("a", [1, 2, 3, 4, 5, 6], 3)
    entry.prompt_logprobs = 0
    assert core.submit(entry) is None
    plan = core.step(0.0)
    (chunk,) = plan.chunks
    assert chunk.scored == 5
    core.abort("a")
    assert core.commit(plan, [SampledToken(1)], 0.0, [[(-1.0, 1, [])] * 5]) == []


@pytest.mark.parametrize(("start", "count", "scored"), [(0, 6, 5), (0, 4, 4), (4, 2, 1), (6, 1, 0)])
def test_a_chunk_scores_the_tokens_that_a_token_of_the_prompt_follows(start: int, count: int, scored: int) -> None:
    for logprobs, expected in ((-1, 0), (0, scored)):
        entry = request("a", [1, 2, 3, 4, 5, 6])
        entry.tokens, entry.computed, entry.room, entry.prompt_logprobs = [*entry.tokens, 7], start, 7, logprobs
        step = StepBuilder(count, UNKNOWN, 1)
        step.add_prefill(entry)
        assert [(chunk.count, chunk.scored) for chunk in step.chunks] == [(count, expected)]
