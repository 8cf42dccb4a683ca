"""One token for each row of logits: applies only what the request's settings require, in a fixed order.

1. the best token, if the request is greedy and changes no logit: the row is not copied
2. bias and penalties, in vLLM's order; only tokens that the request's lists allow; until `min_tokens` are produced, no
   token that would end the request; only what the grammar allows (`grammar_matcher`)
3. temperature, then min-p, top-k and top-p, each on what the one before has left, and a draw with seeded noise
A beam gets its best tokens by the model's own distribution instead of a draw. Rows are independent, so a request draws
the same in every batch, and invalid logits (NaN) or an invalid grammar fail only their own request. State kept between
steps belongs to a request and can be rebuilt from its tokens; it is dropped when the request no longer runs.
Log-probabilities are the model's own, before any of this.

bias        added to the ids that it names (OpenAI's logit_bias)
repetition  a positive logit of a token in prompt or output is divided by it, a negative one multiplied (transformers)
frequency   subtracted once for each time that a token is in the output (OpenAI)
presence    subtracted once if a token is in the output (OpenAI)

Filtering only removes candidates (-inf); it never changes a logit that stays. Whole rows are changed in place, because
fresh memory costs more than the arithmetic.

Noise for the token at a position comes only from (seed, choice, position, purpose): they set the counter of a
counter-based generator, so neither the batch nor the chunks nor a resumption of the stream changes a draw. The argmax
of logits plus Gumbel noise is a draw from their softmax. Positions count from the first token of the prompt, so a
stream resumed from its tokens so far draws the same.
"""

import math
from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline_core.errors import InvalidInput
from paceline_workers.engine.sampling.grammar_matcher import Grammars, Mask, Matcher
from paceline_workers.engine.scheduling import Request, RequestStatus, SampledToken
from paceline_workers.engine.scheduling.search import TokenLogprobs
from paceline_workers.messages import PromptLogprob, Sampling

Logits = NDArray[np.float32]
GREEDY = 1e-5
"""Below this temperature the best token is chosen: dividing by less would overflow. vLLM's limit."""
NONE_LEFT = "`allowed_token_ids`, `bad_words`, `min_tokens` and structured output together leave no token to come next."
Row = NDArray[np.float64]
Ids = NDArray[np.intp]
Bits = NDArray[np.uint64]
_MASK = (1 << 64) - 1
_LUCKY = np.uint64(_MASK - (_MASK >> 7))
"""Bits above this, one in 128, have noise above _LUCK; all others have less."""
_LUCK = 4.9
"""A little more than -log(-log(127 / 128)) = 4.848."""
_BINS = 1024
_PER_NAT = 16.0
"""Logits are put into bins of this width, 64 nats deep, so that only the bin at the nucleus's border must be sorted."""


class Sampler:
    """Chooses tokens for the requests of one engine."""

    def __init__(self, grammars: Grammars | None = None) -> None:
        self._grammars = grammars
        self._tallies: dict[Request, Tally] = {}
        self._matchers: dict[Request, Matcher] = {}
        self._allowed: dict[Request, Ids | None] = {}

    @property
    def retained(self) -> int:
        """How many tallies, matchers and lists of allowed tokens are kept for the next step."""
        return len(self._tallies) + len(self._matchers) + len(self._allowed)

    def __call__(self, logits: Logits, requests: Sequence[Request]) -> list[SampledToken]:
        """One sample for each row of `logits` [requests, vocabulary]."""
        kept: tuple[dict[Request, Any], ...] = (self._tallies, self._matchers, self._allowed)
        for states in kept:
            for request in [request for request in states if request.state is not RequestStatus.RUNNING]:
                del states[request]
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
            best = int(row.argmax())
            if words := fault(float(row[best])):
                return SampledToken(best, error=words)
            return SampledToken(best, candidates=logprobs(row, best, request.beams.search.keep)[1])
        scores = self._adjusted(row, request, mask)
        if sampling.temperature < GREEDY or not math.isfinite(scores.max()):
            token = int(scores.argmax())
        else:
            raw = bits(sampling.seed, request.choice, len(request.tokens), Purpose.TOKEN, len(row))
            token = draw(filtered(scores, sampling), raw)
        if scores[token] == -np.inf and restricted(sampling):
            return SampledToken(token, error=NONE_LEFT, refused=True)
        if words := fault(float(scores[token])):
            return SampledToken(token, error=words)
        found = logprobs(row, token, sampling.logprobs) if sampling.logprobs >= 0 else None
        return SampledToken(token, found, ended=mask is not None and self._matcher(request).ends(token))

    def _adjusted(self, row: Logits, request: Request, mask: Mask | None) -> Logits | Row:
        sampling = request.sampling
        scores: Logits | Row = row
        penalized = sampling.repetition != 1.0 or sampling.frequency != 0.0 or sampling.presence != 0.0
        if sampling.bias or penalized:
            scores = changed = row.astype(np.float64)
            if sampling.bias:
                add_bias(changed, sampling.bias)
            if penalized:
                if request not in self._tallies:
                    self._tallies[request] = Tally(request)
                penalize(changed, self._tallies[request], sampling)
        if restricted(sampling):
            if request not in self._allowed:
                self._allowed[request] = allowed_ids(sampling, len(row))
            scores = scores.copy()
            forbid(scores, request, self._allowed[request])
        if mask is not None:
            return np.where(mask, scores, -np.inf)
        if request.produced < request.min_tokens:
            scores = scores.copy()
            scores[[token for token in request.stop_ids if 0 <= token < len(row)]] = -np.inf
        return scores

    def _matcher(self, request: Request) -> Matcher:
        if request not in self._matchers:
            if self._grammars is None:
                raise InvalidInput("grammar", "this model's tokenizer cannot follow one")
            self._matchers[request] = self._grammars.matcher(request)
        return self._matchers[request]


def sample(logits: Logits, requests: Sequence[Request]) -> list[SampledToken]:
    """Samples without state between calls."""
    return Sampler()(logits, requests)


def fault(best: float) -> str:
    """What is wrong with logits whose maximum is `best`, in words for the client; "" if it is a number."""
    if math.isfinite(best):
        return ""
    return "No token may come next." if best == -math.inf else f"The model computed {best} where a number belongs."


def logprobs(row: NDArray[np.floating], token: int, top: int) -> TokenLogprobs:
    """The token's log-probability, and the `top` best ones, best first; ties in order of id."""
    best = float(row.max())
    shares = row.astype(np.float64)
    shares -= best
    total = best + float(np.log(np.exp(shares, out=shares).sum()))
    return float(row[token]) - total, [(index, float(row[index]) - total) for index in _best(row, top)]


def prompt_logprob(row: NDArray[np.floating], token: int, top: int) -> PromptLogprob:
    """The same for a token that was given, not drawn, with its rank: one more than the number of likelier tokens."""
    own, best = logprobs(row, token, top)
    return own, int(np.count_nonzero(row > row[token])) + 1, best


def _best(row: NDArray[np.floating], top: int) -> list[int]:
    if top <= 0:
        return []
    able = np.arange(len(row)) if top >= len(row) else np.flatnonzero(row >= np.partition(row, -top)[-top])
    order: list[int] = able[np.argsort(-row[able], kind="stable")][:top].tolist()
    return order


def filtered(row: NDArray[np.floating], sampling: Sampling) -> Row:
    """Logits over temperature; those outside min-p, top-k, then top-p become -inf. All ties at top-k's border stay."""
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
    """Best first until their shares reach `wanted`; ties in order of index."""
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


class Tally:
    """How often each token is in a request's output; 0 for those only in the prompt. Follows the request."""

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
    """In place; ignores ids that the model does not have."""
    known = {token: value for token, value in bias.items() if 0 <= token < len(row)}
    row[list(known)] += list(known.values())


def penalize(row: NDArray[np.float64], tally: Tally, sampling: Sampling) -> None:
    ids, counts = tally.counts()
    logits = row[ids]
    if sampling.repetition != 1.0:
        logits = np.where(logits < 0, logits * sampling.repetition, logits / sampling.repetition)
    row[ids] = logits - sampling.frequency * counts - sampling.presence * (counts > 0)


def restricted(sampling: Sampling) -> bool:
    """Whether the request's own lists exclude some tokens: it has allowed ids, or bad words not to complete."""
    return bool(sampling.allowed or sampling.bad_words)


def allowed_ids(sampling: Sampling, size: int) -> Ids | None:
    """The allowed ids below `size`, each once; None if all are allowed."""
    if not sampling.allowed:
        return None
    ids = np.unique(np.array(sampling.allowed, dtype=np.intp))
    return ids[(ids >= 0) & (ids < size)]


def forbid(row: NDArray[np.floating], request: Request, allowed: Ids | None) -> None:
    """Set tokens that must not be drawn to minus infinity, in place."""
    if allowed is not None:
        logits = row[allowed]
        row.fill(-np.inf)
        row[allowed] = logits
    row[[token for token in request.bad_word_ends if 0 <= token < len(row)]] = -np.inf


class Purpose(IntEnum):
    """What a draw is for; each purpose has separate noise."""

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

    One token in 128 has noise above _LUCK. Any other token must reach the best sum of these and of the best logit with
    its logit and at most _LUCK; so of the others, only those near enough are computed.
    """
    lucky = raw > _LUCKY
    sure = np.append(np.flatnonzero(lucky), row.argmax())
    reached = (row[sure] + gumbel(raw[sure])).max()
    able = np.flatnonzero(lucky | (row >= reached - _LUCK))
    return int(able[(row[able] + gumbel(raw[able])).argmax()])
