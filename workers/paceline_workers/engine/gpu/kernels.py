"""The kernels that a step is made of, as one argument: a test passes their references, which need no interpreter."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paceline_kernels.add_rmsnorm.launch import add_rmsnorm
from paceline_kernels.paged_decode.launch import paged_decode
from paceline_kernels.paged_prefill import paged_prefill
from paceline_kernels.rope_append.launch import rope_append
from paceline_kernels.sample import reference
from paceline_kernels.sample.state import Drawn, State
from paceline_kernels.silu_mul.launch import silu_mul
from paceline_kernels.work_list.launch import plan_work


def _scratch(rows: int, vocab: int, device: torch.device) -> None:
    del rows, vocab, device


def _sample(logits: Tensor, seats: Tensor, counts: Tensor, state: State, *scratch_and_drawn: Any) -> Drawn:
    _, drawn = scratch_and_drawn
    return reference.sample(logits, seats, counts, state, drawn)


@dataclass(frozen=True, slots=True)
class Kernels:
    """Each is called with the arguments of the launch that it is by default."""

    add_rmsnorm: Callable[..., Tensor] = add_rmsnorm
    rope_append: Callable[..., Tensor] = rope_append
    silu_mul: Callable[..., Tensor] = silu_mul
    plan_work: Callable[..., None] = plan_work
    paged_decode: Callable[..., Tensor] = paged_decode
    paged_prefill: Callable[..., Tensor] = paged_prefill
    scratch: Callable[..., Any] = _scratch
    sample: Callable[..., Drawn] = _sample


LAUNCHES = Kernels()
