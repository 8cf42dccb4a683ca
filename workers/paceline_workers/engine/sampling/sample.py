"""One token per row of logits: what the request's own settings ask for is done, in a fixed order, and nothing else.

1. the best token, if the request is greedy and changes no logit: no copy of the row is made
2. bias and penalties (`penalties`); only what the request's own lists leave (`permitted`); until `min_tokens` are
   produced, nothing that would end the request; only what the grammar allows (`matching`)
3. temperature, min-p, top-k, top-p and a draw with seeded noise (`logits`)
A beam gets its best tokens by the model's own distribution instead of a draw. Rows never see each other, so a request
draws the same in every batch, and logits that are no numbers, or a grammar that is none, fail their own request alone.
What is kept between steps belongs to a request and can be made again from its tokens; it is dropped when the request
does not run any more.

Log-probabilities of the model's own distribution: before penalties, grammar, temperature and filters.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paceline_core.errors import InvalidInput
from paceline_workers.engine.sampling.grammar_matcher import (
    Grammars,
    Ids,
    Mask,
    Matcher,
    allowed_ids,
    forbid,
    restricted,
)
from paceline_workers.engine.sampling.logits import (
    Purpose,
    Row,
    Tally,
    add_bias,
    bits,
    draw,
    filtered,
    penalize,
    penalized,
)
from paceline_workers.engine.scheduling import Request, RequestStatus, SampledToken
from paceline_workers.engine.scheduling.search import TokenLogprobs
from paceline_workers.messages import PromptLogprob, Sampling


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


Logits = NDArray[np.float32]
GREEDY = 1e-5
"""Below this temperature the best token is taken: dividing by less would overflow. vLLM's limit."""
NONE_LEFT = "`allowed_token_ids`, `bad_words`, `min_tokens` and structured output together leave no token to come next."


class Sampler:
    """Chooses tokens for the requests of one engine."""

    def __init__(self, grammars: Grammars | None = None) -> None:
        self._grammars = grammars
        self._tallies: dict[Request, Tally] = {}
        self._matchers: dict[Request, Matcher] = {}
        self._allowed: dict[Request, Ids | None] = {}

    @property
    def retained(self) -> int:
        """Tallies, matchers and lists of allowed tokens kept for the next step."""
        return len(self._tallies) + len(self._matchers) + len(self._allowed)

    def __call__(self, logits: Logits, requests: Sequence[Request]) -> list[SampledToken]:
        """One sample per row of `logits` [requests, vocabulary]."""
        _forget(self._tallies)
        _forget(self._matchers)
        _forget(self._allowed)
        masks, faults = self._masks(requests, logits.shape[1])
        return [
            faults.get(request) or self._sample(row, request, masks.get(request))
            for row, request in zip(logits, requests, strict=True)
        ]

    def _masks(self, requests: Sequence[Request], size: int) -> tuple[dict[Request, Mask], dict[Request, SampledToken]]:
        """What the grammars of those that have one allow, or what is wrong with them."""
        matchers: dict[Request, Matcher] = {}
        faults: dict[Request, SampledToken] = {}
        for request in requests:
            if request.sampling.grammar and request.beams is None:
                try:
                    matchers[request] = self._matcher(request)
                except (OSError, ValueError) as error:
                    words = f"The grammar cannot be followed: {error}."
                    faults[request] = SampledToken(0, error=words, refused=isinstance(error, ValueError))
        if not matchers or self._grammars is None:
            return {}, faults
        masks = dict(zip(matchers, self._grammars.masks(list(matchers.values()), size), strict=True))
        for request, matcher in matchers.items():
            if matcher.exhausted:
                self._matchers[request] = self._grammars.renewed(matcher)
                masks[request] = self._grammars.masks([self._matchers[request]], size)[0]
            if reason := self._matchers[request].outgrown():
                faults[request] = SampledToken(
                    0, error=f"The grammar cannot be followed further: {reason}.", refused=True
                )
        return masks, faults

    def _sample(self, row: Logits, request: Request, mask: Mask | None) -> SampledToken:
        sampling = request.sampling
        if request.beams is not None:
            return _candidates(row, request.beams.search.keep)
        scores = self._adjusted(row, request, mask)
        token = _choose(scores, request)
        if scores[token] == -np.inf and restricted(sampling):
            return SampledToken(token, error=NONE_LEFT, refused=True)
        if words := fault(float(scores[token])):
            return SampledToken(token, error=words)
        found = logprobs(row, token, sampling.logprobs) if sampling.logprobs >= 0 else None
        return SampledToken(token, found, ended=mask is not None and self._matcher(request).ends(token))

    def _adjusted(self, row: Logits, request: Request, mask: Mask | None) -> Logits | Row:
        sampling = request.sampling
        scores: Logits | Row = row
        if sampling.bias or penalized(sampling):
            scores = self._changed(row, request)
        if restricted(sampling):
            scores = scores.copy()
            forbid(scores, request, self._allowed_ids(request, len(row)))
        if mask is not None:
            return np.where(mask, scores, -np.inf)
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

    def _allowed_ids(self, request: Request, size: int) -> Ids | None:
        if request not in self._allowed:
            self._allowed[request] = allowed_ids(request.sampling, size)
        return self._allowed[request]

    def _matcher(self, request: Request) -> Matcher:
        if request not in self._matchers:
            if self._grammars is None:
                raise InvalidInput("grammar", "this model's tokenizer cannot follow one")
            self._matchers[request] = self._grammars.matcher(request)
        return self._matchers[request]


def _forget(states: dict[Request, Tally] | dict[Request, Matcher] | dict[Request, Ids | None]) -> None:
    """What belongs to requests that do not run any more."""
    for request in [request for request in states if request.state is not RequestStatus.RUNNING]:
        del states[request]


def sample(logits: Logits, requests: Sequence[Request]) -> list[SampledToken]:
    """The same without anything kept between calls."""
    return Sampler()(logits, requests)


def _candidates(row: Logits, count: int) -> SampledToken:
    best = int(row.argmax())
    if words := fault(float(row[best])):
        return SampledToken(best, error=words)
    return SampledToken(best, candidates=logprobs(row, best, count)[1])


def fault(best: float) -> str:
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
