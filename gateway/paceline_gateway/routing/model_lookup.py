"""What a model name means to a caller: `namespace/name`, a route's public name, or a service's own short name.

What a tenant may not use does not exist for it: unknown and forbidden get the same 404. A name belongs to the namespace
of the oldest object that claims it and exists for the caller (`core/.../objects/model_names`); its routes go before its
services, and where they lead nowhere no other namespace is asked. A route exists for a caller that matches it and may
use one of its backends. What comes back is a chain: where it goes, and where it may go instead
(`fallback`). Known holes: cascades, degradation and regions are not acted on yet; `url` backends are refused by name.

Which destination of a route's chain takes a request: the one drawn by weight, unless it cannot and a later one can.

The chain is in order: the backend drawn, the others of its kind, those for overflow, those for failure, then the
route's fallback models. Each kind has its own reason to be asked; none is asked that is in no better state itself.
If nobody is better off, the first one holds or refuses the request by its own rules.

A service is crowded where the first token would come later than promised: by what is queued at its workers, or, where
no slot is free, by the wait for one. A wait that is not known diverts nobody. Known hole: the whole queue is taken to
be ahead, also of a tenant whose turn comes sooner.

Decided on admission, and again for who waits for a worker: when none can be asked any more, when the request would have
to leave the queue, when workers have failed it, or when it has waited its share of the time that it may wait. A
request only ever goes on, so each destination is asked at most once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple, get_args

from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedRoute, ResolvedService, ResolvedTenant
from paceline_core.objects.route import Backend, Match
from paceline_core.objects.route import When as BackendWhen
from paceline_gateway.routing.config_snapshot import Claimant, ConfigSnapshot, Unread, short_names

ATTEMPTS = 2
RETRY_SHARE = 0.2
When = Literal["always", "overflow", "failure", "fallback"]


class Destination(NamedTuple):
    """`model` is the name the worker must find in the body. `attempts` counts all dispatches of one request.

    `when` it is asked at all: `fallback` is a model that the route names for when none of its backends can answer.
    """

    service: ResolvedService
    model: str
    attempts: int = ATTEMPTS
    retry_share: float = RETRY_SHARE
    when: When = "always"


@dataclass(frozen=True, slots=True)
class _Choice:
    """A route's backend that this caller may reach."""

    backend: Backend
    weight: int
    service: ResolvedService


class Requester(NamedTuple):
    """Who asks: its tenant, and headers (lower case) that routes may match on."""

    tenant: ResolvedTenant
    headers: Mapping[bytes, bytes]


def resolve_model(name: str, asker: Requester, snapshot: ConfigSnapshot, draw: float) -> tuple[Destination, ...]:
    """Where a request for this model goes, and where it may go if that fails; at least one. Raises RequestError.

    `draw` in [0, 1) chooses among weighted backends.
    """
    if found := _named(name, asker, snapshot, draw, fall_back=True):
        return found
    if any(
        isinstance(one, ResolvedRoute) and all(backend.url is not None for backend, _ in one.backends)
        for one in _owners(name, asker, snapshot)
    ):
        message = f"The model `{name}` is answered by outside endpoints, which this version does not forward to."
        raise RequestError(Code.MODEL_NOT_FOUND, message, param="model")
    raise RequestError(
        Code.MODEL_NOT_FOUND,
        f"The model `{name[:128]}` does not exist or you may not use it; GET /v1/models lists what you may use.",
        param="model",
    )


def usable_names(asker: Requester, snapshot: ConfigSnapshot) -> dict[str, ResolvedService]:
    """Every name that `resolve_model` would take from this caller with these headers, one per service or route."""
    names: dict[str, ResolvedService] = {}
    for key, service in snapshot.services.items():
        if asker.tenant.allows(key):
            best = next(n for n in (*short_names(service), key) if _means(n, service, asker, snapshot))
            names[best] = service
    for name, claimants in snapshot.names.items():
        public = name not in names and any(isinstance(one, ResolvedRoute) for one in claimants)
        if public and (found := _named(name, asker, snapshot, 0.0, fall_back=True)):
            names[name] = found[0].service
    return names


def _means(name: str, service: ResolvedService, asker: Requester, snapshot: ConfigSnapshot) -> bool:
    if name in snapshot.services:
        return name == service.key
    for one in _owners(name, asker, snapshot):
        if isinstance(one, ResolvedService):
            return one is service
        if isinstance(one, ResolvedRoute) and _chain(one, asker, snapshot, 0.0):
            return False
    return False


def _named(
    name: str, asker: Requester, snapshot: ConfigSnapshot, draw: float, *, fall_back: bool
) -> tuple[Destination, ...]:
    if (service := snapshot.services.get(name)) is not None:
        return (Destination(service, name),) if asker.tenant.allows(service.key) else ()
    lead = _chain if fall_back else _by_route
    for one in _owners(name, asker, snapshot):
        if isinstance(one, ResolvedService):
            return (Destination(one, _accepted_name(one, name, snapshot)),)
        if isinstance(one, ResolvedRoute) and (found := lead(one, asker, snapshot, draw)):
            return found
    return ()


def _owners(name: str, asker: Requester, snapshot: ConfigSnapshot) -> list[Claimant]:
    """Claimants that may answer, in order: those of the oldest one's namespace that exist for the caller."""
    known = [one for one in snapshot.names.get(name, ()) if _exists(one, asker)]
    own = [one for one in known if one.namespace == known[0].namespace]
    return sorted(own, key=lambda one: isinstance(one, ResolvedService))


def _exists(one: Claimant, asker: Requester) -> bool:
    if isinstance(one, ResolvedService):
        return asker.tenant.allows(one.key)
    if isinstance(one, Unread):
        return asker.tenant.allows(one.claim.key)
    if one.matches and not any(_match(match, asker) for match in one.matches):
        return False
    # of the services behind a route the caller must be allowed one; a route without any is judged by its own name
    named = [backend.service for backend, _ in one.backends if backend.service] or [one.name]
    return any(asker.tenant.allows(f"{one.namespace}/{service}") for service in named)


def _chain(route: ResolvedRoute, asker: Requester, snapshot: ConfigSnapshot, draw: float) -> tuple[Destination, ...]:
    """Its backends, and its fallbacks, which are all there is when no backend exists.

    Fallbacks stand under its own attempts and budget. Theirs are not followed: no chain goes in a circle.
    """
    fallbacks = [
        found[0]._replace(attempts=route.attempts, retry_share=route.retry_budget, when="fallback")
        for name in route.fallback
        if (found := _named(name, asker, snapshot, draw, fall_back=False))
    ]
    return (*_by_route(route, asker, snapshot, draw), *fallbacks)


def _by_route(route: ResolvedRoute, asker: Requester, snapshot: ConfigSnapshot, draw: float) -> tuple[Destination, ...]:
    """Of each kind the backend that the draw falls on, then the others as they are written."""
    found = []
    for when in get_args(BackendWhen):
        choices = []
        for backend, weight in route.backends:
            service = snapshot.services.get(f"{route.namespace}/{backend.service}") if backend.service else None
            if service is not None and weight > 0 and backend.when == when and asker.tenant.allows(service.key):
                choices.append(_Choice(backend, weight, service))
        rest = draw * sum(choice.weight for choice in choices)
        for place, choice in enumerate(choices):
            rest -= choice.weight
            if rest < 0:
                choices.insert(0, choices.pop(place))
                break
        for chosen in choices:
            model = chosen.backend.model or _accepted_name(chosen.service, route.model, snapshot)
            found.append(Destination(chosen.service, model, route.attempts, route.retry_budget, when))
    return tuple(found)


def _accepted_name(service: ResolvedService, name: str, snapshot: ConfigSnapshot) -> str:
    """The asked name if every worker knows it, else the service's served name, or its full name during a rename."""
    if service.key in snapshot.renamed:
        return service.key
    return name if name in (service.model.served_name, service.key) else service.model.served_name


def _match(match: Match, asker: Requester) -> bool:
    tenant = not match.tenants or asker.tenant.name in match.tenants
    return tenant and all(
        asker.headers.get(header.name.lower().encode()) == header.value.encode() for header in match.headers
    )


class DestinationLoad(IntEnum):
    """How a service would take one more request."""

    OPEN = 0
    OVERLOADED = 1
    """It has workers, but the predicted wait breaks the promise."""
    QUEUE_FULL = 2
    """It would refuse it."""
    UNAVAILABLE = 3
    """No worker can be reached."""


_REASON = {
    "always": DestinationLoad.QUEUE_FULL,
    "overflow": DestinationLoad.OVERLOADED,
    "failure": DestinationLoad.UNAVAILABLE,
    "fallback": DestinationLoad.QUEUE_FULL,
}
"""How badly off all must be that were asked before it for a destination of this kind to be asked."""


def overloaded(ttft_s: float, wait_s: float | None, promised: Sequence[float]) -> DestinationLoad:
    """How a service with workers takes a request: `ttft_s` after it has waited so long for a slot, None if not known.

    Who must wait is held to the strictest of the promises, who need not to the loosest.
    """
    if not promised:
        return DestinationLoad.OPEN
    late = ttft_s + wait_s > min(promised) if wait_s else ttft_s > max(promised)
    return DestinationLoad.OVERLOADED if late else DestinationLoad.OPEN


def choose(chain: Sequence[tuple[When, DestinationLoad]]) -> int:
    """The place in the chain that takes the request."""
    place = next_destination(chain[1:], chain[0][1])
    return 0 if place is None else place + 1


def next_destination(rest: Sequence[tuple[When, DestinationLoad]], here: DestinationLoad) -> int | None:
    """The place in the rest of a chain that takes a request from where it is now; None if it is best off there."""
    best = here
    for place, (when, pressure) in enumerate(rest):
        if best >= _REASON[when]:
            if pressure < min(best, DestinationLoad.QUEUE_FULL):
                return place
            best = min(best, pressure)
    return None


def share_s(hold_s: float, left: int) -> float:
    """How long a request waits at one destination while so many others are left; it may wait `hold_s` in all."""
    return hold_s / (left + 1)
