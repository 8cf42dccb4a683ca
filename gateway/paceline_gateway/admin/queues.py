"""Who waits: each service's lines, how fast they move, and whose requests stand in them. Pure."""

from paceline_core.registry.enums import RequestClass
from paceline_gateway.admin.sight import AdminSnapshot, PageQuery, paginate
from paceline_gateway.admin.views import Line, LineTenant, Queue, Queues
from paceline_gateway.desk import ServiceState
from paceline_gateway.queues.line import FairQueue

TENANTS = 20
"""Of a line's tenants those are told of whom most wait."""


def queues(sight: AdminSnapshot, asked: PageQuery) -> Queues:
    """A page of services."""
    part = paginate(asked.desks(sight), lambda desk: desk.key, asked)
    return Queues(
        gateway=sight.gateway,
        time=sight.time,
        total=part.total,
        truncated=part.truncated,
        queues=tuple(_queue(sight, desk) for desk in part.items),
    )


def _queue(sight: AdminSnapshot, desk: ServiceState) -> Queue:
    room = desk.dispatcher
    return Queue(
        service=desk.key,
        waiting=room.waiting,
        held=room.held(sight.now),
        held_limit=room.caps.held,
        size_bytes=room.size,
        size_limit=room.caps.size,
        kept_slots=desk.fleet.kept,
        lines=tuple(_line(sight, desk, name, line) for name, line in room.lines.items()),
    )


def _line(sight: AdminSnapshot, desk: ServiceState, name: RequestClass, line: FairQueue) -> Line:
    now, deadline = sight.now, line.nearest_deadline
    wait, limit = desk.dispatcher.wait_s(name, now), desk.service.classes[name].queue_limit
    holders = sorted(line.shares.items(), key=lambda holder: (-holder[1], holder[0]))
    return Line(
        name=name,
        waiting=len(line),
        limit=limit,
        size_bytes=line.size,
        prompt_tokens=line.prompt_tokens,
        eldest_s=0.0 if line.oldest is None else round(max(now - line.oldest, 0.0), 3),
        deadline_s=None if deadline is None else round(deadline - now, 3),
        wait_s=None if wait is None else round(wait, 3),
        in_flight=desk.tallies[name].open - len(line),
        tenants_total=len(holders),
        truncated=len(holders) > TENANTS,
        tenants=tuple(_holder(sight, line, tenant, limit) for tenant, _ in holders[:TENANTS]),
    )


def _holder(sight: AdminSnapshot, line: FairQueue, tenant: str, limit: int) -> LineTenant:
    known = sight.picture.tenants.get(tenant)
    return LineTenant(
        tenant=tenant,
        waiting=line.shares.of(tenant),
        share=round(line.shares.share(tenant, 1 if known is None else known.weight, limit), 1),
        cost_tokens=line.cost_of(tenant),
        counter=round(line.accounts.counter(tenant), 1),
    )
