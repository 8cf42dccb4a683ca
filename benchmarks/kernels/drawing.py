"""Drawing a batch's next tokens on the device, by what its requests ask for; at least, all logits are read once."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from benchmarks.harness import Row
from benchmarks.kernels.bench import Bench, microseconds_row, share_row
from benchmarks.kernels.timing import Call, Contestant

from paceline_kernels.sample.launch import Scratch, sample
from paceline_kernels.sample.state import SampleOutput, SamplerState, SamplingParams

ASKED = {
    "greedy": SamplingParams(temperature=0.0),
    "temperature": SamplingParams(temperature=0.8),
    "top-p, penalties, logprobs": SamplingParams(temperature=0.8, top_p=0.9, presence=0.5, logprobs=5),
}
ROWS = (1, 64)


def measure(bench: Bench, counts: tuple[int, ...] = ROWS) -> Iterator[Row]:
    """The time of each form, and of the largest batch the share of the copy rate."""
    for name, asked in ASKED.items():
        for count in counts:
            size = count * bench.model.vocab * bench.dtype.itemsize
            calls = [drawn(bench, count, asked) for _ in range(bench.copies(size))]
            title = f"sample, {count} rows, {name}"
            times = bench.compare(title, {"ours": Contestant(calls)})["ours"]
            yield microseconds_row(title, times)
            if count == counts[-1]:
                yield share_row(title, times, size, bench.limits.copy)


def drawn(bench: Bench, count: int, asked: SamplingParams, launch: Any = None) -> Call:
    """One call on logits of its own, for requests that all ask for the same."""
    vocab, device = bench.model.vocab, bench.device
    state = SamplerState.empty(count, vocab, device)
    for slot in range(count):
        state.join(slot, asked, [1, 2, 3])
    slots = torch.arange(count, dtype=torch.int32, device=device)
    positions = torch.full_like(slots, 3)
    room = (state, Scratch.empty(count, vocab, device), SampleOutput.empty(count, device))
    return partial(sample, bench.randn(count, vocab), slots, positions, *room, launch=launch)
