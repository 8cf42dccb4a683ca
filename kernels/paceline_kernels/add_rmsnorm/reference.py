"""Add, then norm: the formula of the CPU's decoder."""

import torch
from torch import Tensor


def add_rmsnorm(x: Tensor | None, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`residual` [tokens, hidden] += x in place; its norm times `weight`, in x's type. Without x: only the norm."""
    if x is not None:
        residual += x
    wide = residual.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight).to(residual.dtype if x is None else x.dtype)
