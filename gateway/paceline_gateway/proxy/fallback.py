"""Which later destination of its route takes a request that waits. Decides; `RequestManager.fall_back` acts on it.

The reservation stays as it is, for limits are the tenant's and not a service's: it is settled once, by what the worker
counted that served the request in the end. The service that the request leaves counts it as demand, is owed nothing for
it, and keeps no place for it. Known hole: the reservation was estimated, and priced, for the first destination.
"""

from dataclasses import dataclass

from paceline_core.errors import RequestError
from paceline_core.registry.enums import FallbackReason, RequestClass
from paceline_gateway.api.admission import AdmittedRequest, readmit
from paceline_gateway.api.routes import writes
from paceline_gateway.proxy.active_request import ActiveRequest
from paceline_gateway.proxy.request_context import Placement
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.routing.model_lookup import DestinationLoad, next_destination, share_s
from paceline_gateway.services.registry import ServiceRegistry
from paceline_gateway.services.service_state import ServiceState

_LOAD = {
    FallbackReason.OVERLOADED: DestinationLoad.OVERLOADED,
    FallbackReason.QUEUE_FULL: DestinationLoad.QUEUE_FULL,
    FallbackReason.TIMEOUT: DestinationLoad.QUEUE_FULL,
    FallbackReason.UNAVAILABLE: DestinationLoad.UNAVAILABLE,
    FallbackReason.ERROR: DestinationLoad.UNAVAILABLE,
}
"""The load of the service that a request leaves for this reason."""


@dataclass(frozen=True, slots=True)
class BlockedGroup:
    """Requests that wait in vain for one reason and have the same fallbacks: if one cannot leave, none can."""

    service: str
    request_class: RequestClass
    reason: FallbackReason
    fallbacks: tuple[str, ...]


def find_fallback(
    request: ActiveRequest, reason: FallbackReason, registry: ServiceRegistry, now: float
) -> Placement | None:
    """The first later destination that can take the request."""
    admission, ticket = request.admission, request.ticket
    if request.service is None or ticket is None or admission is None:
        return None
    if not admission.fallbacks or request.machine.begun:
        return None
    loads = registry.loads(admission.fallbacks, ticket.request_class, ticket.size, admission.prompt)
    while (place := next_destination(loads, _LOAD[reason])) is not None:
        service = registry.services[admission.fallbacks[place].service.key]
        placement = _placement(service, request, admission, ticket, place)
        if placement is not None and service.takes(placement.ticket, now):
            return placement
        loads[place] = (loads[place][0], DestinationLoad.QUEUE_FULL)
    return None


def fallback_reason(request: ActiveRequest, up: dict[ServiceState, bool], now: float) -> BlockedGroup | None:
    """Why a waiting request should leave: its service has no worker to ask, or it has waited its share of the limit.

    `up` caches, over one pass of many requests, which services have an eligible worker.
    """
    service, ticket, admission = request.service, request.ticket, request.admission
    if service is None or ticket is None or admission is None or not admission.fallbacks:
        return None
    if not request.machine.waiting or request.machine.begun:
        return None
    hold_s = service.spec.classes[ticket.request_class].hold_timeout_s
    if service not in up:
        up[service] = bool(service.fleet.eligible(now))
    if not up[service]:
        reason = FallbackReason.UNAVAILABLE
    elif now - ticket.joined >= share_s(hold_s, len(admission.fallbacks)):
        reason = FallbackReason.TIMEOUT
    else:
        return None
    fallbacks = tuple(destination.service.key for destination in admission.fallbacks)
    return BlockedGroup(service.key, ticket.request_class, reason, fallbacks)


def _placement(
    service: ServiceState, request: ActiveRequest, admission: AdmittedRequest, ticket: QueuedRequest, place: int
) -> Placement | None:
    """The request under this destination's terms; None if it asks for more than they allow."""
    head = request.http.head
    if head.tenant is None:
        return None
    try:
        admitted = readmit(request.http.body, head.tenant, admission, place, path=head.path)
    except RequestError:
        return None
    queued = service.ticket(ticket.id, head.tenant, admitted, request.machine.deadline, writes=writes(head.path))
    return Placement(service, admitted, queued)
