"""One token per row of logits: what the request's own settings ask for is done, in a fixed order, and nothing else.

1. the best token, if the request is greedy and changes no logit: no copy of the row is made
2. bias and penalties (`penalties`); until `min_tokens` are produced, nothing that would end the request; only what
   the grammar allows (`matching`)
3. temperature, min-p, top-k, top-p (`filters`) and a draw with seeded noise (`noise`)
A beam gets its best tokens by the model's own distribution instead of a draw. Rows never see each other, so a request
draws the same in every batch, and logits that are no numbers, or a grammar that is none, fail their own request alone.
What is kept between steps belongs to a request and can be made again from its tokens; it is dropped when the request
does not run any more.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paceline_core.errors import InvalidInput
from paceline_workers.engine.sampling.filters import filtered
from paceline_workers.engine.sampling.logprobs import logprobs
from paceline_workers.engine.sampling.matching import Grammars, Matcher
from paceline_workers.engine.sampling.noise import Purpose, Row, bits, draw
from paceline_workers.engine.sampling.penalties import Tally, add_bias, penalize, penalized
from paceline_workers.engine.scheduling import Request, Sample, State
from paceline_workers.messages import Sampling

Logits = NDArray[np.float32]
GREEDY = 1e-5
"""Below this temperature the best token is taken: dividing by less would overflow. vLLM's limit."""


class Sampler:
    """Chooses tokens for the requests of one engine."""

    def __init__(self, grammars: Grammars | None = None) -> None:
        self._grammars = grammars
        self._tallies: dict[Request, Tally] = {}
        self._matchers: dict[Request, Matcher] = {}

    @property
    def kept(self) -> int:
        """Tallies and matchers kept for the next step."""
        return len(self._tallies) + len(self._matchers)

    def __call__(self, logits: Logits, requests: Sequence[Request]) -> list[Sample]:
        """One sample per row of `logits` [requests, vocabulary]."""
        _forget(self._tallies)
        _forget(self._matchers)
        return [self._sample(row, request) for row, request in zip(logits, requests, strict=True)]

    def _sample(self, row: Logits, request: Request) -> Sample:
        sampling = request.sampling
        if request.beams is not None:
            return _candidates(row, request.beams.search.keep)
        try:
            scores = self._adjusted(row, request)
        except (OSError, ValueError) as error:
            return Sample(0, error=f"The grammar cannot be followed: {error}.")
        token = _choose(scores, request)
        if fault := _fault(float(scores[token])):
            return Sample(token, error=fault)
        told = logprobs(row, token, sampling.logprobs) if sampling.logprobs >= 0 else None
        return Sample(token, told, ended=bool(sampling.grammar) and self._matcher(request).ends(token))

    def _adjusted(self, row: Logits, request: Request) -> Logits | Row:
        sampling = request.sampling
        scores: Logits | Row = row
        if sampling.bias or penalized(sampling):
            scores = self._changed(row, request)
        if sampling.grammar:
            return np.where(self._matcher(request).mask(len(row)), scores, -np.inf)
        if request.produced < request.min_tokens:
            scores = scores.copy()
            scores[[token for token in request.stop_ids if 0 <= token < len(row)]] = -np.inf
        return scores

    def _changed(self, row: Logits, request: Request) -> Row:
        changed = row.astype(np.float64)
        if request.sampling.bias:
            add_bias(changed, request.sampling.bias)
        if penalized(request.sampling):
            penalize(changed, self._tally(request), request.sampling)
        return changed

    def _tally(self, request: Request) -> Tally:
        if request not in self._tallies:
            self._tallies[request] = Tally(request)
        return self._tallies[request]

    def _matcher(self, request: Request) -> Matcher:
        if request not in self._matchers:
            if self._grammars is None:
                raise InvalidInput("grammar", "this model's tokenizer cannot follow one")
            self._matchers[request] = self._grammars.matcher(request)
        return self._matchers[request]


def _forget(kept: dict[Request, Tally] | dict[Request, Matcher]) -> None:
    """What belongs to requests that do not run any more."""
    for request in [request for request in kept if request.state is not State.RUNNING]:
        del kept[request]


def sample(logits: Logits, requests: Sequence[Request]) -> list[Sample]:
    """The same without anything kept between calls."""
    return Sampler()(logits, requests)


def _candidates(row: Logits, count: int) -> Sample:
    best = int(row.argmax())
    if fault := _fault(float(row[best])):
        return Sample(best, error=fault)
    return Sample(best, candidates=logprobs(row, best, count)[1])


def _fault(best: float) -> str:
    """What is wrong with logits whose best one this is, in words for the client; "" if it is a number."""
    if math.isfinite(best):
        return ""
    return "No token may come next." if best == -math.inf else f"The model computed {best} where a number belongs."


def _choose(row: Logits | Row, request: Request) -> int:
    sampling = request.sampling
    if sampling.temperature < GREEDY or not math.isfinite(row.max()):
        return int(row.argmax())
    return draw(filtered(row, sampling), _bits(sampling, request, len(row)))


def _bits(sampling: Sampling, request: Request, size: int) -> NDArray[np.uint64]:
    return bits(sampling.seed, request.choice, len(request.tokens), Purpose.TOKEN, size)
