"""Model lookup: the destinations that a model name means to a caller, and which of them takes a request.

A name is `namespace/name`, a route's public name, or a service's own short name. An object that a tenant may not use
does not exist for it: unknown and forbidden names get the same 404. A name belongs to the namespace of the oldest
object that claims it and exists for the caller (`core/.../objects/model_names`). Its routes come before its services;
if none of them leads anywhere, no other namespace is tried. A route exists for a caller that matches it and may use one
of its backends. The result is a chain: the destination and its fallbacks (`fallback`). Known holes: cascades and
regions are not implemented; a request to a `url` backend is refused with an error that says so.

The backend drawn by weight takes the request, unless it cannot and a later destination can. The order is: the backend
drawn, the others with the same `when`, those for overflow, those for failure, then the route's fallback models. Each
kind has its own condition (`_REASON`), and a destination is chosen only if its state is better. If none is better, the
first one holds or refuses the request by its own rules.

A service is overloaded if the first token would be later than promised: because of the prompts queued at its workers,
or, if no slot is free, because of the wait for one. An unknown wait diverts no request. Known hole: the whole queue is
assumed to be ahead, even for a tenant whose turn comes sooner.

This is decided on admission, and again for a waiting request: when its service has no eligible worker, when the request
would have to leave the queue, when workers failed it, or when it has waited its share of its time limit. A request only
moves forward in its chain, so each destination is tried at most once.

A route may serve less while the destination that takes a request is under pressure (`Degradation`): a smaller model in
the place of that destination, or fewer output tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple, get_args

from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedRoute, ResolvedService, ResolvedTenant
from paceline_core.objects.route import Backend, Match, Pressure
from paceline_core.objects.route import When as BackendWhen
from paceline_gateway.routing.config_snapshot import Claimant, ConfigSnapshot, Unread, short_names

ATTEMPTS = 2
RETRY_SHARE = 0.2
When = Literal["always", "overflow", "failure", "fallback"]


class Destination(NamedTuple):
    """`model` is the name that the worker must find in the body. `attempts` counts all dispatches of one request.

    `when` it may be used: `fallback` is a model that the route names for when none of its backends can answer.
    `degradation`: what its route serves instead while its service is under pressure.
    """

    service: ResolvedService
    model: str
    attempts: int = ATTEMPTS
    retry_share: float = RETRY_SHARE
    when: When = "always"
    degradation: "Degradation | None" = None
    instead_of: ResolvedService | None = None
    """The service under pressure, because of which this destination serves less; it may be the same."""
    max_tokens: int | None = None
    """The most output tokens that it serves then, beside its class's own limit."""


class Degradation(NamedTuple):
    """A smaller `model`, `max_tokens` at most, or both, once pressure of this kind has lasted `after_s`."""

    trigger: Pressure
    after_s: float
    model: Destination | None
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class _Choice:
    """A route's backend that this caller may use."""

    backend: Backend
    weight: int
    service: ResolvedService


class Requester(NamedTuple):
    """The caller: its tenant, and the headers (lower case) that routes may match."""

    tenant: ResolvedTenant
    headers: Mapping[bytes, bytes]


def resolve_model(name: str, asker: Requester, snapshot: ConfigSnapshot, draw: float) -> tuple[Destination, ...]:
    """The destination of a request for this model, then its fallbacks; at least one. Raises RequestError.

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
    """Every name that `resolve_model` accepts from this caller with these headers, one per service or route."""
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
    """The possible targets, in order: those of the oldest claimant's namespace that exist for the caller."""
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
    # the caller must be allowed one of the services behind a route; a route without any is checked by its own name
    named = [backend.service for backend, _ in one.backends if backend.service] or [one.name]
    return any(asker.tenant.allows(f"{one.namespace}/{service}") for service in named)


def _chain(route: ResolvedRoute, asker: Requester, snapshot: ConfigSnapshot, draw: float) -> tuple[Destination, ...]:
    """The route's backends, then its fallbacks; only the fallbacks if no backend exists.

    Fallbacks have this route's attempts and budget. Their own fallbacks are ignored, so that no chain is a circle; and
    so it is with a smaller model's.
    """

    def others(names: Sequence[str]) -> list[Destination]:
        return [
            found[0]._replace(attempts=route.attempts, retry_share=route.retry_budget, when="fallback")
            for name in names
            if (found := _named(name, asker, snapshot, draw, fall_back=False))
        ]

    backends = _by_route(route, asker, snapshot, draw)
    if (less := route.degrade) is not None:
        model = next(iter(others((less.model,) if less.model else ())), None)
        degradation = Degradation(less.trigger, less.after_s, model, less.max_tokens)
        backends = tuple(backend._replace(degradation=degradation) for backend in backends)
    return (*backends, *others(route.fallback))


def _by_route(route: ResolvedRoute, asker: Requester, snapshot: ConfigSnapshot, draw: float) -> tuple[Destination, ...]:
    """For each `when`: the backend that the draw selects, then the others in their order in the route."""
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
    """The requested name if every worker knows it, else the service's served name, or its full name during a rename."""
    if service.key in snapshot.renamed:
        return service.key
    return name if name in (service.model.served_name, service.key) else service.model.served_name


def _match(match: Match, asker: Requester) -> bool:
    tenant = not match.tenants or asker.tenant.name in match.tenants
    return tenant and all(
        asker.headers.get(header.name.lower().encode()) == header.value.encode() for header in match.headers
    )


def degraded(chain: Sequence[Destination], *, smaller: bool) -> tuple[Destination, ...]:
    """The chain whose first destination is under pressure; `smaller`: its route's smaller model can take its place."""
    first, less = chain[0], chain[0].degradation
    if less is None:
        return tuple(chain)
    taking = less.model if smaller and less.model is not None else first
    return (taking._replace(instead_of=first.service, max_tokens=less.max_tokens), *chain[1:])


class DestinationLoad(IntEnum):
    """How a service would take one more request."""

    OPEN = 0
    OVERLOADED = 1
    """It has workers, but the predicted wait breaks the promise."""
    QUEUE_FULL = 2
    """It would refuse the request."""
    UNAVAILABLE = 3
    """No worker is eligible."""


_REASON = {
    "always": DestinationLoad.QUEUE_FULL,
    "overflow": DestinationLoad.OVERLOADED,
    "failure": DestinationLoad.UNAVAILABLE,
    "fallback": DestinationLoad.QUEUE_FULL,
}
"""The least load that all earlier destinations must have before a destination of this kind is considered."""


def overloaded(ttft_s: float, wait_s: float | None, promised: Sequence[float]) -> DestinationLoad:
    """The load of a service with workers: the first token comes `ttft_s` after a wait for a slot; None if unknown.

    With a wait the strictest of the promises counts, without one the loosest.
    """
    if not promised:
        return DestinationLoad.OPEN
    late = ttft_s + wait_s > min(promised) if wait_s else ttft_s > max(promised)
    return DestinationLoad.OVERLOADED if late else DestinationLoad.OPEN


def choose(chain: Sequence[tuple[When, DestinationLoad]]) -> int:
    """The index in the chain of the destination that takes the request."""
    place = next_destination(chain[1:], chain[0][1])
    return 0 if place is None else place + 1


def next_destination(rest: Sequence[tuple[When, DestinationLoad]], here: DestinationLoad) -> int | None:
    """The index in the rest of a chain of a better destination than the present one; None if there is none."""
    best = here
    for place, (when, load) in enumerate(rest):
        if best >= _REASON[when]:
            if load < min(best, DestinationLoad.QUEUE_FULL):
                return place
            best = min(best, load)
    return None


def share_s(hold_s: float, left: int) -> float:
    """How long a request waits at one destination while `left` others remain; it may wait `hold_s` in all."""
    return hold_s / (left + 1)
