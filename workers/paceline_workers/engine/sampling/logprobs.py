"""Log-probabilities of the model's own distribution: before penalties, grammar, temperature and filters."""

import numpy as np
from numpy.typing import NDArray

from paceline_workers.engine.scheduling.plan import TokenLogprobs


def logprobs(row: NDArray[np.floating], token: int, top: int) -> TokenLogprobs:
    """The token's, and the `top` best, best first and of equals the lowest id first."""
    best = float(row.max())
    shares = row.astype(np.float64)
    shares -= best
    total = best + float(np.log(np.exp(shares, out=shares).sum()))
    return float(row[token]) - total, [(index, float(row[index]) - total) for index in _best(row, top)]


def _best(row: NDArray[np.floating], top: int) -> list[int]:
    if top <= 0:
        return []
    able = np.arange(len(row)) if top >= len(row) else np.flatnonzero(row >= np.partition(row, -top)[-top])
    order: list[int] = able[np.argsort(-row[able], kind="stable")][:top].tolist()
    return order
