"""The kernels' references in the places of their launches: exact, quick on a CPU, and blind to how work is divided."""

from typing import Any

from torch import Tensor

from paceline_kernels.add_rmsnorm import reference as norms
from paceline_kernels.paged_decode.reference import paged_attention
from paceline_kernels.paged_prefill import reference as prefill
from paceline_kernels.paged_prefill.tiles import Tiles
from paceline_kernels.paging import AttentionMask, Pages, Sequences
from paceline_kernels.rope_append import reference as rope
from paceline_kernels.sample import reference as sampling
from paceline_kernels.sample.state import SampleOutput, SamplerState
from paceline_kernels.silu_mul import reference as gates
from paceline_workers.engine.backends.gpu.decoder import Kernels


def add_rmsnorm(x: Tensor | None, residual: Tensor, weight: Tensor, eps: float, *, out: Tensor) -> Tensor:
    return out.copy_(norms.add_rmsnorm(x, residual, weight, eps))


def rope_append(
    qkv: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, pages: Pages, *, out: Tensor, **norm: Any
) -> Tensor:
    return out.copy_(rope.rope_append(qkv, cos, sin, slots, pages, **norm))


def silu_mul(gate_up: Tensor, *, out: Tensor) -> Tensor:
    return out.copy_(gates.silu_mul(gate_up))


def plan_work(*_: Any) -> None:
    pass


def paged_decode(
    query: Tensor, pages: Pages, sequences: Sequences, rule: AttentionMask, work: Any, *, out: Tensor
) -> Tensor:
    return out.copy_(paged_attention(query, pages, sequences, rule)[0])


def paged_prefill(
    query: Tensor,
    starts: Tensor,
    pages: Pages,
    sequences: Sequences,
    rule: AttentionMask,
    tiles: Tiles,
    *,
    out: Tensor,
) -> Tensor:
    return out.copy_(prefill.paged_prefill(query, starts, pages, sequences, rule)[0])


def sample(
    logits: Tensor, seats: Tensor, counts: Tensor, state: SamplerState, scratch: Any, drawn: SampleOutput
) -> SampleOutput:
    return sampling.sample(logits, seats, counts, state, drawn)


REFERENCES = Kernels(
    add_rmsnorm=add_rmsnorm,
    rope_append=rope_append,
    silu_mul=silu_mul,
    plan_work=plan_work,
    paged_decode=paged_decode,
    paged_prefill=paged_prefill,
    sample=sample,
)
