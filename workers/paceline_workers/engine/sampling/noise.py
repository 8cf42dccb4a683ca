"""Noise for the token at a position, from (seed, choice, position, purpose) alone, and draws by the Gumbel trick.

A counter-based generator is set to these four numbers, so neither the batch nor the chunks nor an earlier life of the
stream changes a draw. The argmax of logits plus Gumbel noise is a draw from their softmax. Positions count from the
first token of the prompt, so a stream resumed from its tokens so far draws the same.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float64]
Bits = NDArray[np.uint64]

_MASK = (1 << 64) - 1
_LUCKY = np.uint64(_MASK - (_MASK >> 7))
"""Bits above this, one in 128, have noise above _LUCK; all others have less."""
_LUCK = 4.9
"""A little more than -log(-log(127 / 128)) = 4.848."""


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
