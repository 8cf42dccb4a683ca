"""Draws the next tokens of a batch: three launches of fixed size, nothing read back.

The sizes below are first guesses until `make gpu` has chosen them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline_kernels.checks import ceil_div, power_of_2
from paceline_kernels.sample.kernel import draw_kernel, pick_kernel
from paceline_kernels.sample.state import SampleOutput, SamplerState
from paceline_kernels.sample.threshold_kernel import threshold_kernel

__all__ = ["Launch", "Scratch", "launch_for", "sample"]
LEAST_CHUNK = 1024


@dataclass(frozen=True, slots=True)
class Launch:
    """A program of `warps` draws from `chunk` token ids; one for filters has `tile_warps` and `tile` ids at a time."""

    chunk: int = 2048
    warps: int = 8
    tile: int = 4096
    tile_warps: int = 16


FEW = Launch(chunk=1024, warps=4)


def launch_for(rows: int) -> Launch:
    """For `rows` rows: few rows need many programs each. In any case 16 warps of 128 registers fit a multiprocessor."""
    return FEW if rows <= 4 else Launch()


@dataclass(frozen=True, slots=True)
class Scratch:
    """Values passed between the launches, for each row and chunk; every step reuses the memory.

    `candidates` [rows, vocab] float32 is where rows with filters search for their thresholds.
    """

    cutoffs: Tensor
    lasts: Tensor
    candidates: Tensor
    scores: Tensor
    tokens: Tensor
    tops: Tensor
    peaks: Tensor
    masses: Tensor

    @classmethod
    def empty(cls, rows: int, vocab: int, device: torch.device | str, chunk: int = LEAST_CHUNK) -> "Scratch":
        """For steps of at most this many rows, with chunks no smaller than `chunk`."""
        width = ceil_div(vocab, chunk)

        def made(dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        floats = [made(torch.float32, rows, width) for _ in range(3)]
        return cls(
            made(torch.float32, rows),
            made(torch.int32, rows),
            made(torch.float32, rows, vocab),
            made(torch.float64, rows, width),
            made(torch.int32, rows, width),
            *floats,
        )


def sample(
    logits: Tensor,
    slots: Tensor,
    positions: Tensor,
    state: SamplerState,
    scratch: Scratch,
    drawn: SampleOutput,
    *,
    launch: Launch | None = None,
) -> SampleOutput:
    """One token for each row of `logits` [rows, vocab], for the request in its slot; counts the token in the slot.

    `slots` [rows] int32, each slot at most once, -1: no request. `positions` [rows] int32: tokens that the request has
    so far, and so the position of the one to draw. Logits are float32, bfloat16 or float16, their row stride is free.
    `drawn` and `scratch` may have more rows, of which the first are used.
    Raises ValueError if the arguments do not fit together.
    """
    rows, vocab = logits.shape
    chosen = launch or launch_for(rows)
    _check(logits, slots, positions, state, scratch, drawn, chosen)
    if not rows:
        return drawn
    asked = (state.numbers, state.whole, state.bias_ids, state.biases, state.stop_ids, state.counts)
    row = (logits, logits.stride(0), slots, positions)
    found = (scratch.scores, scratch.tokens, scratch.tops, scratch.peaks, scratch.masses)
    width, chunks = scratch.scores.shape[1], ceil_div(vocab, chosen.chunk)
    thresholds = (scratch.cutoffs, scratch.lasts)
    threshold_kernel[(rows,)](
        *row, *asked, *thresholds, scratch.candidates, vocab, TILE=chosen.tile, num_warps=chosen.tile_warps
    )
    draw_kernel[(rows, chunks)](
        *row, *asked, *thresholds, *found, width, vocab, SIZE=chosen.chunk, num_warps=chosen.warps
    )
    pick_kernel[(rows,)](
        *row, state.numbers, state.whole, state.stop_ids, state.counts, *found, width, vocab,
        drawn.tokens, drawn.logprob, drawn.best, drawn.top_ids, drawn.top_logprobs, drawn.stopped.view(torch.int8),
        chunks, SIZE=chosen.chunk, CHUNKS=power_of_2(chunks), num_warps=chosen.warps,
    )  # fmt: skip
    return drawn


def _check(
    logits: Tensor,
    slots: Tensor,
    positions: Tensor,
    state: SamplerState,
    scratch: Scratch,
    drawn: SampleOutput,
    launch: Launch,
) -> None:
    rows, vocab = logits.shape
    if vocab != state.vocab:
        raise ValueError(f"logits have {vocab} token ids, the state has {state.vocab}")
    if logits.stride(1) != 1:
        raise ValueError("logits must be contiguous within a row")
    if slots.shape != (rows,) or positions.shape != (rows,):
        raise ValueError(f"slots and positions must have {rows} entries, one a row of logits")
    if slots.dtype != torch.int32 or positions.dtype != torch.int32:
        raise ValueError("slots and positions must be int32")
    room, ids = scratch.candidates.shape
    if room < rows or ids != vocab or scratch.scores.shape[1] < ceil_div(vocab, launch.chunk):
        raise ValueError(f"scratch is for {room} rows of {ids} token ids, or for larger chunks")
    if len(drawn.tokens) < rows:
        raise ValueError(f"drawn has {len(drawn.tokens)} rows, logits have {rows}")
