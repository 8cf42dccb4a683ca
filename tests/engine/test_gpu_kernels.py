"""The kernels themselves, put together into steps: Triton's interpreter on a CPU, compiled ones and graphs on a GPU."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.engine import reference
from tests.engine.driver import Driver, load
from tests.engine.gpu_bench import bench
from tests.engine.greedy import Tally, serve
from tests.engine.reference import Masked
from tests.kernels.conftest import CUDA

from paceline_planner.hardware import Dtype
from paceline_workers.engine.backends.gpu.decoder import LAUNCHES
from paceline_workers.engine.kv_cache.attention_window import AttentionWindow
from paceline_workers.engine.model.weights import TORCH_TYPES
from paceline_workers.messages import Sampling

pytestmark = pytest.mark.kernels
SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "eos_token_id": 63,
}
ROOM: dict[str, Any] = {"max_seqs": 3, "kv_pages": 8, "max_model_len": 64, "step_tokens": 32}


def prompt(length: int, salt: int = 0) -> list[int]:
    return [(place * place * 7 + salt) % 61 for place in range(length)]


def served(folder: Path, asked: Mapping[str, Sequence[int]], count: int, **engine: Any) -> Driver:
    backend = bench(folder, kernels=LAUNCHES, **{**ROOM, **engine})
    if CUDA:
        backend.runner.warm(lambda: None)
    run = Driver(backend, ahead=True)
    serve(run, asked, count)
    return run


@pytest.mark.parametrize("name", ["llama", "llama-one-kv-head-bias", "qwen3"])
def test_greedy_tokens_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    heads = 1 if "one" in name else 2
    expected = reference.write(tmp_path, name, **{**SMALL, "num_key_value_heads": heads})
    asked, tally = {"a": prompt(4), "b": prompt(1, 5)}, Tally()
    run = served(tmp_path, asked, 3)
    tally.check_all(expected, run, asked, 3)
    assert tally.excluded == 0


def test_a_window_with_sinks_is_seen_by_chunks_and_by_single_tokens(tmp_path: Path) -> None:
    plain, tally = reference.write(tmp_path, "llama", **SMALL), Tally()
    asked = {"a": prompt(21)}
    run = served(tmp_path, asked, 2, attention_window=16, sink_tokens=3, step_tokens=16)
    tally.check_all(Masked(tmp_path, plain.model, AttentionWindow(16, 3)), run, asked, 2)


def test_a_prompt_in_chunks_beside_a_decode_and_a_hit(tmp_path: Path) -> None:
    expected, tally = reference.write(tmp_path, "llama", **SMALL), Tally()
    backend = bench(tmp_path, kernels=LAUNCHES, **{**ROOM, "step_tokens": 16})
    run = Driver(backend, ahead=True)
    run.submit("short", prompt(2, 3), 3)
    run.submit("long", prompt(17), 2)
    run.drain()
    serve(run, {"again": prompt(17)}, 2)
    assert run.core.counters.hit_tokens == 16
    tally.check(expected, prompt(2, 3), run.text("short"))
    for name in ("long", "again"):
        tally.check(expected, prompt(17), run.text(name))


def test_seeded_draws_are_those_of_the_host(tmp_path: Path) -> None:
    reference.write(tmp_path, "llama", **SMALL)
    backend = bench(tmp_path, kernels=LAUNCHES, **ROOM)
    ways = [Sampling(temperature=0.9, top_p=0.8, seed=4, logprobs=2), Sampling(temperature=1.1, presence=0.5, seed=5)]
    texts = []
    for each in (Driver(load(tmp_path, **ROOM)), Driver(backend, ahead=True)):
        for number, way in enumerate(ways):
            each.submit(f"r{number}", prompt(4, number), 4, way)
        each.drain()
        texts.append([each.text(f"r{number}") for number in range(2)])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("kv", [Dtype.INT8, *([Dtype.FP8, Dtype.BF16] if CUDA else [])])
def test_narrow_pages_change_probabilities_by_as_little_as_their_type_does(tmp_path: Path, kv: Dtype) -> None:
    """Numbers of a head are off by up to 1/254 (int8), 1/16 (fp8), 1/256 (bf16) of the greatest, or of themselves."""
    expected = reference.write(tmp_path, "llama", **SMALL)
    backend = bench(tmp_path, kernels=LAUNCHES, kv=kv, **ROOM)
    run = Driver(backend, ahead=True)
    run.submit("a", prompt(5), 2, Sampling(temperature=0.0, logprobs=0))
    run.drain()
    assert backend.cache.data.dtype == TORCH_TYPES[kv]
    text = [*prompt(5), *run.text("a")]
    exact = expected.logits(text).log_softmax(-1)[-2, text[-1]]
    (told,) = run.events[-1].logprobs
    assert 1e-6 < abs(told[0] - float(exact)) < (0.3 if kv is Dtype.FP8 else 0.03)
