"""Continuous batching as a state machine: `step` plans the tokens of one forward pass, `commit` applies its results.

    submit -> waiting -> admission -> prefill / decode -> step -> commit -> done

Results may be one step late: `step` may be called again before the last plan is committed. Plans are executed and
committed in their order; a request that leaves meanwhile (ended, aborted, preempted) has its late token dropped.

Each step spends a token budget. Decodes come first, one token each; the rest goes to prefills, class by class in the
policy's order, running and new ones by their response ratio, cut into chunks where the budget ends, or the time that
the decodes' targets allow. Admission takes pages for all wanted tokens, and admits a request only if the predicted peak
of all running ones fits; so a decode runs out of pages only where outputs get longer than predicted. It then preempts
the request that costs least (`preemption`), which comes back before all new ones of its class.

No livelock: the oldest running request is never preempted for want of pages, and alone it always fits, since `submit`
rejects what does not; so it ends, and then the next one is the oldest. A request preempted to make room for another
class is not preempted so again before it has produced a token, and only for a class below its share of tokens.
"""

from collections.abc import Sequence
from math import inf

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling.admission import Admission
from paceline_workers.engine.scheduling.batch_window import BatchState, BatchWindow, batching, none_open
from paceline_workers.engine.scheduling.commit import StepCommit
from paceline_workers.engine.scheduling.cost import CostEstimator
from paceline_workers.engine.scheduling.deadlines import Deadlines, too_late
from paceline_workers.engine.scheduling.decode import DecodePhase
from paceline_workers.engine.scheduling.fair_share import ClassPolicy, WeightedShares
from paceline_workers.engine.scheduling.length_forecast import Forecast
from paceline_workers.engine.scheduling.plan import SampledToken, SchedulerLimits, StepPlan
from paceline_workers.engine.scheduling.preemption import Choice, PreemptionPolicy, cheapest
from paceline_workers.engine.scheduling.prefill import PrefillPhase
from paceline_workers.engine.scheduling.request import Request, leads
from paceline_workers.engine.scheduling.running import RunningSet
from paceline_workers.engine.scheduling.step_builder import StepBuilder
from paceline_workers.engine.scheduling.validation import Rejection, invalid, queue_full, too_large
from paceline_workers.messages import PromptLogprob, Tokens


class Scheduler:
    """All requests of one engine. `now` never goes back."""

    def __init__(
        self,
        memory: KVCacheManager,
        limits: SchedulerLimits,
        policy: ClassPolicy | None = None,
        *,
        choose: Choice = cheapest,
        forecast: Forecast | None = None,
    ) -> None:
        forecast = forecast or Forecast(limits.max_model_len)
        self.memory = memory
        self.limits = limits
        self.admission = Admission(memory, limits, forecast)
        self._policy = policy or WeightedShares(limits.weights)
        self._costs = CostEstimator(memory, self._policy)
        self._batching = batching(limits)
        self._requests = requests = RunningSet(memory, self._batching, self.admission, self._costs)
        self.running = requests.running
        self.waiting = requests.waiting
        self.counters = requests.counters
        self._deadlines = Deadlines(self._costs, memory)
        self._window = BatchWindow()
        preemption = PreemptionPolicy(memory, self._costs, self.counters, choose)
        self._decode = DecodePhase(requests, preemption)
        self._prefill = PrefillPhase(requests, preemption, self._policy, self._window)
        self._commit = StepCommit(requests, forecast)

    @property
    def model(self) -> StepTime:
        """How long a step takes, as last learnt."""
        return self._costs.model

    def learn(self, model: StepTime, margin: float = 0.0) -> None:
        """Set how long a step takes, and by what share that is usually off."""
        self._costs.model, self._costs.margin = model, margin

    # --- requests come and go

    def submit(self, request: Request) -> Rejection | None:
        """Queue a request, or return why not."""
        limits, waiting = self.limits, self.waiting
        if reason := invalid(request, limits) or too_large(request, limits, self.memory):
            return Rejection(reason)
        if request.id in self._requests.known:
            return Rejection(f"a request {request.id!r} is running already", "error")
        if reason := queue_full(request.request_class, waiting.counts(), limits):
            self.counters.shed("queue_full")
            return Rejection(reason, "queue_full")
        request.tpot = min(request.tpot, limits.tpot.get(request.request_class, inf))
        request.end = min(request.prompt_len + request.max_tokens, limits.max_model_len)
        self._costs.refresh(request)
        ahead = 0 if request.deadline is None else waiting.ahead(request)
        if reason := self._deadlines.cannot_meet(request, ahead):
            self.counters.shed("backlog")
            return Rejection(reason, "abort")
        self._requests.enqueue(request)
        self._deadlines.add(request)
        return None

    def abort(self, request_id: str) -> bool:
        """Remove a request and free its pages; False if it is unknown or has ended."""
        request = self._requests.known.get(request_id)
        if request is not None:
            self._requests.remove(request)
        return request is not None

    def expire(self, now: float) -> list[Tokens]:
        """End requests that can no longer have their first token in time; never a stream that has begun."""
        due = list(self._deadlines.due(now))
        for request in due:
            self.counters.shed("backlog" if request.deadline and now < request.deadline else "deadline")
        return [self._commit.end(request, "abort", too_late(request, now), now) for request in due]

    def fail(self, plan: StepPlan, reason: str, now: float) -> list[Tokens]:
        """End every request of a step that could not be executed; its pages are not trusted."""
        ends = [self._commit.end(request, "error", reason, now) for request in leads(plan.live)]
        self._invalidate(plan)
        return ends

    def retract(self, plan: StepPlan) -> None:
        """A plan will not be executed after all: its requests are preempted, and computed again."""
        for request in leads(plan.live):
            self._requests.preempt(request)
        self._invalidate(plan)

    def _invalidate(self, plan: StepPlan) -> None:
        """Pages that the step's copies should have filled are lost: any other request that holds one is preempted."""
        lost = self.memory.invalidate(plan.copies)
        for request in leads(request for request in self.running if not lost.isdisjoint(request.pages)):
            self._requests.preempt(request)

    # --- one step

    def step(self, now: float) -> StepPlan:
        """Plan the next step; empty while idle, while a batch window is open, or when only a commit can bring more."""
        self._requests.round += 1
        limits, memory, running = self.limits, self.memory, len(self.running)
        oldest = {name: request.arrival for name, request in self.waiting.oldest().items()}
        opens = self._batching.opens(BatchState(oldest, self.waiting.counts(), running, limits.slots - running))
        if not running and none_open(opens, now):
            return self._window.hold(opens, self._deadlines.next(), now)
        memory.pool.now = now
        self._prefill.refresh_some()
        self.admission.changed()
        min_prefill = min(limits.page_tokens, limits.step_tokens)
        step = StepBuilder(limits.step_tokens, self.model, min_prefill, memory.attention_window.visible(inf))
        prefills = self._decode.plan(step)
        self._prefill.plan(step, prefills, opens, now)
        return self._planned(step, self._window.close(now))

    def commit(
        self,
        plan: StepPlan,
        samples: Sequence[SampledToken],
        now: float,
        scores: Sequence[Sequence[PromptLogprob]] = (),
    ) -> list[Tokens]:
        """Apply one sample for each chunk that `samples` and the prompt `scores`; returns the clients' frames."""
        self.memory.pool.now = now
        self.admission.changed()
        return self._commit.apply(plan, samples, now, scores)

    def _planned(self, step: StepBuilder, window: float) -> StepPlan:
        """The step as a plan; its tokens count as computed from here on."""
        for name, tokens in step.tokens.items():
            self._policy.charge(name, tokens)
        if not step.chunks:
            return StepPlan(window=window)
        for chunk in step.chunks:
            request = chunk.request
            request.computed = chunk.start + chunk.count
            request.pending += chunk.samples
        self.counters.steps += 1
        return StepPlan(
            tuple(step.chunks),
            window=window,
            copies=self.memory.copies(),
            attention_window=self.memory.attention_window,
        )

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
