"""Calls the kernel."""

import torch
import triton
from torch import Tensor

from paceline_kernels.add_rmsnorm.kernel import add_rmsnorm_kernel
from paceline_kernels.checks import expect

WARPS = ((1024, 4), (4096, 8))
"""Warps for rows of at most so many numbers; longer ones take 16. First guesses until `make gpu` has chosen."""


def add_rmsnorm(
    x: Tensor | None,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    *,
    out: Tensor | None = None,
    warps: int | None = None,
) -> Tensor:
    """`residual` [tokens, hidden] float32 += x in place; `out`: its norm times `weight` [hidden] float32.

    Without x only the norm. `out` is any floating type; if none is given, x's.
    """
    expect("residual", residual, -1, -1)
    tokens, hidden = residual.shape
    out = torch.empty_like(residual if x is None else x) if out is None else out
    for name, tensor in (("x", residual if x is None else x), ("out", out)):
        expect(name, tensor, tokens, hidden)
    expect("weight", weight, hidden)
    for name, tensor in (("residual", residual), ("weight", weight)):
        if tensor.dtype != torch.float32:
            raise ValueError(f"{name} is {tensor.dtype}; it has to be float32")
    if tokens:
        add_rmsnorm_kernel[(tokens,)](
            residual if x is None else x,
            residual,
            weight,
            out,
            eps,
            HIDDEN=hidden,
            BLOCK=triton.next_power_of_2(hidden),
            ADDS=x is not None,
            num_warps=warps or _warps(hidden),
        )
    return out


def _warps(hidden: int) -> int:
    return next((warps for most, warps in WARPS if hidden <= most), 16)
