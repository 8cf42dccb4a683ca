"""Routing policies: which of the workers with room takes a request. `ShortestTTFT` promises the first token soonest.

Estimated seconds to the first token = the work ahead + the prompt's own uncached tokens, by the worker's step-time
model, + the wait for a slot; plus a convex price on KV memory, which grows without bound as it fills up. Tokens that a
worker has cached need no computation, unless the worker is hot (`HotSpotGuard`).

Among the workers within TOLERANCE of the best, the prompt's first unknown key decides by rendezvous hashing, so that
gateways with the same knowledge send the same prefix to the same worker without communication, and a worker that joins
or leaves moves few keys. A prompt without keys goes to the emptier worker, and equal ones take turns.

A worker without room for more work is chosen only for its cached tokens, and only if the estimate there is below that
of a worker with nothing cached and as much work ahead as allowed: waiting in the queue here would then only lose the
cached tokens. Known hole: the time that a slot is held is estimated from this request's own expected output.

Rendezvous hashing (highest random weight) assigns a key to a worker, the same at every gateway and without a table.
Each pair of key and worker has a weight and the heaviest wins, so a worker that joins or leaves moves only the keys
that it wins or had won: one in N (Thaler and Ravishankar, 1996).

Policies are interchangeable: one method, plain data. `benchmarks/routing` has those that this one is compared with.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from xxhash import xxh3_64_intdigest

from paceline_core.registry.enums import RequestClass
from paceline_core.wire.message import REACHES
from paceline_gateway.routing.worker import PLACES, Worker


def weight(key: str, worker: str) -> int:
    """The weight of a worker for a key of hexadecimal digits."""
    return xxh3_64_intdigest(worker.encode(), int(key, 16))


class RoutingRequest(NamedTuple):
    """The properties of a request that a policy may use. `keys` are its prefix keys (`wire.prefix`), shortest first.

    `prompt_tokens` and `expected_output` are estimates; the keys divide `prompt_bytes`.
    """

    prompt_tokens: int
    request_class: RequestClass = RequestClass.INTERACTIVE
    expected_output: int = 0
    keys: tuple[str, ...] = ()
    prompt_bytes: int = 0

    def tokens(self, known: int) -> int:
        """How many of its tokens the first `known` keys cover."""
        return self.prompt_tokens * REACHES[known - 1] // self.prompt_bytes if known else 0

    def known(self, tokens: int) -> int:
        """The inverse of `tokens`: how many keys the first `tokens` cover."""
        return bisect_left(range(len(self.keys)), tokens, key=self.tokens)


class Candidate(NamedTuple):
    """A worker with a free slot, and how many of the prompt's tokens it probably has cached.

    `room`: it has little enough work ahead to get more. `hot`: it has had more than its share of the work, and its
    cached tokens must not count in its favour.
    """

    worker: Worker
    cached_tokens: int = 0
    room: bool = True
    hot: bool = False


class Selection(NamedTuple):
    """The chosen worker. `cost_s`: estimated seconds to the first token there, 0 where a policy makes no estimate."""

    worker: Worker
    cached_tokens: int = 0
    cost_s: float = 0.0


class RoutingPolicy(Protocol):
    """Chooses among candidates."""

    def pick(self, candidates: Sequence[Candidate], request: RoutingRequest, now: float) -> Selection | None: ...


BARRIER_S = 0.15
FULL = 0.99
TOLERANCE = 0.1
TOLERANCE_S = 0.002


class ShortestTTFT:
    """`lookahead_s`: work that a worker may have in advance."""

    def __init__(self, lookahead_s: float) -> None:
        self._lookahead_s = lookahead_s

    def pick(self, candidates: Sequence[Candidate], request: RoutingRequest, now: float) -> Selection | None:  # noqa: ARG002
        place = PLACES[request.request_class]
        costs = [(seconds(c, request, place), c) for c in candidates if c.room or self._worth(c, request, place)]
        if not costs:
            return None
        best = min([cost for cost, _ in costs])
        limit = best + TOLERANCE * best + TOLERANCE_S if request.keys else best
        equals = [entry for entry in costs if entry[0] <= limit]
        cost, chosen = equals[0]
        if len(equals) > 1:
            key = ""  # the first key that no worker has cached; the last one if a worker has them all
            if request.keys:
                most = max(candidate.cached_tokens for candidate in candidates)
                key = request.keys[min(request.known(most), len(request.keys) - 1)]
            cost, chosen = min(equals, key=lambda entry: (entry[1].hot, _turn(entry[1], key)))
        return Selection(chosen.worker, chosen.cached_tokens, cost)

    def _worth(self, candidate: Candidate, request: RoutingRequest, place: int) -> bool:
        """Whether a worker without room has so much cached that waiting for it is worth it."""
        if candidate.hot or not candidate.cached_tokens:
            return False
        fresh = self._lookahead_s + candidate.worker.prefill_s(request.prompt_tokens)
        return seconds(candidate, request, place) < fresh


def seconds(candidate: Candidate, request: RoutingRequest, place: int) -> float:
    """The estimate described above, the price on memory included. `place` is the index of the class."""
    worker, cached_tokens, _, hot = candidate
    cached = 0 if hot else min(cached_tokens, request.prompt_tokens - 1)
    uncached = request.prompt_tokens - cached
    cost = worker.first_token_s(place, uncached, cached, request.expected_output)
    full = min(worker.fullness(uncached + request.expected_output), FULL)
    return cost + BARRIER_S * full / (1 - full)


def _turn(candidate: Candidate, key: str) -> tuple[int, int, int]:
    worker = candidate.worker
    return (-weight(key, worker.name), 0, 0) if key else (0, worker.in_flight, worker.picked)
