"""Plans one step: its budget, then its decodes, then its prefills.

Decodes: one token for each request that lacks nothing else, with a page if it needs one. If none is free, the request
that costs least is preempted (`preemption`), possibly itself, but never the oldest.

Prefills: class by class (`WeightedShares`) in the tokens that decodes leave; within a class, by response ratio. Running
and new prompts compete by their ratios. Ratios alone would let a long running prompt stall while short ones keep
arriving, so every OLDEST_FIRST_EVERY-th step continues running prompts oldest first, before new ones.

A step must not take longer than the TPOT promised to its decodes. So prefill tokens are added only while the predicted
step, increased by the usual prediction error, keeps within that: a target that is met only on average is missed half of
the time. If the model predicts nothing, nothing is capped.

A request is admitted only if it fits now and at the predicted peak (`admission`). If it does not, running requests of a
class that has had more than its share may be preempted for it; otherwise no request of its kind may pass it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import inf, sqrt
from operator import attrgetter, itemgetter

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.scheduling.cost import known
from paceline_workers.engine.scheduling.plan import Chunk, read_tokens
from paceline_workers.engine.scheduling.preemption import PreemptionPolicy, preemptible
from paceline_workers.engine.scheduling.queues import RunningSet, ratio, response_ratio
from paceline_workers.engine.scheduling.request import URGENCY, Request, RequestStatus, lead, members

OLDEST_FIRST_EVERY = 8
WEIGHTS: Mapping[RequestClass, float] = {
    RequestClass.INTERACTIVE: 8.0,
    RequestClass.BATCH: 2.0,
    RequestClass.OFFLINE: 1.0,
}


@dataclass(slots=True)
class StepBuilder:
    """Prefill stops at `budget` tokens or `seconds`, but never before `min_prefill` tokens, so that it always
    progresses. No token attends to more than `visible` tokens. `held_since`: since when all waited for others to join.

    `closed`: nothing more is admitted, because a decode had to preempt or a head could not be admitted: later requests
    must not pass and starve it. `barred`: no request of this urgency or less is admitted, because one of them has to
    leave reserved pages to others.
    """

    budget: int
    model: StepTime
    min_prefill: int
    visible: float = inf
    held_since: float | None = None
    seconds: float = inf
    closed: bool = False
    barred: int = len(URGENCY)
    chunks: list[Chunk] = field(default_factory=list)
    tokens: dict[RequestClass, int] = field(default_factory=lambda: dict.fromkeys(URGENCY, 0))

    def admits(self, name: RequestClass) -> bool:
        """Whether a request of this class could still be admitted."""
        room = self.budget > 0 and (self.min_prefill > 0 or self.seconds > 0)
        return room and not self.closed and URGENCY[name] < self.barred

    def close(self, request: Request, *, reserved: bool) -> None:
        """Make this request wait, and those that would pass it."""
        if reserved:
            self.barred = min(self.barred, request.urgency)
        else:
            self.closed = True

    def add_decodes(self, chunks: list[Chunk]) -> None:
        """Add one token for each request that lacks nothing else, before any prefill."""
        self.chunks = chunks
        self.budget -= len(chunks)
        for name, count in Counter([chunk.request.request_class for chunk in chunks]).items():
            self.tokens[name] += count

    def keep_targets(self, tpot: Sequence[float], reads: Sequence[int], margin: float) -> None:
        """Leave to prefills the seconds that decodes with these targets and contexts leave.

        Steps take up to `margin` longer than predicted.
        """
        if known(self.model):
            kv_tokens = read_tokens(reads, self.visible)
            taken = self.model.seconds(prefill_tokens=0, sequences=len(reads), kv_tokens=kv_tokens)
            self.seconds = max(min(tpot) / (1 + margin) - taken, 0.0)

    def add_prefill(self, request: Request) -> None:
        """Add as much of its gap, none of it pending, as the step and its pages have room for."""
        computed, gap = request.computed, len(request.tokens) - request.computed
        count = min(gap, self.budget, request.room - computed)
        within = longest_chunk(self.model, computed, self.seconds, self.visible)
        if within is not None:
            count = min(count, max(within, self.min_prefill))
        if count > 0:
            self.seconds = max(self.seconds - chunk_seconds(self.model, computed, count, self.visible), 0.0)
            self.min_prefill = max(self.min_prefill - count, 0)
            scored = max(min(count, request.prompt_len - 1 - computed), 0) if request.scores else 0
            self.chunks.append(Chunk(request, computed, count, count == gap, scored))
            self.budget -= count
            self.tokens[request.request_class] += count

    def remove(self, request: Request) -> None:
        """Remove a request from the step; the seconds it would have taken are not returned."""
        for place, chunk in enumerate(self.chunks):
            if chunk.request is request:
                del self.chunks[place]
                self.budget += chunk.count
                self.tokens[request.request_class] -= chunk.count
                return


class DecodePhase:
    """Visits every running request in each step, so it reads each field once."""

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
                continue  # its last token, or its group's candidates, are being sampled
            if computed == length and request.beams is not None:
                continue  # its siblings' candidates are still missing
            if length <= request.room or self._grow(request, step):
                if length - computed == 1 and length > request.prompt_len:
                    chunks.append(Chunk(request, computed, 1, True))
                else:
                    prefills.append(request)
        if step.closed:
            chunks = [chunk for chunk in chunks if chunk.request.state is runs]  # a later one may have preempted it
        step.add_decodes(chunks)
        if chunks:
            reads = [chunk.start + 1 for chunk in chunks]
            step.keep_targets([chunk.request.tpot for chunk in chunks], reads, self._costs.margin)
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


class WeightedShares:
    """Weighted fair shares of tokens, by virtual time (start-time fair queueing).

    A class's time grows by its tokens divided by its weight, and the class with the least time goes first; so classes
    with work share tokens in proportion to their weights, and none is starved: it waits until the others have had their
    multiple of its tokens. A class without work accumulates no credit: when it gets work, it starts at the time of the
    slowest busy class. Ties go to the most urgent class. Other policies are subclasses.
    """

    def __init__(self, weights: Mapping[RequestClass, float] | None = None) -> None:
        self._weights = {**WEIGHTS, **(weights or {})}
        self._times = dict.fromkeys(RequestClass, 0.0)
        self._busy: frozenset[RequestClass] = frozenset()

    def order(self, busy: Set[RequestClass]) -> list[RequestClass]:
        """Classes with work left, least time first; newly busy ones lose the share that they did not use."""
        if self._busy != busy:
            stayed = [self._times[name] for name in self._busy & busy]
            start = min(stayed) if stayed else max(self._times.values())
            for name in busy - self._busy:
                self._times[name] = max(self._times[name], start)
            self._busy = frozenset(busy)
        return sorted([name for name in URGENCY if name in busy], key=self._times.__getitem__)

    def charge(self, name: RequestClass, tokens: int) -> None:
        self._times[name] += tokens / self._weights[name]

    def yields(self, holder: RequestClass, claimant: RequestClass) -> bool:
        """Whether a waiting request may preempt a running one: its class has more weight and is within its share."""
        heavier = self._weights[claimant] > self._weights[holder]
        return heavier and self._times[claimant] <= self._times[holder]

    def service(self, seconds: float) -> float:
        """A request's service in the response ratio (a constant means first come, first served)."""
        return seconds


class PrefillPhase:
    """Continues running prompts, and admits waiting requests."""

    def __init__(self, requests: RunningSet, preemption: PreemptionPolicy, policy: WeightedShares) -> None:
        self._requests = requests
        self._admission = requests.admission
        self._costs = requests.costs
        self._preemption = preemption
        self._policy = policy

    def plan(self, step: StepBuilder, prefills: list[Request], opens: Mapping[RequestClass, float], now: float) -> None:
        """Add the running `prefills`, and waiting requests that may join by now; charge each class its tokens.

        `opens`: when each waiting class may join.
        """
        joining = {name for name, time in opens.items() if time <= now}
        for name in self._policy.order(joining | {request.request_class for request in prefills}):
            prompts = [
                (request, self._costs.service(request.gap, request.wanted))
                for request in prefills
                if request.request_class is name
            ]
            for request, response in prefill_order(prompts, self._requests.counters.steps, now):
                if name in joining:
                    self._admit(name, step, opens[name], now, above=response)
                if request.state is RequestStatus.RUNNING:
                    step.add_prefill(request)
            if name in joining:
                self._admit(name, step, opens[name], now)
        for name, tokens in step.tokens.items():
            self._policy.charge(name, tokens)

    def _admit(self, name: RequestClass, step: StepBuilder, opened: float, now: float, *, above: float = -inf) -> None:
        waiting = self._requests.waiting
        while step.admits(name) and (request := waiting.head(name, now)):
            if self._requests.refresh(request):
                continue  # what is cached now may have changed the head
            if response_ratio(request, now) <= above or request.preempted_round == self._requests.round:
                return
            if not self._make_room(request, step):
                return
            # how long it waited only because of a window
            since, came = step.held_since, request.arrival
            batch_wait = max(min(opened, now) - came, 0.0) if since is None else now - max(came, since)
            self._requests.admit(request, now, batch_wait)
            step.add_prefill(request)

    def _make_room(self, request: Request, step: StepBuilder) -> bool:
        """Preempt the cheapest of the least urgent class that yields to it, until it fits; False if none does."""
        requests = self._requests
        while not self._admission.fits(request, requests.running):
            if self._admission.reserved(request, requests.running):
                step.close(request, reserved=True)
                return False
            classes = {name for name in URGENCY if self._policy.yields(name, request.request_class)}
            found = preemptible(requests.leads(), classes, requests.counters.steps) if classes else []
            if not found:
                step.close(request, reserved=False)
                return False
            victim = self._preemption.choose(found)
            for member in members(victim):
                step.remove(member)
            requests.preempt(victim)
        return True


def prefill_order(prompts: Sequence[tuple[Request, float]], step: int, now: float) -> list[tuple[Request, float]]:
    """Running prompts in the order to continue them; takes them oldest first, each with the seconds that it still
    needs. Returns with each the ratio above which a new prompt may pass it: inf if the oldest goes first.
    """
    if step % OLDEST_FIRST_EVERY == 0:
        return [(request, inf) for request, _ in prompts]
    ratios = [(request, ratio(now - request.arrival, service)) for request, service in prompts]
    return sorted(ratios, key=itemgetter(1), reverse=True)


def chunk_seconds(model: StepTime, start: int, count: int, visible: float = inf) -> float:
    """The seconds that a chunk of `count` tokens from `start` adds to a step."""
    return count * (model.prefill + model.context * min(start + (count + 1) / 2, visible))


def longest_chunk(model: StepTime, start: int, budget: float, visible: float = inf) -> int | None:
    """The longest chunk from `start` within `budget` seconds (None: any): the root of `chunk_seconds(...) = budget`."""
    if budget == inf:
        return None
    linear = model.prefill + model.context * (start + 0.5)
    if not model.context:
        return int(budget / linear)
    root = int((sqrt(linear * linear + 2 * model.context * budget) - linear) / model.context)
    return max(root, int(budget / (model.prefill + model.context * visible)))
