"""Logits changed before anything is chosen: bias, then repetition, frequency and presence penalties, in vLLM's order.

bias        added to the ids that it names (OpenAI's logit_bias)
repetition  a positive logit of a token in prompt or output is divided by it, a negative one multiplied (transformers)
frequency   taken off once for each time that a token is in the output (OpenAI)
presence    taken off once if a token is in the output (OpenAI)

Which tokens may be drawn: temperature, then min-p, top-k and top-p, each on what the one before has left.

The order is vLLM's. Filtering only takes candidates away (-inf); it never changes a logit that stays. Whole rows are
worked on in place, since the memory of a fresh one costs more than the arithmetic.
"""

import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from paceline_workers.engine.sampling.noise import Row
from paceline_workers.engine.scheduling import Request
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
        _top_p(row, sampling.top_p)
    return row


def _top_p(row: Row, top_p: float) -> None:
    """Leave in `row` the smallest set of best tokens whose probabilities reach `top_p`; at least one."""
    able = np.flatnonzero(row > -np.inf)
    logits = row[able]
    shares = logits - logits.max()
    np.exp(shares, out=shares)
    chosen = able[_nucleus(logits, shares, top_p * shares.sum())]
    left = row[chosen]
    row.fill(-np.inf)
    row[chosen] = left


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


Ids = NDArray[np.intp]


def penalized(sampling: Sampling) -> bool:
    """Whether tokens so far matter."""
    return sampling.repetition != 1.0 or sampling.frequency != 0.0 or sampling.presence != 0.0


class Tally:
    """How often each token is in a request's output; those of the prompt alone 0 times. Follows the request."""

    def __init__(self, request: Request) -> None:
        self._request = request
        prompt = request.tokens[: request.prompt_len] if request.sampling.repetition != 1.0 else []
        self._counts: Counter[int] = Counter(dict.fromkeys(prompt, 0))
        self._taken = request.prompt_len

    def counts(self) -> tuple[Ids, NDArray[np.float64]]:
        """Distinct token ids, and how often each has been produced."""
        tokens = self._request.tokens
        self._counts.update(tokens[self._taken :])
        self._taken = len(tokens)
        size = len(self._counts)
        return np.fromiter(self._counts, np.intp, size), np.fromiter(self._counts.values(), np.float64, size)


def add_bias(row: NDArray[np.float64], bias: dict[int, float]) -> None:
    """In place; ids that the model does not have are ignored."""
    known = {token: value for token, value in bias.items() if 0 <= token < len(row)}
    row[list(known)] += list(known.values())


def penalize(row: NDArray[np.float64], tally: Tally, sampling: Sampling) -> None:
    """In place."""
    ids, counts = tally.counts()
    logits = row[ids]
    if sampling.repetition != 1.0:
        logits = np.where(logits < 0, logits * sampling.repetition, logits / sampling.repetition)
    row[ids] = logits - sampling.frequency * counts - sampling.presence * (counts > 0)
