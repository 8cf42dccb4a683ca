"""Beam search as a state machine over candidates: which beams continue, which have finished, when to stop.

Pure: its data are log-probabilities and tokens, never pages. Each step takes the best `Search.keep` next tokens of
every running beam, and returns the beams to run next, each with the index of the beam that it continues (whose pages to
fork). The rules are those of transformers' `generate(num_beams=...)` for one prompt, tested against it:

- before `min_tokens`, a token that stops is not a continuation;
- the best `width` continuations that do not stop run on;
- of the best `width` of all, those that stop finish with their sum of log-probabilities / length ** length_penalty,
  where the length counts the stop token; the best `width` finished ones are kept;
- the search ends at `max_tokens`, with `early_stopping` when `width` have finished, else when the best running beam
  cannot beat the worst finished one: judged by its length now, or with "never" by the longest that it may have.
Known hole: a vocabulary smaller than the width gives fewer beams in the first step than transformers pads to.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from typing import Literal

Candidates = Sequence[tuple[int, float]]
"""Next tokens of one beam with their log-probabilities, best first."""
TokenLogprobs = tuple[float, list[tuple[int, float]]]
"""The log-probability of a token, and the likeliest tokens at its position with theirs."""
EarlyStopping = bool | Literal["never"]


@dataclass(frozen=True, slots=True)
class Search:
    """The options of one search. `top`: the number of best tokens to report at each position, -1 for no report."""

    width: int
    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    min_tokens: int = 0
    top: int = -1

    @property
    def keep(self) -> int:
        """Candidates to consider for a beam: enough that `width` are left if all stop ids are among them."""
        return max(self.width + len(self.stop_ids), self.top)


@dataclass(frozen=True, slots=True)
class Beam:
    """Output tokens and their score: the sum of log-probabilities, divided by the length's power once finished."""

    tokens: tuple[int, ...] = ()
    score: float = 0.0
    parent: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Beams:
    """Best first. `done`: the search is over, and the finished beams are the answer."""

    running: tuple[Beam, ...] = (Beam(),)
    finished: tuple[Beam, ...] = ()
    done: bool = False


Step = tuple[float, int, int, float]
"""A continuation: its score, the index of its beam, its token and that token's log-probability."""


def step(beams: Beams, candidates: Sequence[Candidates], search: Search) -> Beams:
    """Advance by one token; `candidates` are of the running beams, in order."""
    length = len(beams.running[0].tokens) + 1
    last = length >= search.max_tokens
    found = _continuations(beams, candidates, search, early=length <= search.min_tokens)
    grown = [_grown(beams.running, candidates, one, search) for one in _chosen(found, search)]
    stops = [last or beam.tokens[-1] in search.stop_ids for beam in grown]
    ended = [
        replace(beam, score=beam.score / len(beam.tokens) ** search.length_penalty)
        for beam, stop in zip(grown[: search.width], stops, strict=False)
        if stop
    ]
    finished = tuple(sorted([*beams.finished, *ended], key=attrgetter("score"), reverse=True)[: search.width])
    running = tuple([beam for beam, stop in zip(grown, stops, strict=True) if not stop][: search.width])
    return Beams(running, finished, not running or _over(running[0], finished, search))


def _continuations(beams: Beams, candidates: Sequence[Candidates], search: Search, *, early: bool) -> list[Step]:
    """Best first; ties go to the earlier beam, then to the earlier candidate."""
    steps: list[Step] = []
    for place, (beam, after) in enumerate(zip(beams.running, candidates, strict=True)):
        # leave out what would end too early, unless nothing else is left
        going = [pair for pair in after if pair[0] not in search.stop_ids] if early else after
        steps += [(beam.score + logprob, place, token, logprob) for token, logprob in going or after]
    return sorted(steps, key=itemgetter(0), reverse=True)


def _chosen(steps: Sequence[Step], search: Search) -> Iterator[Step]:
    """The best `width`, then further ones that do not stop until there are `width` of these."""
    running = 0
    for number, one in enumerate(steps):
        stops = one[2] in search.stop_ids
        if number < search.width or not stops:
            yield one
            running += not stops
        if running >= search.width:
            return


def _grown(running: Sequence[Beam], candidates: Sequence[Candidates], one: Step, search: Search) -> Beam:
    score, place, token, logprob = one
    beam = running[place]
    if search.top < 0:
        return Beam((*beam.tokens, token), score, place)
    best = (logprob, list(candidates[place][: search.top]))
    return Beam((*beam.tokens, token), score, place, (*beam.logprobs, best))


def _over(front: Beam, finished: Sequence[Beam], search: Search) -> bool:
    if len(finished) < search.width:
        return False
    if search.early_stopping is True:
        return True
    longest = search.early_stopping == "never" and search.length_penalty > 0
    length = search.max_tokens if longest else len(front.tokens)
    possible: float = front.score / length**search.length_penalty
    return possible <= finished[-1].score
