"""Merges softmaxes over disjoint sets of keys: each part's weight is its share of the common sum."""

import torch
from torch import Tensor


def merged(outs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """Out [rows, H, D] and lse [rows, H] of parts [n, rows, H, D] with natural logarithms [n, rows, H].

    A part that saw nothing has minus infinity; if all have, the result is 0 and minus infinity.
    """
    total = lses.logsumexp(0)
    empty = total == -torch.inf
    weights = torch.exp(lses - total.masked_fill(empty, 0))[..., None]
    return (outs * weights).masked_fill(weights == 0, 0).sum(0), total
