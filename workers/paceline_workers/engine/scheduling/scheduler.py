"""Continuous batching as a state machine: `step` plans the tokens of one forward pass, `commit` takes its results in.

Results may be one step late: `step` may be called again before the last plan is committed. Plans are executed and
committed in their order, and who leaves meanwhile (ended, aborted, preempted) has its late token dropped.

Each step spends a token budget. Decodes come first, one token each; the rest goes to prefills, class by class in the
policy's order, running ones and new ones by their response ratio, cut into chunks where the budget, or the time
promised to the decodes, ends. Pages for all that is wanted are taken at admission, and a request is admitted only if
the predicted peak of all running ones fits; so a decode runs out of pages only where outputs get longer than foreseen.
It then preempts the request that costs least (`victim`), which comes back before all new ones of its class.

No livelock: the oldest running request is never preempted for want of pages, and alone it always fits, since `submit`
refuses what does not; so it ends, and then the next one is the oldest. A request preempted to make room for another
class is not preempted so again before it has produced a token, and only for a class below its share of tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from msgspec import structs

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.memory.kv import KvMemory
from paceline_workers.engine.scheduling import pace, shedding
from paceline_workers.engine.scheduling.admission import Admission
from paceline_workers.engine.scheduling.batching import Batching, House, batching
from paceline_workers.engine.scheduling.beams import lead, leads, members
from paceline_workers.engine.scheduling.deadlines import Deadlines
from paceline_workers.engine.scheduling.draft import Draft
from paceline_workers.engine.scheduling.forecast import Forecast
from paceline_workers.engine.scheduling.plan import Counters, Limits, Plan, Sample
from paceline_workers.engine.scheduling.policy import Policy, WeightedShares
from paceline_workers.engine.scheduling.refusal import crowded, malformed, too_large
from paceline_workers.engine.scheduling.request import Request, State
from paceline_workers.engine.scheduling.seats import Seats
from paceline_workers.engine.scheduling.turns import turns
from paceline_workers.engine.scheduling.victim import Candidate, Choice, cheapest, yielding
from paceline_workers.engine.scheduling.waiting import Waiting, lane, response_ratio
from paceline_workers.engine.scheduling.window import Window, shut
from paceline_workers.messages import Tokens


class Scheduler:
    """All requests of one engine. `now` never goes back; `model`, and by what share it is off (`margin`), are told."""

    def __init__(
        self,
        memory: KvMemory,
        limits: Limits,
        policy: Policy | None = None,
        *,
        choose: Choice = cheapest,
        forecast: Forecast | None = None,
    ) -> None:
        self.memory = memory
        self.limits = limits
        self.model: StepTime = pace.UNKNOWN
        self.margin = 0.0
        self.counters = Counters()
        self.waiting = Waiting()
        self._policy = policy or WeightedShares(limits.weights)
        self._choose = choose
        self._forecast = forecast or Forecast(limits.max_model_len)
        self._batching: Batching = batching(limits)
        self._requests: dict[str, Request] = {}
        self._deadlines = Deadlines(self._latest_start)
        self._window = Window()
        self._round = 0
        self.admission = Admission(memory, limits, self._forecast)
        self._seats = Seats(memory, self._batching, self.admission)
        self.running = self._seats.running

    # --- requests come and go

    def submit(self, request: Request) -> str:
        """Queue a request; returns why it can never run, or "" when it is queued."""
        refusal = malformed(request, self.limits) or too_large(request, self.limits, self.memory)
        if refusal:
            return refusal
        if request.id in self._requests:
            return f"a request {request.id!r} is running already"
        if reason := crowded(request.request_class, self.waiting.counts(), self.limits):
            return self.counters.shed("crowded", reason)
        request.tpot = min(request.tpot, self.limits.tpot.get(request.request_class, inf))
        self._appraise(request)
        ahead = 0 if request.deadline is None else self.waiting.ahead(request)
        if reason := shedding.hopeless(self.model, request, ahead, self.memory.sight):
            return self.counters.shed("backlog", reason)
        self._requests[request.id] = request
        self.waiting.enter(request)
        self._deadlines.add(request)
        return ""

    def abort(self, request_id: str) -> bool:
        """Forget a request and free its pages; False if it is unknown or has ended."""
        request = self._requests.get(request_id)
        if request is not None:
            self._remove(request)
        return request is not None

    def expire(self, now: float) -> list[Tokens]:
        """End what can no longer have its first token in time. Once begun, a stream is finished, however late."""
        due = list(self._deadlines.due(now))
        for request in due:
            self.counters.shed("backlog" if request.deadline and now < request.deadline else "deadline")
        return [self._end(request, "abort", shedding.too_late(request, now), now) for request in due]

    def fail(self, plan: Plan, reason: str, now: float) -> list[Tokens]:
        """End every request of a step that could not be executed; what they had computed is not trusted."""
        ends = [self._end(request, "error", reason, now) for request in leads(plan.live)]
        self._distrust(plan)
        return ends

    def retract(self, plan: Plan) -> None:
        """A plan will not be executed after all: its requests come back and are computed again."""
        for request in leads(plan.live):
            self._preempt(request)
        self._distrust(plan)

    # --- one step

    def step(self, now: float) -> Plan:
        """What to compute next; empty while idle, while a batch window is open, or until a commit tells more."""
        self._round += 1
        opens = self._batching.opens(self._house())
        if not self.running and shut(opens, now):
            return self._window.hold(opens, self._deadlines.next(), now)
        self.memory.now = now
        for request in self.waiting.tour():
            self._requeue(request)
        draft = Draft(self.limits.step_tokens, self.model, min(self.limits.page_tokens, self.limits.step_tokens))
        prefills = self._decode(draft)
        self._fill(draft, prefills, opens, now)
        return self._planned(draft, self._window.close(now))

    def commit(self, plan: Plan, samples: Sequence[Sample], now: float) -> list[Tokens]:
        """Take in one sample per chunk that `samples`, in order; returns what to tell the clients."""
        sampled = [chunk for chunk in plan.chunks if chunk.samples]
        drawn = iter([sample for _, sample in zip(sampled, samples, strict=True)])
        self.memory.now = now
        self.admission.changed()
        events = []
        size = self.limits.page_tokens
        for chunk in plan.chunks:
            request = chunk.request
            sample = next(drawn) if chunk.samples else None
            if request.state is State.RUNNING:
                end = chunk.start + chunk.count
                if end // size > chunk.start // size:
                    self.memory.publish(request, chunk.start, end)
                if sample and (sample.error or sample.vector or request.beams is not None):
                    events += self._special(request, sample, now)
                elif sample:
                    events.append(self._append(request, sample, now))
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
        return max((now - head.arrival for head in self.waiting.oldest().values()), default=0.0)

    # --- step

    def _house(self) -> House:
        oldest = {name: request.arrival for name, request in self.waiting.oldest().items()}
        return House(oldest, self.waiting.counts(), len(self.running), self.limits.slots - len(self.running))

    def _decode(self, draft: Draft) -> list[Request]:
        """A token for each request that lacks nothing else; returns the others, whose prompts are not through."""
        self.admission.changed()
        grow, longest = self.memory.grow, self.limits.max_model_len
        decodes: list[Request] = []
        prefills: list[Request] = []
        for request in tuple(self.running):
            if request.state is not State.RUNNING:
                continue
            if request.beams is not None and (request.pending or not request.gap):
                continue  # its siblings, or its own candidates, are to come
            length = len(request.tokens) + request.pending
            begun = length - request.computed == 1 and length > request.prompt_len
            if begun and request.pending and request.full(length, longest):
                continue
            if grow(request, request.pending) or self._grow(request, draft):
                (decodes if begun else prefills).append(request)
        decodes = [request for request in decodes if request.state is State.RUNNING]  # not preempted by a later one
        draft.decode(decodes)
        kv_tokens = self.memory.sight.total([request.computed + 1 for request in decodes])
        promise = min([request.tpot for request in decodes], default=inf)
        draft.seconds = pace.spare(self.model, promise, len(decodes), kv_tokens, self.margin)
        return prefills

    def _grow(self, request: Request, draft: Draft) -> bool:
        while not self.memory.grow(request, request.pending):
            victim = self._cheapest_but_oldest()
            self._put_back(victim, draft)
            draft.closed = True
            if victim is lead(request):
                return False
        return True

    def _fill(self, draft: Draft, prefills: list[Request], opens: Mapping[RequestClass, float], now: float) -> None:
        """What decodes leave, class by class; within a class, running prompts and new ones by their response ratio."""
        joining = {name for name, time in opens.items() if time <= now}
        for name in self._policy.order(joining | {request.request_class for request in prefills}):
            mine = [
                (request, self._service(request, request.gap)) for request in prefills if request.request_class is name
            ]
            for request, ratio in turns(mine, self.counters.steps, now):
                if name in joining:
                    self._admit(name, draft, opens[name], now, above=ratio)
                if request.state is State.RUNNING:
                    draft.prefill(request, self.memory.reach(request))
            if name in joining:
                self._admit(name, draft, opens[name], now)

    def _admit(self, name: RequestClass, draft: Draft, opened: float, now: float, *, above: float = -inf) -> None:
        while draft.admits(name) and (request := self._head(name, now)):
            if response_ratio(request, now) <= above or request.left_round == self._round:
                return
            if not self._make_room(request, draft):
                return
            self.waiting.admit(request)
            self._seats.place(request)
            self._note_placement(request, opened, now)
            draft.prefill(request, self.memory.reach(request))

    def _head(self, name: RequestClass, now: float) -> Request | None:
        """The next of a class, by what is cached now."""
        while (request := self.waiting.head(name, now)) and self._requeue(request):
            pass
        return request

    def _make_room(self, request: Request, draft: Draft) -> bool:
        while not self.admission.fits(request, self.running):
            reserved = self.admission.reserved(request, self.running)
            if reserved or (victim := self._outranked(request)) is None:
                draft.close(request, reserved=reserved)
                return False
            self._put_back(victim, draft)
        return True

    def _outranked(self, request: Request) -> Request | None:
        """Whom a waiting request may put back: the cheapest of the least urgent class that has to yield."""
        classes = {name for name in RequestClass if self._policy.yields(name, request.request_class)}
        lowest = yielding(leads(self.running), classes, self.counters.steps) if classes else []
        return self._victim(lowest) if lowest else None

    def _cheapest_but_oldest(self) -> Request:
        oldest = min(self.running, key=lambda request: request.arrival)
        return self._victim(request for request in leads(self.running) if request is not oldest)

    def _victim(self, requests: Iterable[Request]) -> Request:
        candidates = (Candidate.of(request, self.model, self.memory) for request in requests)
        return self._choose(candidates, self.counters.steps)

    def _note_placement(self, request: Request, opened: float, now: float) -> None:
        if request.preemptions:
            request.resumed_step = self.counters.steps
            self.counters.recomputed_tokens += max(request.had - request.computed, 0)
        if request.admitted is not None:
            return
        request.admitted = now
        request.cached = min(request.computed, request.prompt_len)
        request.batch_wait = self._window.waited(request, opened, now)
        self.counters.lookup_tokens += request.wanted if self.memory.prefix_cache else 0
        self.counters.hit_tokens += request.computed

    def _put_back(self, victim: Request, draft: Draft) -> None:
        for member in members(victim):
            draft.drop(member)
        self._preempt(victim)

    def _preempt(self, victim: Request) -> None:
        victim.had = victim.computed
        self._seats.leave(victim, State.WAITING)
        if victim.beams is not None:
            victim.beams.fold()
        victim.preemptions += 1
        victim.left_round = self._round
        victim.resumed_at = victim.produced
        self.counters.preemptions += 1
        self._appraise(victim)
        self.waiting.add(victim)

    def _planned(self, draft: Draft, window: float) -> Plan:
        """The draft as a plan; what it computes counts as computed from here on."""
        for name, tokens in draft.spent.items():
            self._policy.charge(name, tokens)
        chunks = tuple(draft.chunks.values())
        if not chunks:
            return Plan(window=window)
        for chunk in chunks:
            chunk.request.computed = chunk.start + chunk.count
            chunk.request.pending += chunk.samples
        self.counters.steps += 1
        return Plan(chunks, window=window, copies=self.memory.copies(), sight=self.memory.sight)

    # --- what waiting requests would take

    def _appraise(self, request: Request) -> None:
        request.uncached = self.memory.uncached(request)
        request.service = self._service(request, request.uncached)

    def _service(self, request: Request, tokens: int) -> float:
        return self._policy.service(pace.service(self.model, tokens, request.wanted, self.memory.sight.seen(inf)))

    def _requeue(self, request: Request) -> bool:
        """Look a waiting request up again; whether that changed its lane."""
        self._appraise(request)
        if lane(request) == request.lane:
            return False
        self.waiting.remove(request)
        self.waiting.add(request)
        return True

    def _latest_start(self, request: Request) -> float:
        return shedding.latest_start(self.model, request, self.memory.uncached(request), self.memory.sight)

    # --- commit

    def _special(self, request: Request, sample: Sample, now: float) -> list[Tokens]:
        """A row that went wrong, a vector, or a beam's candidates."""
        if sample.error:
            return [self._end(lead(request), "error", sample.error, now)]
        if sample.vector:
            return [structs.replace(self._end(request, "stop", "", now), vector=sample.vector)]
        return self._search(request, sample, now)

    def _append(self, request: Request, sample: Sample, now: float) -> Tokens:
        request.tokens.append(sample.token)
        request.pending -= 1
        if request.first_token is None:
            self._begin(request, now)
        produced = len(request.tokens) - request.prompt_len
        finish = "stop" if sample.ended else request.finish(produced, self.limits.max_model_len)
        if finish:
            self._forecast.observe(request)
            self._remove(request)
        return Tokens(
            request.id,
            produced - 1,
            [sample.token],
            finish=finish,
            cached=request.cached,
            logprobs=[sample.logprobs] if sample.logprobs else [],
            timing=request.timing(now) if finish else None,
        )

    def _begin(self, request: Request, now: float) -> None:
        """It has its first token; choices that waited for its prompt run on its pages, or queue for want of them."""
        request.first_token = now
        for sibling in self.waiting.follow(request):
            if self.admission.fits(sibling, self.running) and self._seats.fork(request, sibling):
                self._note_placement(sibling, sibling.arrival, now)
            else:
                self.waiting.add(sibling)

    def _search(self, member: Request, sample: Sample, now: float) -> list[Tokens]:
        """A beam has its candidates; with those of all others, the answers may be found."""
        group = member.beams
        assert group is not None
        member.pending -= 1
        group.lead.first_token = group.lead.first_token or now
        if not group.take(member, sample.candidates, self.memory):
            return []
        self._forecast.observe(group.lead)
        self._remove(group.lead)
        return group.tell(now)

    # --- the end of a request

    def _end(self, request: Request, finish: str, error: str, now: float) -> Tokens:
        self._remove(request)
        timing = request.timing(now)
        return Tokens(request.id, request.produced, [], finish, error, request.cached, timing=timing)

    def _remove(self, request: Request) -> None:
        if request.state is State.RUNNING:
            self._seats.leave(request, State.DONE)
        else:
            self.waiting.remove(request)
            request.state = State.DONE
        del self._requests[request.id]
        for sibling in self.waiting.follow(request):
            self.waiting.add(sibling)

    def _distrust(self, plan: Plan) -> None:
        """What the step's copies should have brought is lost: whoever else holds such a page computes it again."""
        lost = self.memory.distrust(plan.copies)
        for request in leads(request for request in self.running if not lost.isdisjoint(request.pages)):
            self._preempt(request)
