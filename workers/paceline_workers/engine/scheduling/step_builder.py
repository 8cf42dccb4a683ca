"""A step being planned: the token budget, the seconds that decodes leave to prefill, and the chunks so far."""

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
    """Prefill stops where `budget` tokens or `seconds` end, but never before `min_prefill` tokens: so it always
    progresses. No token attends to over `visible`.

    `closed`: nothing more is admitted. Either a decode had to preempt, or a head had to stay: later requests must not
    pass and starve it. `barred`: nothing of this urgency or less is admitted, since one of them has to leave reserved
    pages to others.
    """

    budget: int
    model: StepTime
    min_prefill: int
    visible: float = inf
    seconds: float = inf
    closed: bool = False
    barred: int = len(URGENCY)
    chunks: list[Chunk] = field(default_factory=list)
    tokens: dict[RequestClass, int] = field(default_factory=lambda: dict.fromkeys(URGENCY, 0))

    @property
    def has_room(self) -> bool:
        """Whether a prefill could still begin."""
        return self.budget > 0 and (self.min_prefill > 0 or self.seconds > 0)

    def admits(self, name: RequestClass) -> bool:
        """Whether a request of this class could still begin."""
        return self.has_room and not self.closed and URGENCY[name] < self.barred

    def close(self, request: Request, *, reserved: bool) -> None:
        """This request has to wait, and so do those that would pass it."""
        if reserved:
            self.barred = min(self.barred, request.urgency)
        else:
            self.closed = True

    def add_decodes(self, chunks: list[Chunk]) -> None:
        """One token for each request that lacks nothing else; before any prefill is added."""
        self.chunks = chunks
        self.budget -= len(chunks)
        for name, count in Counter([chunk.request.request_class for chunk in chunks]).items():
            self.tokens[name] += count

    def add_prefill(self, request: Request, reach: int) -> None:
        """As much of its gap as there is room for, up to the token that its pages reach."""
        count = min(request.gap, self.budget, reach - request.computed)
        within = cost.tokens(self.model, request.computed, self.seconds, self.visible)
        if within is not None:
            count = min(count, max(within, self.min_prefill))
        if count > 0:
            self.seconds = max(self.seconds - cost.seconds(self.model, request.computed, count, self.visible), 0.0)
            self.min_prefill = max(self.min_prefill - count, 0)
            self.chunks.append(Chunk(request, request.computed, count, count == request.gap))
            self.budget -= count
            self.tokens[request.request_class] += count

    def remove(self, request: Request) -> None:
        """Take a request out again; the seconds it would have taken are not given back."""
        for place, chunk in enumerate(self.chunks):
            if chunk.request is request:
                del self.chunks[place]
                self.budget += chunk.count
                self.tokens[request.request_class] -= chunk.count
                return
