"""Which of the workers that could take a request does. Policies are interchangeable: one method, plain data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline_core.registry.enums import RequestClass
from paceline_gateway.routing.worker import Worker


@dataclass(frozen=True, slots=True)
class Ask:
    """What a policy may know of a request. `keys` name the beginnings of its prompt (`wire.prefix`), shortest first.

    `prompt_tokens` and `expected_output` are estimates; `prompt_bytes` is what the keys are shares of.
    """

    prompt_tokens: int
    request_class: RequestClass = RequestClass.INTERACTIVE
    expected_output: int = 0
    keys: tuple[str, ...] = ()
    prompt_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker that has room, and how many of the prompt's tokens it probably has cached."""

    worker: Worker
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Pick:
    """The worker chosen. `cost_s`: estimated seconds to the first token there, 0 where a policy does not estimate."""

    worker: Worker
    cached_tokens: int = 0
    cost_s: float = 0.0


class Policy(Protocol):
    """Chooses among candidates; every one of them has room."""

    def pick(self, candidates: Sequence[Candidate], ask: Ask, now: float) -> Pick | None:
        """The candidate that takes it; None only when there are none."""
        ...


class LeastWork:
    """Least estimated work in seconds; equals take turns, the emptier first."""

    def pick(self, candidates: Sequence[Candidate], ask: Ask, now: float) -> Pick | None:  # noqa: ARG002
        """The worker whose next step would be shortest with this prompt in it."""
        if not candidates:
            return None
        cost, _, _, place = min(
            (c.worker.cost(ask.prompt_tokens), c.worker.in_flight, c.worker.picked, place)
            for place, c in enumerate(candidates)
        )
        return Pick(candidates[place].worker, candidates[place].cached_tokens, cost)
