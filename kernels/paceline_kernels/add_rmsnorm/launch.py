"""Calls the kernel."""

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline_kernels.add_rmsnorm.kernel import add_rmsnorm_kernel
from paceline_kernels.checks import check_tensor, power_of_2


@dataclass(frozen=True, slots=True)
class Launch:
    """Warps that share a row."""

    warps: int


LAUNCHES = ((1024, Launch(warps=4)), (4096, Launch(warps=8)))
"""For rows of at most this many numbers; first guesses until `make gpu` has chosen."""
LONGER = Launch(warps=16)


def launch_for(hidden: int) -> Launch:
    """From the table."""
    return next((launch for most, launch in LAUNCHES if hidden <= most), LONGER)


def add_rmsnorm(
    x: Tensor | None,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    *,
    out: Tensor | None = None,
    launch: Launch | None = None,
) -> Tensor:
    """`residual` [tokens, hidden] float32 += x in place; `out`: its norm times `weight` [hidden] float32.

    Without x, only the norm. `out` may have any floating type; by default it has x's.
    """
    check_tensor("residual", residual, -1, -1)
    tokens, hidden = residual.shape
    out = torch.empty_like(residual if x is None else x) if out is None else out
    for name, tensor in (("x", residual if x is None else x), ("out", out)):
        check_tensor(name, tensor, tokens, hidden)
    check_tensor("weight", weight, hidden)
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
            BLOCK=power_of_2(hidden),
            ADDS=x is not None,
            num_warps=(launch or launch_for(hidden)).warps,
        )
    return out
