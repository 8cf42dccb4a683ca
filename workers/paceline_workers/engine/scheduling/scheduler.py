"""Continuous batching as a state machine: `step` plans the tokens of one forward pass, `commit` takes its results in.

Each step spends a token budget. Decodes come first, one token each; the rest goes to prefills, class by class in the
policy's order, running ones before new ones, cut into chunks where the budget ends. Pages for all that is wanted are
taken at admission, so only a decode can run out of them; it then preempts the newest request of the least urgent
class, whose tokens are computed again later (its full pages stay cached, so mostly they are found again).

No livelock: the running request of the best rank is never preempted for another's sake, and alone it always fits,
since `submit` refuses what does not; so it ends, and then the next one is the best. A request preempted to make room
for a more urgent class is not preempted so again before it has produced a token.
Known hole: outputs of unknown length are admitted with one spare page per running request, not by their future peak.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.memory.kv import KvMemory
from paceline_workers.engine.scheduling.deadlines import Deadlines
from paceline_workers.engine.scheduling.plan import Chunk, Counters, Limits, Plan, Sample
from paceline_workers.engine.scheduling.policy import Policy, strict_priority
from paceline_workers.engine.scheduling.refusal import malformed, too_large
from paceline_workers.engine.scheduling.request import Request, State
from paceline_workers.engine.scheduling.waiting import Waiting
from paceline_workers.messages import Tokens


@dataclass(slots=True)
class _Draft:
    """A step in the making. `closed`: nothing more is admitted in it.

    Either a decode had to preempt, or a head had to stay: what comes after it must not slip past and starve it.
    """

    budget: int
    chunks: dict[str, Chunk] = field(default_factory=dict)
    closed: bool = False

    def add(self, request: Request) -> None:
        count = min(request.gap, self.budget)
        if count > 0:
            self.chunks[request.id] = Chunk(request, request.computed, count, count == request.gap)
            self.budget -= count

    def drop(self, request: Request) -> None:
        chunk = self.chunks.pop(request.id, None)
        self.budget += chunk.count if chunk else 0


class Scheduler:
    """All requests of one engine. `now` is seconds of any clock that never goes back."""

    def __init__(self, memory: KvMemory, limits: Limits, policy: Policy = strict_priority) -> None:
        self.memory = memory
        self.limits = limits
        self.counters = Counters()
        self.waiting = Waiting()
        self.running: list[Request] = []
        self._policy = policy
        self._requests: dict[str, Request] = {}
        self._deadlines = Deadlines()
        self._window_since: float | None = None

    # --- requests come and go

    def submit(self, request: Request) -> str:
        """Queue a request; returns why it can never run, or "" when it is queued."""
        refusal = malformed(request, self.limits) or too_large(request, self.limits, self.memory.total)
        if refusal:
            return refusal
        if request.id in self._requests:
            return f"a request {request.id!r} is running already"
        if len(self.waiting) >= self.limits.max_waiting:
            return f"the engine's queue is full ({self.limits.max_waiting} requests)"
        self._requests[request.id] = request
        self.waiting.add(request)
        self._deadlines.add(request)
        return ""

    def abort(self, request_id: str) -> bool:
        """Forget a request and free its pages; False if it is unknown or has ended."""
        request = self._requests.get(request_id)
        if request is not None:
            self._remove(request)
        return request is not None

    def expire(self, now: float) -> list[Tokens]:
        """End what has no first token by its deadline. Once begun, a stream is finished, however late."""
        return [
            self._end(request, "abort", f"no token before the deadline, {now - request.arrival:.3f} s", now)
            for request in self._deadlines.due(now)
        ]

    def fail(self, plan: Plan, reason: str, now: float) -> list[Tokens]:
        """End every request of a step that could not be executed; what they had computed is not trusted."""
        live = [chunk.request for chunk in plan.chunks if chunk.request.state is State.RUNNING]
        ends = [self._end(request, "error", reason, now) for request in live]
        self._distrust(plan)
        return ends

    # --- one step

    def step(self, now: float) -> Plan:
        """What to compute next; empty while idle, or while a batch window is open."""
        if not self.running:
            opens = self._window_end()
            if opens is None or now < opens:
                return self._hold(opens, now)
        self.memory.now = now
        draft = _Draft(self.limits.step_tokens)
        window = 0.0 if self._window_since is None else now - self._window_since
        self._decode(draft)
        for name in self._policy(self.waiting.turns(now)):
            self._prefill(name, draft)
            self._admit(name, draft, now)
        self._window_since = None
        chunks = tuple(draft.chunks.values())
        return Plan(chunks, window=window, copies=self.memory.copies() if chunks else ())

    def commit(self, plan: Plan, samples: Sequence[Sample], now: float) -> list[Tokens]:
        """Take in one sample per chunk that `samples`, in order; returns what to tell the clients."""
        sampled = [chunk for chunk in plan.chunks if chunk.samples]
        drawn = dict(zip((chunk.request.id for chunk in sampled), samples, strict=True))
        self.counters.steps += 1
        self.memory.now = now
        events = []
        for chunk in plan.chunks:
            if chunk.request.state is State.RUNNING:
                chunk.request.computed = chunk.start + chunk.count
                self.memory.publish(chunk.request, chunk.start, chunk.request.computed)
                if chunk.samples:
                    events.append(self._append(chunk.request, drawn[chunk.request.id], now))
        return events

    # --- numbers for metrics and the load stream

    def queued_tokens(self) -> dict[RequestClass, int]:
        """Tokens by class yet to be prefilled, of waiting and of running requests."""
        queued = self.waiting.tokens()
        for request in self.running:
            queued[request.request_class] += 0 if request.decoding else request.gap
        return queued

    def oldest_wait(self, now: float) -> float:
        """Age of the oldest waiting request, 0 if none waits."""
        return max((now - head.arrival for head in self.waiting.heads()), default=0.0)

    # --- step

    def _window_end(self) -> float | None:
        heads = self.waiting.heads()
        full = len(self.waiting) >= self.limits.slots
        windows = {} if full else self.limits.windows
        return min((head.arrival + windows.get(head.request_class, 0.0) for head in heads), default=None)

    def _hold(self, opens: float | None, now: float) -> Plan:
        if opens is None:
            self._window_since = None
        elif self._window_since is None:
            self._window_since = now
        wakes = [time for time in (opens, self._deadlines.next()) if time is not None]
        return Plan(wake=min(wakes, default=None))

    def _decode(self, draft: _Draft) -> None:
        for request in [request for request in self.running if request.decoding]:
            if request.state is State.RUNNING and self._grow(request, draft):
                draft.add(request)

    def _grow(self, request: Request, draft: _Draft) -> bool:
        while not self.memory.grow(request):
            victim = self.running[-1]
            self._preempt(victim)
            draft.closed = True
            if victim is request:
                return False
        return True

    def _prefill(self, name: RequestClass, draft: _Draft) -> None:
        for request in self.running:
            if request.request_class is name and not request.decoding:
                draft.add(request)

    def _admit(self, name: RequestClass, draft: _Draft, now: float) -> None:
        while draft.budget > 0 and not draft.closed and (request := self.waiting.head(name)):
            if not self._make_room(request, draft):
                draft.closed = True
                return
            self.waiting.admit(request, now)
            self._place(request, now)
            draft.add(request)

    def _make_room(self, request: Request, draft: _Draft) -> bool:
        while not self._fits(request):
            victim = self._outranked(request)
            if victim is None:
                return False
            draft.drop(victim)
            self._preempt(victim)
        return True

    def _fits(self, request: Request) -> bool:
        spare = len(self.running)
        return spare < self.limits.slots and self.memory.cost(request) + spare <= self.memory.available

    def _outranked(self, request: Request) -> Request | None:
        for other in reversed(self.running):
            if other.urgency <= request.urgency:
                return None
            if not other.preemptions or other.produced > other.resumed_at:
                return other
        return None

    def _place(self, request: Request, now: float) -> None:
        self.memory.place(request)
        request.state = State.RUNNING
        insort(self.running, request, key=attrgetter("rank"))
        if request.admitted is None:
            self._note_admission(request, now)

    def _note_admission(self, request: Request, now: float) -> None:
        request.admitted = now
        request.cached = request.computed
        if self._window_since is not None:
            request.batch_wait = now - max(request.arrival, self._window_since)
        self.counters.lookup_tokens += request.prompt_len if self.memory.prefix_cache else 0
        self.counters.hit_tokens += request.computed

    def _preempt(self, victim: Request) -> None:
        self.running.remove(victim)
        self.memory.release(victim)
        victim.state = State.WAITING
        victim.computed = 0
        victim.preemptions += 1
        victim.resumed_at = victim.produced
        self.counters.preemptions += 1
        self.waiting.add(victim)

    # --- commit

    def _append(self, request: Request, sample: Sample, now: float) -> Tokens:
        request.tokens.append(sample.token)
        if request.first_token is None:
            request.first_token = now
        finish = self._finish_reason(request)
        if finish:
            self._remove(request)
        return Tokens(
            request.id,
            request.produced - 1,
            [sample.token],
            finish=finish,
            cached=request.cached,
            logprobs=[sample.logprobs] if sample.logprobs else [],
            timing=request.timing(now) if finish else None,
        )

    def _finish_reason(self, request: Request) -> str:
        if request.tokens[-1] in request.stop_ids and request.produced > request.min_tokens:
            return "stop"
        if request.produced >= request.max_tokens or request.wanted >= self.limits.max_model_len:
            return "length"
        return ""

    # --- the end of a request

    def _end(self, request: Request, finish: str, error: str, now: float) -> Tokens:
        self._remove(request)
        timing = request.timing(now)
        return Tokens(request.id, request.produced, [], finish, error, request.cached, timing=timing)

    def _remove(self, request: Request) -> None:
        if request.state is State.RUNNING:
            self.running.remove(request)
            self.memory.release(request)
        else:
            self.waiting.remove(request)
        request.state = State.DONE
        del self._requests[request.id]

    def _distrust(self, plan: Plan) -> None:
        """What the step's copies should have brought is lost: whoever else holds such a page computes it again."""
        lost = self.memory.distrust(plan.copies)
        for request in [request for request in self.running if not lost.isdisjoint(request.pages)]:
            self._preempt(request)
