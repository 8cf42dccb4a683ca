"""Calls the kernel."""

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline_kernels.checks import ceil_div, check_tensor
from paceline_kernels.silu_mul.kernel import silu_mul_kernel


@dataclass(frozen=True, slots=True)
class Launch:
    """The numbers of a row that a program takes, and its warps."""

    block: int
    warps: int


def launch_for(dtype: torch.dtype) -> Launch:
    """First guess, 16 bytes a thread, until `make gpu` has chosen."""
    return Launch(block=2048 // dtype.itemsize, warps=4)


def silu_mul(gate_up: Tensor, *, out: Tensor | None = None, launch: Launch | None = None) -> Tensor:
    """[tokens, 2 * ffn] (gate, up) -> silu(gate) * up [tokens, ffn], computed in float32; `out` may have any type."""
    check_tensor("gate_up", gate_up, -1, -1)
    tokens, ffn = len(gate_up), gate_up.shape[1] // 2
    if gate_up.shape[1] % 2:
        raise ValueError(f"gate_up has rows of {gate_up.shape[1]}; gate and up are equally long")
    out = torch.empty((tokens, ffn), dtype=gate_up.dtype, device=gate_up.device) if out is None else out
    check_tensor("out", out, tokens, ffn)
    launch = launch or launch_for(gate_up.dtype)
    if out.numel():
        grid = (tokens, ceil_div(ffn, launch.block))
        silu_mul_kernel[grid](gate_up, out, FFN=ffn, BLOCK=launch.block, num_warps=launch.warps)
    return out
