"""From logits to a token: greedy, or temperature, top-k and top-p with seeded noise.

Noise for the token at a position depends on (seed, choice, position, purpose) alone: a counter-based generator is set
to these four, so neither the batch nor the chunks nor an earlier life of the stream changes a draw. The token is the
argmax of logits plus Gumbel noise, which is a draw from the softmax; filtering only takes candidates away.
Positions count from the first token of the prompt, so a stream resumed from its tokens so far draws the same.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from paceline_workers.engine.scheduling import Request, Sample
from paceline_workers.messages import Sampling

Row = NDArray[np.float64]
_MASK = (1 << 64) - 1


class Purpose(IntEnum):
    """What a draw is for; each has noise of its own."""

    TOKEN = 0


def sample(logits: NDArray[np.float32], requests: list[Request]) -> list[Sample]:
    """One sample per row of `logits` [requests, vocabulary]."""
    return [_sample(row.astype(np.float64), request) for row, request in zip(logits, requests, strict=True)]


def noise(seed: int, choice: int, position: int, purpose: Purpose, size: int) -> Row:
    """Gumbel noise: -log(-log u), u uniform in (0, 1) from the upper 53 bits of Philox4x64."""
    generator = np.random.Philox(counter=purpose << 128 | position << 64, key=choice << 64 | seed & _MASK)
    uniform = ((generator.random_raw(size) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return -np.log(-np.log(uniform))


def filtered(row: Row, sampling: Sampling) -> Row:
    """Logits over temperature, those outside top-k and then top-p at -inf. Ties at top-k's border all stay."""
    row = row / sampling.temperature
    if 0 < sampling.top_k < len(row):
        row = np.where(row < np.partition(row, -sampling.top_k)[-sampling.top_k], -np.inf, row)
    if sampling.top_p < 1.0:
        row = np.where(_nucleus(row, sampling.top_p), row, -np.inf)
    return row


def logprobs(row: Row, token: int, top: int) -> tuple[float, list[tuple[int, float]]]:
    """Of the model's own distribution, before temperature and filters: the token's, and the `top` best, best first."""
    best = row.max()
    logs = row - (best + np.log(np.exp(row - best).sum()))
    order = np.argsort(-logs, kind="stable")[:top]
    return float(logs[token]), [(int(index), float(logs[index])) for index in order]


def _sample(row: Row, request: Request) -> Sample:
    sampling = request.sampling
    token = int(np.argmax(_noisy(_allowed(row, request), request)))
    return Sample(token, logprobs(row, token, sampling.logprobs) if sampling.logprobs >= 0 else None)


def _allowed(row: Row, request: Request) -> Row:
    """Until `min_tokens` are produced, nothing that would end the request."""
    if request.produced >= request.min_tokens or not request.stop_ids:
        return row
    row = row.copy()
    row[[token for token in request.stop_ids if 0 <= token < len(row)]] = -np.inf
    return row


def _noisy(row: Row, request: Request) -> Row:
    sampling = request.sampling
    if sampling.temperature <= 0.0:
        return row
    return filtered(row, sampling) + noise(sampling.seed, request.choice, request.wanted, Purpose.TOKEN, len(row))


def _nucleus(row: Row, top_p: float) -> NDArray[np.bool_]:
    """The smallest set of best tokens whose probabilities reach `top_p`; at least one."""
    order = np.argsort(-row, kind="stable")
    shares = np.exp(row[order] - row[order[0]])
    before = np.cumsum(shares) - shares
    keep = np.zeros(len(row), dtype=np.bool_)
    keep[order[before < top_p * shares.sum()]] = True
    keep[order[0]] = True
    return keep
