"""Logits changed before anything is chosen: bias, then repetition, frequency and presence penalties, in vLLM's order.

bias        added to the ids that it names (OpenAI's logit_bias)
repetition  a positive logit of a token in prompt or output is divided by it, a negative one multiplied (transformers)
frequency   taken off once for each time that a token is in the output (OpenAI)
presence    taken off once if a token is in the output (OpenAI)

Which tokens may be drawn: temperature, then min-p, top-k and top-p, each on what the one before has left.

The order is vLLM's. Filtering only takes candidates away (-inf); it never changes a logit that stays. Whole rows are
worked on in place, since the memory of a fresh one costs more than the arithmetic.

Noise for the token at a position comes from (seed, choice, position, purpose) alone: a counter-based generator is set
to these numbers, so neither the batch nor the chunks nor an earlier run of the stream changes a draw. The argmax of
logits plus Gumbel noise is a draw from their softmax. Positions count from the first token of the prompt, so a stream
resumed from its tokens so far draws the same.
"""

import math
from collections import Counter
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from paceline_workers.engine.scheduling import Request
from paceline_workers.messages import Sampling

Row = NDArray[np.float64]
Bits = NDArray[np.uint64]
_MASK = (1 << 64) - 1
_LUCKY = np.uint64(_MASK - (_MASK >> 7))
"""Bits above this, one in 128, have noise above _LUCK; all others have less."""
_LUCK = 4.9
"""A little more than -log(-log(127 / 128)) = 4.848."""
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
    ids, counts = tally.counts()
    logits = row[ids]
    if sampling.repetition != 1.0:
        logits = np.where(logits < 0, logits * sampling.repetition, logits / sampling.repetition)
    row[ids] = logits - sampling.frequency * counts - sampling.presence * (counts > 0)


class Purpose(IntEnum):
    """What a draw is for; each has noise of its own."""

    TOKEN = 0


def bits(seed: int, choice: int, position: int, purpose: Purpose, size: int) -> Bits:
    """64 random bits of Philox4x64 for each token id below `size`."""
    generator = np.random.Philox(counter=purpose << 128 | position << 64, key=choice << 64 | seed & _MASK)
    return generator.random_raw(size)


def gumbel(raw: Bits) -> Row:
    """-log(-log u), u uniform in (0, 1) from the upper 53 bits."""
    uniform = ((raw >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    noise: Row = -np.log(-np.log(uniform))
    return noise


def noise(seed: int, choice: int, position: int, purpose: Purpose, size: int) -> Row:
    """Gumbel noise for each token id below `size`."""
    return gumbel(bits(seed, choice, position, purpose, size))


def draw(row: Row, raw: Bits) -> int:
    """The argmax of `row + gumbel(raw)`, without the logarithms of tokens that cannot win.

    One token in 128 has noise above _LUCK. What these and the best logit reach, a token without luck must reach with
    its logit and at most _LUCK; so only those near enough are computed besides.
    """
    lucky = raw > _LUCKY
    sure = np.append(np.flatnonzero(lucky), row.argmax())
    reached = (row[sure] + gumbel(raw[sure])).max()
    able = np.flatnonzero(lucky | (row >= reached - _LUCK))
    return int(able[(row[able] + gumbel(raw[able])).argmax()])
