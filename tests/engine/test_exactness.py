"""Greedy tokens and logits equal those of `transformers`, whatever else is in the batch and however it is cut."""

import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine import reference
from tests.engine.driver import Driver, load
from tests.engine.greedy import MOST_EXCLUDED, OUR_ERROR, Tally, serve
from tests.engine.reference import MODELS, VOCAB, Reference
from tests.engine.reference_scheduler import request

from paceline_workers import demo
from paceline_workers.engine.backends.cpu.backend import CpuBackend, Runner
from paceline_workers.engine.sampling import Sampler
from paceline_workers.engine.scheduling import Chunk, StepPlan
from paceline_workers.messages import Sampling

pytestmark = pytest.mark.models

Pair = tuple[Reference, CpuBackend]
LENGTHS = (1, 15, 16, 17, 100, 260)
CUTS = ((260,), (200, *(1,) * 60), (100, 17, 1, 1, 31, 33, 77))


def prompts(lengths: tuple[int, ...] = LENGTHS, vocab: int = VOCAB) -> list[list[int]]:
    chance = random.Random(7)
    return [[chance.randrange(vocab) for _ in range(length)] for length in lengths]


@pytest.fixture(scope="module", params=list(MODELS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    expected = reference.write(tmp_path_factory.mktemp(request.param), request.param)
    return expected, load(expected.folder, step_tokens=512)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    expected = reference.write(tmp_path_factory.mktemp("llama"), "llama", seed=3)
    return expected, load(expected.folder, step_tokens=512)


@pytest.fixture(scope="module")
def demo_pair() -> Pair:
    return reference.open_folder(demo.FOLDER), load(demo.FOLDER)


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    counts = Tally()
    yield counts
    capture: Any = request.config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write(f"\n{counts.summary}\n")
    assert counts.excluded <= MOST_EXCLUDED * counts.compared


@pytest.mark.parametrize("cuts", CUTS, ids=["whole", "singles", "mixed"])
def test_logits_are_within_twice_the_error_of_transformers(pair: Pair, cuts: tuple[int, ...]) -> None:
    expected, backend = pair
    (tokens,) = prompts((260,))
    exact = expected.exact(tokens)
    entry = request("a", tokens)
    entry.pages = list(range(30, 13, -1))
    start = 0
    for count in cuts:
        plan = StepPlan((Chunk(entry, start, count, True),))
        logits = backend.decoder(backend.decoder.lay_out(plan, 16), backend.cache)[0]
        start += count
        assert (logits - exact[start - 1]).abs().max() <= OUR_ERROR * expected.error, start


@pytest.mark.parametrize("step_tokens", [23, 512])
def test_greedy_tokens_are_equal_in_any_mix_and_any_chunk_size(pair: Pair, tally: Tally, step_tokens: int) -> None:
    asked = {f"r{place}": prompt for place, prompt in enumerate(prompts())}
    run = Driver(pair[1], step_tokens=step_tokens)
    serve(run, asked, 16)
    tally.check_all(pair[0], run, asked, 16)


def test_greedy_tokens_of_a_request_alone_are_equal(pair: Pair, tally: Tally) -> None:
    for prompt in prompts((15, 100, 260)):
        run = Driver(pair[1], cache=False)
        serve(run, {"a": prompt}, 16)
        tally.check_all(pair[0], run, {"a": prompt}, 16)


def test_prefix_hits_change_no_token(pair: Pair, tally: Tally) -> None:
    shared, *tails = prompts((120, 3, 20, 40))
    run = Driver(pair[1])
    asked = {"first": shared, "again": shared, **{f"t{len(tail)}": shared + tail for tail in tails}}
    for name, prompt in asked.items():
        serve(run, {name: prompt}, 12)
    assert run.core.counters.hit_tokens >= 4 * 112
    tally.check_all(pair[0], run, asked, 12)


@pytest.mark.parametrize("cache", [True, False])
def test_preemption_by_recompute_changes_no_token(pair: Pair, tally: Tally, cache: bool) -> None:
    asked = {f"r{place}": prompt for place, prompt in enumerate(prompts((30, 31, 47, 5, 16)))}
    run = Driver(pair[1], pages=11, max_model_len=160, cache=cache)
    serve(run, asked, 28)
    assert run.core.counters.preemptions > 0
    tally.check_all(pair[0], run, asked, 28)


@pytest.mark.parametrize("threaded", [False, True])
def test_results_one_step_late_change_no_token(llama: Pair, tally: Tally, threaded: bool) -> None:
    expected, backend = llama
    asked = {f"r{place}": prompt for place, prompt in enumerate(prompts((30, 31, 47, 5, 16, 1)))}
    with ThreadPoolExecutor(1) as pool:
        runner = Runner(backend.decoder, backend.cache, Sampler(), pool if threaded else None)
        run = Driver(replace(backend, runner=runner), pages=14, max_model_len=200, ahead=True, step_tokens=23)
        serve(run, asked, 44)
    assert run.core.counters.preemptions > 0
    tally.check_all(expected, run, asked, 44)


def test_resuming_from_any_position_continues_the_same_text(pair: Pair, tally: Tally) -> None:
    (prompt,) = prompts((190,))
    whole = Driver(pair[1])
    serve(whole, {"a": prompt}, 20)
    text = whole.text("a")
    run = Driver(pair[1], cache=False)
    for cut in range(1, 20):
        run.submit(f"r{cut}", prompt + text[:cut], 20 - cut)
    run.drain()
    for cut in range(1, 20):
        tally.check(pair[0], prompt, text[:cut] + run.text(f"r{cut}"))


def test_seeded_sampling_does_not_depend_on_batch_chunks_preemption_or_resumption(llama: Pair) -> None:
    asked = prompts((30, 31, 47, 5, 16))
    how = [Sampling(temperature=0.9, top_p=0.9, top_k=50, seed=number) for number in range(len(asked))]

    def run(driver: Driver) -> list[list[int]]:
        for place, prompt in enumerate(asked):
            driver.submit(f"r{place}", prompt, 40, how[place])
        driver.drain()
        return [driver.text(f"r{place}") for place in range(len(asked))]

    plain = run(Driver(llama[1]))
    tight = Driver(llama[1], pages=12, max_model_len=150)
    assert run(tight) == plain
    assert tight.core.counters.preemptions > 0
    assert run(Driver(llama[1], step_tokens=16)) == plain
    assert run(Driver(llama[1], ahead=True)) == plain
    resumed = Driver(llama[1])
    for place, prompt in enumerate(asked):
        resumed.submit(f"r{place}", prompt + plain[place][:17], 23, how[place])
    resumed.drain()
    assert [resumed.text(f"r{place}") for place in range(len(asked))] == [text[17:] for text in plain]


def test_sixteen_requests_at_once_take_at_most_two_fifths_of_the_steps_of_one_after_another(
    demo_pair: Pair, tally: Tally
) -> None:
    asked = {f"r{place}": prompt for place, prompt in enumerate(prompts(tuple(range(20, 52, 2)), 1500))}
    together, serial = Driver(demo_pair[1]), Driver(demo_pair[1])
    serve(together, asked, 24)
    for name, prompt in asked.items():
        serve(serial, {name: prompt}, 24)
    assert together.core.counters.steps <= 0.4 * serial.core.counters.steps
    tally.check_all(demo_pair[0], together, asked, 24)


def test_the_demo_model_gives_the_texts_of_transformers_in_full(demo_pair: Pair) -> None:
    asked = {f"r{place}": prompt for place, prompt in enumerate(prompts((12, 70, 300), 1500))}
    run = Driver(demo_pair[1])
    serve(run, asked, 48)
    for name, prompt in asked.items():
        text = run.text(name)
        assert len(text) == 48
        assert text == demo_pair[0].greedy(prompt, text), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_weights_in_several_files_are_computed_in_float32(
    tmp_path: Path, tally: Tally, dtype: torch.dtype
) -> None:
    expected = reference.write(tmp_path, "qwen3", dtype=dtype, shard="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    asked = {f"r{place}": prompt for place, prompt in enumerate(prompts((5, 80)))}
    run = Driver(load(tmp_path))
    serve(run, asked, 24)
    tally.check_all(expected, run, asked, 24)


def test_logprobs_are_those_of_transformers(llama: Pair) -> None:
    (prompt,) = prompts((50,))
    run = Driver(llama[1])
    run.submit("a", prompt, 6, Sampling(temperature=0.0, logprobs=3))
    run.drain()
    logs = llama[0].logits(prompt + run.text("a")).log_softmax(-1)
    for event, row in zip(run.events, logs[len(prompt) - 1 :], strict=False):
        ((chosen, top),) = event.logprobs
        best = row.topk(3)
        assert [token for token, _ in top] == best.indices.tolist()
        assert [value for _, value in top] == pytest.approx(best.values.tolist(), abs=1e-4)
        assert chosen == pytest.approx(top[0][1])
