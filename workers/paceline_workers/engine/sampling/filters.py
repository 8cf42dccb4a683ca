"""Which tokens may be drawn: temperature, then min-p, top-k and top-p, each on what the one before has left.

The order is vLLM's. Filtering only takes candidates away (-inf); it never changes a logit that stays. Whole rows are
worked on in place, since the memory of a fresh one costs more than the arithmetic.
"""

import math

import numpy as np
from numpy.typing import NDArray

from paceline_workers.engine.sampling.noise import Row
from paceline_workers.messages import Sampling

_BINS = 1024
_PER_NAT = 16.0
"""Logits are put into bins this fine, 64 nats deep, so that only the bin at the nucleus's border must be sorted."""


def filtered(row: NDArray[np.floating], sampling: Sampling) -> Row:
    """Logits over temperature, those outside min-p, top-k and then top-p at -inf. Ties at top-k's border all stay."""
    row = row / np.float64(sampling.temperature)
    if sampling.min_p > 0.0:
        row[row < row.max() + math.log(min(sampling.min_p, 1.0))] = -np.inf
    if 0 < sampling.top_k < len(row):
        row[row < np.partition(row, -sampling.top_k)[-sampling.top_k]] = -np.inf
    if sampling.top_p < 1.0:
        _cut(row, sampling.top_p)
    return row


def _cut(row: Row, top_p: float) -> None:
    """Leave in `row` the smallest set of best tokens whose probabilities reach `top_p`; at least one."""
    able = np.flatnonzero(row > -np.inf)
    logits = row[able]
    shares = logits - logits.max()
    np.exp(shares, out=shares)
    kept = able[_nucleus(logits, shares, top_p * shares.sum())]
    left = row[kept]
    row.fill(-np.inf)
    row[kept] = left


def _nucleus(logits: Row, shares: Row, wanted: float) -> NDArray[np.intp]:
    """Best first until their shares reach `wanted`; of equals the first."""
    depth = logits.max() - logits
    depth *= _PER_NAT
    bins = np.minimum(depth, _BINS - 1, out=depth).astype(np.intp)
    mass = np.bincount(bins, weights=shares)
    reached = np.cumsum(mass)
    border = min(int(np.searchsorted(reached, wanted)), len(mass) - 1)
    tied = np.flatnonzero(bins == border)
    order = tied[np.argsort(-logits[tied], kind="stable")]
    before = reached[border] - mass[border]
    last = int(np.searchsorted(before + np.cumsum(shares[order]), wanted))
    return np.concatenate([np.flatnonzero(bins < border), order[: last + 1]])
