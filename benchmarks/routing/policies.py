"""Routing policies by name: the gateway's own `pace`, and those of other gateways that it is compared with.

All have the gateway's interface (`routing.policy.Policy`), so the same fleet asks any of them. The gateway itself knows
`pace` alone: no deployment should choose one of the others, which see neither a request's length nor, but for
`prefix`, what a worker has cached. They choose among workers that have room.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from paceline_gateway.routing.policies import Candidate, RoutingPolicy, RoutingRequest, Selection, ShortestTTFT, weight

Name = Literal["pace", "prefix", "least_kv", "power_of_two", "least_requests", "random", "round_robin"]
BOUND = 1.25
_Choose = Callable[[Sequence[Candidate], RoutingRequest], Candidate]


class BaselinePolicy:
    """A policy that is one function of the candidates with room."""

    def __init__(self, choose: _Choose) -> None:
        self._choose = choose

    def pick(self, candidates: Sequence[Candidate], ask: RoutingRequest, now: float) -> Selection | None:  # noqa: ARG002
        """The function's choice; None where no candidate has room."""
        roomy = [candidate for candidate in candidates if candidate.room]
        if not roomy:
            return None
        chosen = self._choose(roomy, ask)
        return Selection(chosen.worker, chosen.cached_tokens)


def round_robin(candidates: Sequence[Candidate], _: RoutingRequest) -> Candidate:
    """The worker picked the longest ago."""
    return min(candidates, key=lambda candidate: candidate.worker.picked)


def least_requests(candidates: Sequence[Candidate], _: RoutingRequest) -> Candidate:
    """The worker with the fewest in flight; equals take turns."""
    return min(candidates, key=lambda candidate: (candidate.worker.in_flight, candidate.worker.picked))


def least_kv(candidates: Sequence[Candidate], _: RoutingRequest) -> Candidate:
    """The worker whose KV memory is emptiest; equals as for the fewest requests."""
    return min(candidates, key=lambda c: (c.worker.fullness(0), c.worker.in_flight, c.worker.picked))


def prefix(candidates: Sequence[Candidate], ask: RoutingRequest) -> Candidate:
    """The longest match with no more than BOUND times the mean in flight; ties by rendezvous on the first key.

    Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2016).
    """
    mean = sum(candidate.worker.in_flight for candidate in candidates) / len(candidates)
    key = ask.keys[0] if ask.keys else ""
    within = [c for c in candidates if c.worker.in_flight <= BOUND * mean] or candidates
    return max(within, key=lambda c: (c.cached_tokens, weight(key, c.worker.name) if key else -c.worker.picked))


def make(name: Name, *, lookahead_s: float, seed: int) -> RoutingPolicy:
    """A policy by its name. `seed` is for those that draw; gateways with one seed would draw alike."""
    if name == "pace":
        return ShortestTTFT(lookahead_s)
    draws = random.Random(seed)
    choices: Mapping[str, _Choose] = {
        "prefix": prefix,
        "least_kv": least_kv,
        "least_requests": least_requests,
        "round_robin": round_robin,
        "random": lambda candidates, _: draws.choice(candidates),
        "power_of_two": lambda candidates, ask: least_requests(draws.sample(candidates, min(2, len(candidates))), ask),
    }
    return BaselinePolicy(choices[name])
