"""Greedy tokens and logits equal those of `transformers`, whatever else is in the batch and however it is cut."""

import random
from pathlib import Path

import pytest
import torch
from tests.engine import reference
from tests.engine.driver import Driver, load
from tests.engine.reference import MODELS, VOCAB, Reference
from tests.engine.shadow import request

from paceline_workers import demo
from paceline_workers.engine.model.batch import Batch
from paceline_workers.engine.scheduling import Chunk, Plan
from paceline_workers.engine.torch_cpu import TorchBackend
from paceline_workers.messages import Sampling

Pair = tuple[Reference, TorchBackend]
LENGTHS = (1, 15, 16, 17, 100, 260)


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


def check(expected: Reference, run: Driver, asked: dict[str, list[int]], count: int) -> None:
    for name, prompt in asked.items():
        text = run.text(name)
        assert len(text) == count
        assert text == expected.greedy(prompt, text), name


def serve(run: Driver, asked: dict[str, list[int]], count: int) -> None:
    for name, prompt in asked.items():
        run.submit(name, prompt, count)
    run.drain()


def test_logits_of_a_whole_prompt_are_those_of_transformers(pair: Pair) -> None:
    expected, backend = pair
    (tokens,) = prompts((200,))
    chunks = []
    for end in (1, 64, 65, 200):
        entry = request("a", tokens[:end])
        entry.pages = list(range(13))
        chunks.append(Chunk(entry, 0, end, True))
    for chunk in chunks:
        logits = backend.decoder(Batch.of(Plan((chunk,)), 16), backend.cache)[0]
        torch.testing.assert_close(logits, expected.logits(tokens)[chunk.count - 1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("step_tokens", [16, 50, 512])
def test_greedy_tokens_are_equal_in_any_mix_and_any_chunk_size(pair: Pair, step_tokens: int) -> None:
    asked = {f"r{place}": prompt for place, prompt in enumerate(prompts())}
    run = Driver(pair[1], step_tokens=step_tokens)
    serve(run, asked, 24)
    check(pair[0], run, asked, 24)


def test_a_request_alone_gives_the_tokens_that_it_gives_in_company(pair: Pair) -> None:
    asked = {f"r{place}": prompt for place, prompt in enumerate(prompts())}
    together = Driver(pair[1])
    serve(together, asked, 24)
    for name, prompt in asked.items():
        alone = Driver(pair[1], cache=False)
        serve(alone, {name: prompt}, 24)
        assert alone.text(name) == together.text(name)


def test_prefix_hits_change_no_token(pair: Pair) -> None:
    shared, *tails = prompts((120, 3, 20, 40))
    run = Driver(pair[1])
    asked = {"first": shared, "again": shared, **{f"t{len(tail)}": shared + tail for tail in tails}}
    for name, prompt in asked.items():
        serve(run, {name: prompt}, 12)
    assert run.core.counters.hit_tokens >= 4 * 112
    check(pair[0], run, asked, 12)


def test_preemption_by_recompute_changes_no_token(pair: Pair) -> None:
    asked = {f"r{place}": prompt for place, prompt in enumerate(prompts((30, 31, 47, 5, 16)))}
    for cache in (True, False):
        run = Driver(pair[1], pages=14, max_model_len=200, cache=cache)
        serve(run, asked, 60)
        assert run.core.counters.preemptions > 0
        check(pair[0], run, asked, 60)


def test_resuming_from_any_position_continues_the_same_text(llama: Pair) -> None:
    (prompt,) = prompts((40,))
    whole = Driver(llama[1])
    serve(whole, {"a": prompt}, 20)
    text = whole.text("a")
    run = Driver(llama[1], cache=False)
    for cut in range(1, 20):
        run.submit(f"r{cut}", prompt + text[:cut], 20 - cut)
    run.drain()
    assert all(run.text(f"r{cut}") == text[cut:] for cut in range(1, 20))


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
    resumed = Driver(llama[1])
    for place, prompt in enumerate(asked):
        resumed.submit(f"r{place}", prompt + plain[place][:17], 23, how[place])
    resumed.drain()
    assert [resumed.text(f"r{place}") for place in range(len(asked))] == [text[17:] for text in plain]


def test_sixteen_requests_at_once_take_at_most_two_fifths_of_the_steps_of_one_after_another(demo_pair: Pair) -> None:
    asked = {f"r{place}": prompt for place, prompt in enumerate(prompts(tuple(range(20, 52, 2)), 1500))}
    together, serial = Driver(demo_pair[1]), Driver(demo_pair[1])
    serve(together, asked, 24)
    for name, prompt in asked.items():
        serve(serial, {name: prompt}, 24)
    assert together.core.counters.steps <= 0.4 * serial.core.counters.steps
    check(demo_pair[0], together, asked, 24)


def test_the_demo_model_gives_the_tokens_of_transformers(demo_pair: Pair) -> None:
    asked = {f"r{place}": prompt for place, prompt in enumerate(prompts((12, 70, 300), 1500))}
    run = Driver(demo_pair[1])
    serve(run, asked, 48)
    check(demo_pair[0], run, asked, 48)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_weights_in_several_files_are_computed_in_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    expected = reference.write(tmp_path, "qwen3", dtype=dtype, shard="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    asked = {f"r{place}": prompt for place, prompt in enumerate(prompts((5, 80)))}
    run = Driver(load(tmp_path))
    serve(run, asked, 24)
    check(expected, run, asked, 24)


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
