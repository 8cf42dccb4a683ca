"""The decodes of a step: one token for each request that lacks nothing else, and a page where it needs one.

A request that finds no page preempts the one that costs least (`preemption`), itself if need be, but never the oldest.
"""

from math import inf
from operator import attrgetter

from paceline_workers.engine.scheduling import cost
from paceline_workers.engine.scheduling.plan import Chunk
from paceline_workers.engine.scheduling.preemption import PreemptionPolicy
from paceline_workers.engine.scheduling.request import Request, RequestStatus, lead, members
from paceline_workers.engine.scheduling.running import RunningSet
from paceline_workers.engine.scheduling.step_builder import StepBuilder


class DecodePhase:
    """Runs over every running request in each step, so it looks at each field once."""

    def __init__(self, requests: RunningSet, preemption: PreemptionPolicy) -> None:
        self._requests = requests
        self._memory = requests.memory
        self._costs = requests.costs
        self._preemption = preemption

    def plan(self, step: StepBuilder) -> list[Request]:
        """Add the decodes and set the seconds left to prefill; returns the requests whose prompts are not computed."""
        chunks: list[Chunk] = []
        prefills: list[Request] = []
        runs = RequestStatus.RUNNING
        for request in tuple(self._requests.running):
            if request.state is not runs:
                continue
            computed, pending = request.computed, request.pending
            length = len(request.tokens) + pending
            if pending and (length >= request.end or request.beams is not None):
                continue  # its last token, or the candidates of its group, are being sampled
            if computed == length and request.beams is not None:
                continue  # its siblings' candidates are to come
            if length <= request.room or self._grow(request, step):
                if length - computed == 1 and length > request.prompt_len:
                    chunks.append(Chunk(request, computed, 1, True))
                else:
                    prefills.append(request)
        if step.closed:
            chunks = [chunk for chunk in chunks if chunk.request.state is runs]  # not preempted by a later one
        step.add_decodes(chunks)
        tpot = min([chunk.request.tpot for chunk in chunks], default=inf)
        kv_tokens = self._memory.attention_window.total([chunk.start + 1 for chunk in chunks])
        step.seconds = cost.spare(self._costs.model, tpot, len(chunks), kv_tokens, self._costs.margin)
        return prefills

    def _grow(self, request: Request, step: StepBuilder) -> bool:
        while not self._memory.grow(request, request.pending):
            oldest = min(self._requests.running, key=attrgetter("arrival"))
            victim = self._preemption.choose(other for other in self._requests.leads() if other is not oldest)
            for member in members(victim):
                step.remove(member)
            self._requests.preempt(victim)
            step.closed = True
            if victim is lead(request):
                return False
        return True
