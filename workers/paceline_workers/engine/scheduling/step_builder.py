"""A step in the making: the token budget, the seconds that decodes leave to prefill, and the chunks so far."""

from collections import Counter
from dataclasses import dataclass, field
from math import inf

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.scheduling import cost
from paceline_workers.engine.scheduling.plan import Chunk
from paceline_workers.engine.scheduling.request import URGENCY, Request


@dataclass(slots=True)
class StepBuilder:
    """Prefill stops where `budget` tokens or `seconds` end, but never before `floor` tokens: so it always progresses.
    No token attends to over `seen`.

    `closed`: nothing more is admitted. Either a decode had to preempt, or a head had to stay: what comes after it must
    not slip past and starve it. `barred`: nor is anything as urgent as this, or less, since one of them has to leave
    pages to others.
    """

    budget: int
    model: StepTime
    floor: int
    seen: float = inf
    seconds: float = inf
    closed: bool = False
    barred: int = len(URGENCY)
    chunks: list[Chunk] = field(default_factory=list)
    spent: dict[RequestClass, int] = field(default_factory=lambda: dict.fromkeys(URGENCY, 0))

    @property
    def room(self) -> bool:
        """Whether a prefill could still begin."""
        return self.budget > 0 and (self.floor > 0 or self.seconds > 0)

    def admits(self, name: RequestClass) -> bool:
        """Whether one of this class could still begin."""
        return self.room and not self.closed and URGENCY[name] < self.barred

    def close(self, request: Request, *, reserved: bool) -> None:
        """This one has to stay."""
        if reserved:
            self.barred = min(self.barred, request.urgency)
        else:
            self.closed = True

    def decode(self, chunks: list[Chunk]) -> None:
        """One token for each request that lacks nothing else; before anything else is drafted."""
        self.chunks = chunks
        self.budget -= len(chunks)
        for name, count in Counter([chunk.request.request_class for chunk in chunks]).items():
            self.spent[name] += count

    def prefill(self, request: Request, reach: int) -> None:
        """As much of its gap as there is room for, up to the token that its pages reach."""
        count = min(request.gap, self.budget, reach - request.computed)
        within = cost.tokens(self.model, request.computed, self.seconds, self.seen)
        if within is not None:
            count = min(count, max(within, self.floor))
        if count > 0:
            self.seconds = max(self.seconds - cost.seconds(self.model, request.computed, count, self.seen), 0.0)
            self.floor = max(self.floor - count, 0)
            self._put(request, count)

    def drop(self, request: Request) -> None:
        """Take a request out again; the seconds it would have taken are not given back."""
        for place, chunk in enumerate(self.chunks):
            if chunk.request is request:
                del self.chunks[place]
                self.budget += chunk.count
                self.spent[request.request_class] -= chunk.count
                return

    def _put(self, request: Request, count: int) -> None:
        self.chunks.append(Chunk(request, request.computed, count, count == request.gap))
        self.budget -= count
        self.spent[request.request_class] += count
