"""How a request that waits goes on to another destination of its route: who can take it, and what it takes along.

Its reservation stays as it is, for limits are the tenant's and not a service's: it is settled once, by what whoever
serves it in the end has counted. The service that it leaves counts it as demand, is owed nothing for it, and keeps its
place in no line. Known hole: what it reserved was estimated, and priced, for the first destination.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline_core.errors import RequestError
from paceline_core.registry.enums import FallbackReason, RequestClass
from paceline_gateway.api.admission import AdmittedRequest, readmit
from paceline_gateway.api.routes import writes
from paceline_gateway.proxy.active_request import ActiveRequest
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.request.prompt_size import PromptSize
from paceline_gateway.routing.fallback_chain import DestinationLoad, When, next_destination, share_s
from paceline_gateway.routing.model_lookup import Destination
from paceline_gateway.services.service_state import ServiceState

_PRESSURE = {
    FallbackReason.OVERLOADED: DestinationLoad.OVERLOADED,
    FallbackReason.QUEUE_FULL: DestinationLoad.QUEUE_FULL,
    FallbackReason.TIMEOUT: DestinationLoad.QUEUE_FULL,
    FallbackReason.UNAVAILABLE: DestinationLoad.UNAVAILABLE,
    FallbackReason.ERROR: DestinationLoad.UNAVAILABLE,
}
"""How badly off a request is where it is."""
States = list[tuple[When, DestinationLoad]]


@dataclass(frozen=True, slots=True)
class BlockedGroup:
    """Requests that wait in vain for one reason and have the same way on: where one cannot go, no other can."""

    service: str
    request_class: RequestClass
    reason: FallbackReason
    onward: tuple[str, ...]


def destination_loads(  # noqa: PLR0913, PLR0917 - all that a judgement rests on
    chain: Sequence[Destination],
    desks: Mapping[str, ServiceState],
    name: RequestClass,
    size: int,
    prompt: PromptSize,
    now: float,
) -> States:
    """How each destination would take one more request; one that is gone is down."""
    found = ((destination.when, desks.get(destination.service.key)) for destination in chain)
    return [
        (when, DestinationLoad.UNAVAILABLE if desk is None else desk.pressure(name, size, prompt, now))
        for when, desk in found
    ]


def fall_back(call: ActiveRequest, reason: FallbackReason, desks: Mapping[str, ServiceState], now: float) -> bool:
    """Send it on, if a later destination can take it."""
    here, admission, ticket = call.desk, call.admission, call.ticket
    if here is None or ticket is None or admission is None or not admission.onward or call.life.begun:
        return False
    states = destination_loads(admission.onward, desks, ticket.request_class, ticket.size, admission.prompt, now)
    while (place := next_destination(states, _PRESSURE[reason])) is not None:
        desk = desks[admission.onward[place].service.key]
        found = _place_at(desk, call, admission, ticket, place)
        if found is not None and desk.takes(found[1], now):
            here.went_on(ticket, reason)
            desk.arrived(ticket.request_class, found[1].prompt_tokens, ticket.tenant)
            call.diverted(desk, *found)
            return True
        states[place] = (states[place][0], DestinationLoad.QUEUE_FULL)
    return False


def fallback_reason(call: ActiveRequest, up: dict[ServiceState, bool], now: float) -> BlockedGroup | None:
    """Whether it waits where no worker can be asked, or has waited its share of the time that it may.

    `up` keeps, for one look at many calls, which services have a worker that can be asked.
    """
    desk, ticket, admission = call.desk, call.ticket, call.admission
    if desk is None or ticket is None or admission is None or not admission.onward:
        return None
    if not call.life.waiting or call.life.begun:
        return None
    hold_s = desk.service.classes[ticket.request_class].hold_timeout_s
    if desk not in up:
        up[desk] = bool(desk.fleet.eligible(now))
    if not up[desk]:
        reason = FallbackReason.UNAVAILABLE
    elif now - ticket.joined >= share_s(hold_s, len(admission.onward)):
        reason = FallbackReason.TIMEOUT
    else:
        return None
    return BlockedGroup(desk.key, ticket.request_class, reason, tuple(d.service.key for d in admission.onward))


def _place_at(
    desk: ServiceState, call: ActiveRequest, admission: AdmittedRequest, ticket: QueuedRequest, place: int
) -> tuple[AdmittedRequest, QueuedRequest] | None:
    """What it is there; None if it asks for more than that one gives."""
    tenant = call.request.head.tenant
    if tenant is None:
        return None
    try:
        admitted = readmit(call.request.body, tenant, admission, place, path=call.request.head.path)
    except RequestError:
        return None
    return admitted, desk.ticket(ticket.id, tenant, admitted, call.life.deadline, writes=writes(call.request.head.path))
