"""Which of the workers that could take a request does. Policies are interchangeable: one method, plain data.

The gateway has one, `pace`; those it is compared with are in `benchmarks/routing`.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from paceline_core.registry.enums import RequestClass
from paceline_core.wire.prefix import REACHES
from paceline_gateway.routing.worker import Worker


class RoutingRequest(NamedTuple):
    """What a policy may know of a request. `keys` name the beginnings of its prompt (`wire.prefix`), shortest first.

    `prompt_tokens` and `expected_output` are estimates; `prompt_bytes` is what the keys are shares of.
    """

    prompt_tokens: int
    request_class: RequestClass = RequestClass.INTERACTIVE
    expected_output: int = 0
    keys: tuple[str, ...] = ()
    prompt_bytes: int = 0

    def tokens(self, known: int) -> int:
        """How many of its tokens the first so many keys cover."""
        return self.prompt_tokens * REACHES[known - 1] // self.prompt_bytes if known else 0

    def known(self, tokens: int) -> int:
        """The inverse."""
        return bisect_left(range(len(self.keys)), tokens, key=self.tokens)


class Candidate(NamedTuple):
    """A worker with a free slot, and how many of the prompt's tokens it probably has cached.

    `room`: it has little enough ahead to be given more. `hot`: it has had more than its share of the work, and what it
    has cached must not speak for it.
    """

    worker: Worker
    cached_tokens: int = 0
    room: bool = True
    hot: bool = False


class Selection(NamedTuple):
    """The worker chosen. `cost_s`: estimated seconds to the first token there, 0 where a policy does not estimate."""

    worker: Worker
    cached_tokens: int = 0
    cost_s: float = 0.0


class RoutingPolicy(Protocol):
    """Chooses among candidates."""

    def pick(self, candidates: Sequence[Candidate], ask: RoutingRequest, now: float) -> Selection | None:
        """Who takes it; None while it should rather wait, as it must when nobody has room."""
        ...
