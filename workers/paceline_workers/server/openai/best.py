"""`best_of`: which of several candidates are told. Pure."""

from collections.abc import Sequence
from math import inf

from paceline_workers.server.output import Piece


def best(candidates: Sequence[Sequence[Piece]], count: int) -> list[Sequence[Piece]]:
    """The `count` candidates with the highest mean logprob of their tokens, best first, as OpenAI says; ties in order.

    The token that stops is no part of a text, so it does not count; a candidate of nothing else is the worst.
    """
    return sorted(candidates, key=_mean, reverse=True)[:count]


def _mean(candidate: Sequence[Piece]) -> float:
    values = [value for piece in candidate for value, _ in piece.logprobs]
    return sum(values) / len(values) if values else -inf
