"""Beam search as a state machine over candidates: which continuations run on, which have finished, when to stop.

Pure: it sees log-probabilities and tokens, never pages. Each step takes, for every running beam, its best `Search.keep`
next tokens, and gives the beams to run next, each with the place of the beam that it continues (whose pages to fork).
The rules are those of transformers' `generate(num_beams=...)` for one prompt, tested against it:

- of all continuations the best `keep` = (1 + stop ids, at least 2) x width count; those that stop do not run on;
- of these the first `width`, if they stop, finish with their sum of log-probabilities / length ** length_penalty, where
  the length counts the stop token; the best `width` finished ones are kept;
- it is over at `max_tokens`, with `early_stopping` once `width` have finished, else when the best running beam cannot
  become better than the worst finished one: judged by its length now, or with "never" by the longest it may have.
Known hole: a vocabulary smaller than `keep` gives fewer beams in the first step than transformers pads to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Candidates = Sequence[tuple[int, float]]
"""Next tokens of one beam with their log-probabilities, best first."""


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched for."""

    width: int
    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False

    @property
    def keep(self) -> int:
        """Continuations looked at in a step: enough that `width` are left when all stop ids are among them."""
        return max(2, 1 + len(self.stop_ids)) * self.width


@dataclass(frozen=True, slots=True)
class Beam:
    """Output tokens and their score: summed log-probability while running, over the length's power once finished."""

    tokens: tuple[int, ...] = ()
    score: float = 0.0
    parent: int = 0


@dataclass(frozen=True, slots=True)
class Beams:
    """Best first. `done`: the finished ones are the answer."""

    running: tuple[Beam, ...] = (Beam(),)
    finished: tuple[Beam, ...] = ()
    done: bool = False


def step(beams: Beams, candidates: Sequence[Candidates], search: Search) -> Beams:
    """One token further; `candidates` are of the running beams, in their order."""
    best = _continuations(beams.running, candidates)[: search.keep]
    length = len(best[0].tokens)
    last = length >= search.max_tokens
    stops = [last or beam.tokens[-1] in search.stop_ids for beam in best]
    ended = [_finished(beam, search) for beam, stop in zip(best[: search.width], stops, strict=False) if stop]
    finished = _best([*beams.finished, *ended])[: search.width]
    running = tuple([beam for beam, stop in zip(best, stops, strict=True) if not stop][: search.width])
    return Beams(running, finished, last or _over(running[0], finished, search))


def _continuations(running: Sequence[Beam], candidates: Sequence[Candidates]) -> tuple[Beam, ...]:
    return _best(
        [
            Beam((*beam.tokens, token), beam.score + logprob, place)
            for place, (beam, after) in enumerate(zip(running, candidates, strict=True))
            for token, logprob in after
        ]
    )


def _best(beams: Sequence[Beam]) -> tuple[Beam, ...]:
    return tuple(sorted(beams, key=lambda beam: -beam.score))


def _finished(beam: Beam, search: Search) -> Beam:
    return replace(beam, score=beam.score / len(beam.tokens) ** search.length_penalty)


def _over(front: Beam, finished: Sequence[Beam], search: Search) -> bool:
    if len(finished) < search.width:
        return False
    if search.early_stopping is True:
        return True
    longest = search.early_stopping == "never" and search.length_penalty > 0
    length = search.max_tokens if longest else len(front.tokens)
    possible: float = front.score / length**search.length_penalty
    return possible <= finished[-1].score
