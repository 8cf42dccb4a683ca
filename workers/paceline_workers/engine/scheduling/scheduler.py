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

from collections.abc import Sequence
from math import inf

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling.admission import Admission
from paceline_workers.engine.scheduling.batch_window import BatchState, BatchWindow, batching, shut
from paceline_workers.engine.scheduling.beams import leads
from paceline_workers.engine.scheduling.commit import StepCommit
from paceline_workers.engine.scheduling.cost_estimator import CostEstimator
from paceline_workers.engine.scheduling.deadlines import Deadlines, too_late
from paceline_workers.engine.scheduling.decode import DecodePhase
from paceline_workers.engine.scheduling.fair_share import ClassPolicy, WeightedShares
from paceline_workers.engine.scheduling.length_forecast import Forecast
from paceline_workers.engine.scheduling.plan import SampledToken, SchedulerLimits, StepPlan
from paceline_workers.engine.scheduling.preemption import Choice, PreemptionPolicy, cheapest
from paceline_workers.engine.scheduling.prefill import PrefillPhase
from paceline_workers.engine.scheduling.request import Request
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
        self._appraisal = CostEstimator(memory, self._policy)
        self._batching = batching(limits)
        self._seats = seats = RunningSet(memory, self._batching, self.admission, self._appraisal)
        self.running = seats.running
        self.waiting = seats.waiting
        self.counters = seats.counters
        self._deadlines = Deadlines(self._appraisal.latest_start)
        self._window = BatchWindow()
        victims = PreemptionPolicy(memory, self._appraisal, self.counters, choose)
        self._decodes = DecodePhase(seats, victims)
        self._prefills = PrefillPhase(seats, victims, self._policy, self._window)
        self._results = StepCommit(seats, forecast)

    @property
    def model(self) -> StepTime:
        """How long a step takes: whoever learns it tells."""
        return self._appraisal.model

    def learn(self, model: StepTime, margin: float = 0.0) -> None:
        """This is how long a step takes, and by what share that is usually off."""
        self._appraisal.model, self._appraisal.margin = model, margin

    # --- requests come and go

    def submit(self, request: Request) -> Rejection | None:
        """Queue a request; returns why it is not queued."""
        limits, waiting = self.limits, self.waiting
        if reason := invalid(request, limits) or too_large(request, limits, self.memory):
            return Rejection(reason)
        if request.id in self._seats.known:
            return Rejection(f"a request {request.id!r} is running already", "error")
        if reason := queue_full(request.request_class, waiting.counts(), limits):
            self.counters.shed("queue_full")
            return Rejection(reason, "queue_full")
        request.tpot = min(request.tpot, limits.tpot.get(request.request_class, inf))
        request.end = min(request.prompt_len + request.max_tokens, limits.max_model_len)
        self._appraisal.renew(request)
        ahead = 0 if request.deadline is None else waiting.ahead(request)
        if reason := self._appraisal.hopeless(request, ahead):
            self.counters.shed("backlog")
            return Rejection(reason, "abort")
        self._seats.enter(request)
        self._deadlines.add(request)
        return None

    def abort(self, request_id: str) -> bool:
        """Forget a request and free its pages; False if it is unknown or has ended."""
        request = self._seats.known.get(request_id)
        if request is not None:
            self._seats.remove(request)
        return request is not None

    def expire(self, now: float) -> list[Tokens]:
        """End what can no longer have its first token in time. Once begun, a stream is finished, however late."""
        due = list(self._deadlines.due(now))
        for request in due:
            self.counters.shed("backlog" if request.deadline and now < request.deadline else "deadline")
        return [self._results.end(request, "abort", too_late(request, now), now) for request in due]

    def fail(self, plan: StepPlan, reason: str, now: float) -> list[Tokens]:
        """End every request of a step that could not be executed; what they had computed is not trusted."""
        ends = [self._results.end(request, "error", reason, now) for request in leads(plan.live)]
        self._distrust(plan)
        return ends

    def retract(self, plan: StepPlan) -> None:
        """A plan will not be executed after all: its requests come back and are computed again."""
        for request in leads(plan.live):
            self._seats.put_back(request)
        self._distrust(plan)

    def _distrust(self, plan: StepPlan) -> None:
        """What the step's copies should have brought is lost: whoever else holds such a page computes it again."""
        lost = self.memory.distrust(plan.copies)
        for request in leads(request for request in self.running if not lost.isdisjoint(request.pages)):
            self._seats.put_back(request)

    # --- one step

    def step(self, now: float) -> StepPlan:
        """What to compute next; empty while idle, while a batch window is open, or until a commit tells more."""
        self._seats.round += 1
        opens = self._batching.opens(self._house())
        if not self.running and shut(opens, now):
            return self._window.hold(opens, self._deadlines.next(), now)
        limits, memory = self.limits, self.memory
        memory.now = now
        self._prefills.look_up()
        self.admission.changed()
        floor = min(limits.page_tokens, limits.step_tokens)
        draft = StepBuilder(limits.step_tokens, self.model, floor, memory.sight.seen(inf))
        prefills = self._decodes.draft(draft)
        self._prefills.draft(draft, prefills, opens, now)
        return self._planned(draft, self._window.close(now))

    def commit(
        self,
        plan: StepPlan,
        samples: Sequence[SampledToken],
        now: float,
        scores: Sequence[Sequence[PromptLogprob]] = (),
    ) -> list[Tokens]:
        """Take in one sample per chunk that `samples`, and the scores of those that score; what to tell the clients."""
        self.memory.now = now
        self.admission.changed()
        return self._results.take(plan, samples, now, scores)

    def _house(self) -> BatchState:
        oldest = {name: request.arrival for name, request in self.waiting.oldest().items()}
        return BatchState(oldest, self.waiting.counts(), len(self.running), self.limits.slots - len(self.running))

    def _planned(self, draft: StepBuilder, window: float) -> StepPlan:
        """The draft as a plan; what it computes counts as computed from here on."""
        for name, tokens in draft.spent.items():
            self._policy.charge(name, tokens)
        if not draft.chunks:
            return StepPlan(window=window)
        for chunk in draft.chunks:
            request = chunk.request
            request.computed = chunk.start + chunk.count
            request.pending += chunk.samples
        self.counters.steps += 1
        return StepPlan(tuple(draft.chunks), window=window, copies=self.memory.copies(), sight=self.memory.sight)

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
