"""The decodes of a step: one token for each request that lacks nothing else, and a page where it needs one.

Who finds no page preempts the request that costs least (`victim`), itself if need be, but never the oldest.
"""

from math import inf
from operator import attrgetter

from paceline_workers.engine.scheduling import cost
from paceline_workers.engine.scheduling.beams import lead, members
from paceline_workers.engine.scheduling.plan import Chunk
from paceline_workers.engine.scheduling.preemption import PreemptionPolicy
from paceline_workers.engine.scheduling.request import Request, RequestStatus
from paceline_workers.engine.scheduling.running import RunningSet
from paceline_workers.engine.scheduling.step_builder import StepBuilder


class DecodePhase:
    """What of those who run decodes. This is done for each of them in each step, so it looks at each field once."""

    def __init__(self, seats: RunningSet, victims: PreemptionPolicy) -> None:
        self._seats = seats
        self._memory = seats.memory
        self._appraisal = seats.appraisal
        self._victims = victims

    def draft(self, draft: StepBuilder) -> list[Request]:
        """Put them into the draft, and how long it may take; returns the others, whose prompts are not through."""
        chunks: list[Chunk] = []
        prefills: list[Request] = []
        runs = RequestStatus.RUNNING
        for request in tuple(self._seats.running):
            if request.state is not runs:
                continue
            computed, pending = request.computed, request.pending
            length = len(request.tokens) + pending
            if pending and (length >= request.end or request.beams is not None):
                continue  # nothing follows what is being drawn; or that, and all siblings, must be known before
            if computed == length and request.beams is not None:
                continue  # its siblings' candidates are to come
            if length <= request.room or self._grow(request, draft):
                if length - computed == 1 and length > request.prompt_len:
                    chunks.append(Chunk(request, computed, 1, True))
                else:
                    prefills.append(request)
        if draft.closed:
            chunks = [chunk for chunk in chunks if chunk.request.state is runs]  # not preempted by a later one
        draft.decode(chunks)
        draft.seconds = self._spare(chunks)
        return prefills

    def _spare(self, chunks: list[Chunk]) -> float:
        """Seconds that prefill may take beside them."""
        promise = min([chunk.request.tpot for chunk in chunks], default=inf)
        kv_tokens = self._memory.sight.total([chunk.start + 1 for chunk in chunks])
        return cost.spare(self._appraisal.model, promise, len(chunks), kv_tokens, self._appraisal.margin)

    def _grow(self, request: Request, draft: StepBuilder) -> bool:
        while not self._memory.grow(request, request.pending):
            victim = self._cheapest_but_oldest()
            for member in members(victim):
                draft.drop(member)
            self._seats.put_back(victim)
            draft.closed = True
            if victim is lead(request):
                return False
        return True

    def _cheapest_but_oldest(self) -> Request:
        oldest = min(self._seats.running, key=attrgetter("arrival"))
        return self._victims.choose(request for request in self._seats.leads() if request is not oldest)
