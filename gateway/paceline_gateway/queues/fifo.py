"""One class's line: first come, first served, except for those who were served once and lost their worker."""

from collections import OrderedDict
from collections.abc import Iterator

from paceline_gateway.queues.ticket import Ticket


class Fifo:
    """Tickets in order, found by id in constant time."""

    def __init__(self) -> None:
        self._line: OrderedDict[int, Ticket] = OrderedDict()
        self.prompt_tokens = 0

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._line.values())

    @property
    def head(self) -> Ticket | None:
        """Whose turn it is."""
        return next(iter(self), None)

    @property
    def nearest_deadline(self) -> float | None:
        """The soonest moment at which somebody here gives up."""
        return min((ticket.deadline for ticket in self), default=None)

    @property
    def oldest(self) -> float | None:
        """When the head joined."""
        head = self.head
        return None if head is None else head.joined

    def join(self, ticket: Ticket, *, front: bool = False) -> None:
        """Stand at the end, or at the front."""
        self._line[ticket.id] = ticket
        if front:
            self._line.move_to_end(ticket.id, last=False)
        self.prompt_tokens += ticket.prompt_tokens

    def leave(self, ticket: Ticket) -> bool:
        """Step out; False when the ticket does not stand here."""
        if self._line.pop(ticket.id, None) is None:
            return False
        self.prompt_tokens -= ticket.prompt_tokens
        return True
