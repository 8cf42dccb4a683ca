"""Log-probabilities of the model's own distribution: before penalties, grammar, temperature and filters."""

import numpy as np
from numpy.typing import NDArray

from paceline_workers.engine.scheduling.plan import TokenLogprobs
from paceline_workers.messages import PromptLogprob


def logprobs(row: NDArray[np.floating], token: int, top: int) -> TokenLogprobs:
    """The token's, and the `top` best, best first and of equals the lowest id first."""
    best = float(row.max())
    shares = row.astype(np.float64)
    shares -= best
    total = best + float(np.log(np.exp(shares, out=shares).sum()))
    return float(row[token]) - total, [(index, float(row[index]) - total) for index in _best(row, top)]


def prompt_logprob(row: NDArray[np.floating], token: int, top: int) -> PromptLogprob:
    """The same of a token that was not drawn but given, with its rank: one more than the tokens that are likelier."""
    own, best = logprobs(row, token, top)
    return own, int(np.count_nonzero(row > row[token])) + 1, best


def _best(row: NDArray[np.floating], top: int) -> list[int]:
    if top <= 0:
        return []
    able = np.arange(len(row)) if top >= len(row) else np.flatnonzero(row >= np.partition(row, -top)[-top])
    order: list[int] = able[np.argsort(-row[able], kind="stable")][:top].tolist()
    return order
