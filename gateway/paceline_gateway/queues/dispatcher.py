"""One service's waiting room and its workers: who waits, who goes where, who is turned away. Pure.

Requests wait here, not at the workers: a slot and room for more work must be free before one goes, so a worker that
joins takes its share of what already waits. Waiting while nobody is eligible is called being held; it is the same
line, with a cap of its own, and it drains at the pace the first worker can take.
Between classes the more urgent one goes first. Known hole: sustained urgent overload starves the others until they
reach their age limit; fair sharing belongs to this file's successor.
"""

from dataclasses import dataclass

from paceline_core.errors import Code, RequestError
from paceline_core.registry.enums import RequestClass
from paceline_gateway.queues.drain import DrainRate
from paceline_gateway.queues.fifo import Fifo
from paceline_gateway.queues.ticket import Ticket
from paceline_gateway.routing.fleet import Fleet
from paceline_gateway.routing.worker import Worker


@dataclass(frozen=True, slots=True)
class Caps:
    """`held`: requests waiting while no worker is eligible; `size`: bytes of bodies waiting."""

    held: int
    size: int


class Dispatcher:
    """`waiting` counts the requests in all lines, `size` the bytes of their bodies."""

    def __init__(self, fleet: Fleet, caps: Caps) -> None:
        self.fleet = fleet
        self.lines = {name: Fifo() for name in RequestClass}
        self._caps = caps
        self._drain = {name: DrainRate() for name in RequestClass}
        self._in_flight: dict[int, Worker] = {}
        self.waiting = 0
        self.size = 0

    def held(self, now: float) -> int:
        """Requests that wait because nobody is eligible."""
        return self.waiting if self.waiting and not self.fleet.eligible(now) else 0

    def refusal(self, request_class: RequestClass, size: int, limit: int, now: float) -> RequestError | None:
        """Why one more request cannot wait here, if so. `limit` is its class's cap on waiting requests."""
        waiting = len(self.lines[request_class])
        if waiting >= limit and (self.waiting or not self.fleet.has_room(now, request_class)):
            code, why = Code.QUEUE_FULL, f"The queue of {request_class} requests is full: {waiting} waiting."
        elif self.size + size > self._caps.size:
            code, why = Code.QUEUE_FULL, "The waiting requests are too large together."
        elif self.waiting >= self._caps.held and not self.fleet.eligible(now):
            code, why = Code.NO_CAPACITY, f"No worker is ready, and too many wait for one: {self.waiting}."
        else:
            return None
        after = self._drain[request_class].retry_after(waiting + 1, now)
        return RequestError(code, why, retry_after=after)

    def join(self, ticket: Ticket, now: float) -> None:
        """Wait at the end of the class's line."""
        ticket.joined = now
        self._join(ticket, front=False)

    def rejoin(self, ticket: Ticket, deadline: float) -> None:
        """Wait again, at the front: its worker failed it."""
        ticket.deadline = deadline
        self._join(ticket, front=True)

    def leave(self, ticket: Ticket) -> None:
        """Wait no longer."""
        if self.lines[ticket.request_class].leave(ticket):
            self.waiting -= 1
            self.size -= ticket.size

    def assign(self, now: float) -> list[tuple[Ticket, Worker]]:
        """Everybody who can go now, in order, each with a worker whose slot is already taken."""
        assigned: list[tuple[Ticket, Worker]] = []
        for line in self.lines.values():
            while (ticket := line.head) is not None:
                pick = self.fleet.pick(ticket.ask, now, ticket.avoid)
                if pick is None:
                    return assigned
                self.leave(ticket)
                self.fleet.take(pick, ticket.id, ticket.ask, now, stream=ticket.stream)
                ticket.cached_tokens = pick.cached_tokens
                self._in_flight[ticket.id] = pick.worker
                self._drain[ticket.request_class].departed(now)
                assigned.append((ticket, pick.worker))
        return assigned

    def began(self, ticket: Ticket) -> None:
        """Its first token came."""
        worker = self._in_flight.get(ticket.id)
        if worker is not None:
            worker.began(ticket.id)

    def free(self, ticket: Ticket, now: float, *, suspect: bool) -> None:
        """It ended at its worker."""
        worker = self._in_flight.pop(ticket.id, None)
        if worker is not None:
            worker.give(ticket.id, now, failed=suspect)
            ticket.avoid |= {worker.name}

    def _join(self, ticket: Ticket, *, front: bool) -> None:
        self.lines[ticket.request_class].join(ticket, front=front)
        self.waiting += 1
        self.size += ticket.size
