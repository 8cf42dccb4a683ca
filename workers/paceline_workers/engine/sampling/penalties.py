"""Logits changed before anything is chosen: bias, then repetition, frequency and presence penalties, in vLLM's order.

bias        added to the ids that it names (OpenAI's logit_bias)
repetition  a positive logit of a token in prompt or output is divided by it, a negative one multiplied (transformers)
frequency   taken off once for each time that a token is in the output (OpenAI)
presence    taken off once if a token is in the output (OpenAI)
"""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from paceline_workers.engine.scheduling import Request
from paceline_workers.messages import Sampling

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
