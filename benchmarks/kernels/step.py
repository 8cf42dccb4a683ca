"""A whole decode step of an 8B Llama with random weights, as the worker runs it: all layers, output matrix, a token.

The step is recorded into one graph, as the worker does it; what the host does beside it is no part of this. Its limit
is the bytes that every step must read, weights and contexts, at the copy rate of the same run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, cast

import torch
from benchmarks.harness import Bar, Row
from benchmarks.kernels.bench import Bench, Model
from benchmarks.kernels.timing import Contestant
from torch import Tensor

from paceline_kernels.paging import Sequences
from paceline_kernels.sample.launch import Scratch, sample
from paceline_kernels.sample.state import SampleOutput, SamplerState, SamplingParams
from paceline_planner.hardware import Dtype
from paceline_planner.shapes import ModelShape
from paceline_workers.engine.backends.cpu.linear import LinearFactory
from paceline_workers.engine.backends.gpu.cache import GpuCache
from paceline_workers.engine.backends.gpu.decoder import GpuDecoder, Step
from paceline_workers.engine.backends.gpu.device import opened
from paceline_workers.engine.kv_cache.attention_window import AttentionWindow
from paceline_workers.engine.model import decoder
from paceline_workers.engine.model.config import Generation, ModelConfig
from paceline_workers.engine.model.rope import Rope
from paceline_workers.engine.model.weights import Weights

LONGEST = 8192
SMALL = 0.02
"""Weights are so small that nothing overflows on the way through the layers."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """So many sequences with contexts of so many tokens; `share` of the limit that must be reached."""

    name: str
    count: int
    length: int
    share: float


STEPS = (Decoded("batch 1", 1, 64, 229 / 286), Decoded("64 x 4k", 64, 4096, 4570 / 5570))


@dataclass(frozen=True, slots=True)
class Random:
    """A folder's weights, made up: norms are 1, all else is noise."""

    bench: Bench

    @property
    def dtype(self) -> torch.dtype:
        """Of matrices."""
        return self.bench.dtype

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor of this shape."""
        if "norm" in name:
            return torch.ones(shape, dtype=dtype or self.dtype, device=self.bench.device)
        return self.bench.randn(*shape, dtype=dtype).mul_(SMALL)

    def check_others(self, harmless: Sequence[str]) -> None:
        """There are none."""


def measure(bench: Bench, steps: Sequence[Decoded] = STEPS) -> Iterator[Row]:
    """Tokens a second, beside those of the limit."""
    device, settings = opened(bench.device), _settings(bench.model, bench.dtype)
    weights, shape = cast("Weights", Random(bench)), settings.shape
    loaded = decoder.load(settings, weights, LinearFactory("plain"), lambda: None)
    model = GpuDecoder(loaded, device, LONGEST)
    for one in steps:
        pages = -(-one.length // bench.model.page)
        cache = GpuCache(shape, one.count * pages, bench.model.page, device=device)
        cache.data.normal_()
        times = bench.compare(f"step, {one.name}", {"ours": _step(bench, model, cache, one, pages)})["ours"]
        matrices = shape.layers * shape.layer_matrices + shape.vocabulary_matrix
        read = matrices * 2 + one.count * one.length * bench.model.layers * bench.model.kv_bytes
        most = one.count / (read / bench.limits.copy.rate)
        speeds = [one.count / seconds for seconds in times]
        bar, spread = Bar(one.share * most, at_least=True), max(speeds) - min(speeds)
        yield Row(f"decode step of 8B, {one.name}", median(speeds), "tokens/s", most, spread, bar)


def _step(bench: Bench, model: GpuDecoder, cache: GpuCache, one: Decoded, pages: int) -> Contestant:
    def numbers(value: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.full((one.count,), value, dtype=dtype, device=bench.device)

    table = torch.randperm(one.count * pages).int().view(one.count, pages).to(bench.device)
    singles = Sequences(table, numbers(one.length, torch.int32), numbers(0, torch.int32))
    last = one.length - 1
    slots = table[:, last // bench.model.page].long() * bench.model.page + last % bench.model.page
    works = model.works(one.count)
    drawn = torch.arange(one.count, device=bench.device)
    step = Step(numbers(1), numbers(last), slots, drawn, singles, None, works)
    states, logits = model.room(one.count)
    state, counts = SamplerState.empty(one.count, bench.model.vocab, bench.device), numbers(one.length, torch.int32)
    for slot in range(one.count):
        state.join(slot, SamplingParams(temperature=0.0), [1])
    room = (
        state,
        Scratch.empty(one.count, bench.model.vocab, bench.device),
        SampleOutput.empty(one.count, bench.device),
    )
    seats = drawn.int()

    def call() -> Any:
        model.states(step, cache.layers, out=states)
        return sample(model.logits(states, out=logits), seats, counts, *room)

    return Contestant([torch.inference_mode()(call)])


def _settings(model: Model, dtype: torch.dtype) -> ModelConfig:
    kind = Dtype.BF16 if dtype == torch.bfloat16 else Dtype.FP32
    shape = ModelShape(
        name="random",
        layers=model.layers,
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        ffn=model.ffn,
        vocab=model.vocab,
        max_context=LONGEST,
        weight_dtype=kind,
        kv_dtype=kind,
    )
    rope = Rope.of("default", model.head_dim, 500000.0, LONGEST, {})
    return ModelConfig(shape, 1e-5, rope, (AttentionWindow(),) * model.layers, Generation())
