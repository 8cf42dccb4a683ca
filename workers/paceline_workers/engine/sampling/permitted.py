"""Tokens that a request's own lists permit: its allowed ids, less those that would complete a bad word."""

import numpy as np
from numpy.typing import NDArray

from paceline_workers.engine.scheduling import Request
from paceline_workers.messages import Sampling

Ids = NDArray[np.intp]


def restricted(sampling: Sampling) -> bool:
    """Return whether a request has such lists."""
    return bool(sampling.allowed or sampling.bad_words)


def allowed_ids(sampling: Sampling, size: int) -> Ids | None:
    """The allowed ones below `size`, each once; None where all are."""
    if not sampling.allowed:
        return None
    ids = np.unique(np.array(sampling.allowed, dtype=np.intp))
    return ids[(ids >= 0) & (ids < size)]


def forbid(row: NDArray[np.floating], request: Request, allowed: Ids | None) -> None:
    """Set what may not be drawn to minus infinity, in place."""
    if allowed is not None:
        kept = row[allowed]
        row.fill(-np.inf)
        row[allowed] = kept
    row[[token for token in request.completing if 0 <= token < len(row)]] = -np.inf
