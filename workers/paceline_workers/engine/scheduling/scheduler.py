"""Continuous batching as a state machine: `step` plans the tokens of one forward pass, `commit` applies its results.

    submit -> waiting -> admission -> prefill / decode -> step -> commit -> done

Results may be one step late: `step` may be called again before the last plan is committed. Plans are executed and
committed in order; if a request leaves meanwhile (ended, aborted, preempted), its late token is dropped.

Each step spends a token budget. Decodes come first, one token each; the rest goes to prefills, class by class in the
policy's order, running and new ones by their response ratio, cut into chunks at the end of the budget, or of the time
that the decodes' targets allow. Admission takes pages for all wanted tokens, and admits a request only if the predicted
peak of all running ones fits; so a decode runs out of pages only if outputs get longer than predicted. It then preempts
the request that costs least (`preemption`), which comes back before all new ones of its class.

No livelock: the oldest running request is never preempted for lack of pages, and alone it always fits, because `submit`
rejects others; so it ends, and then the next one is the oldest. A request preempted to make room for another class is
not preempted so again before it has produced a token, and only for a class below its share of tokens.

A request that can never run, one that finds no room now and one that would be late end differently: clients should give
up, retry later, or allow more time, and a gateway must not count any of them as an engine failure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling.admission import Admission, Forecast
from paceline_workers.engine.scheduling.batch_window import BatchState, batching, wake
from paceline_workers.engine.scheduling.beams import too_wide
from paceline_workers.engine.scheduling.commit import StepCommit
from paceline_workers.engine.scheduling.cost import CostEstimator, Deadlines, too_late
from paceline_workers.engine.scheduling.plan import SampledToken, SchedulerLimits, StepPlan
from paceline_workers.engine.scheduling.preemption import Choice, PreemptionPolicy, cheapest
from paceline_workers.engine.scheduling.queues import RunningSet
from paceline_workers.engine.scheduling.request import Request, leads
from paceline_workers.engine.scheduling.step_builder import (
    DecodePhase,
    PrefillPhase,
    StepBuilder,
    WeightedShares,
)
from paceline_workers.messages import PromptLogprob, Tokens


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a request is not queued, and the `Tokens.finish` of its only frame."""

    message: str
    finish: Literal["refused", "queue_full", "abort", "error"] = "refused"


class Scheduler:
    """All requests of one engine. `now` never decreases."""

    def __init__(
        self,
        memory: KVCacheManager,
        limits: SchedulerLimits,
        policy: WeightedShares | None = None,
        *,
        choose: Choice = cheapest,
        forecast: Forecast | None = None,
    ) -> None:
        forecast = forecast or Forecast(limits.max_model_len)
        self.memory = memory
        self.limits = limits
        self.admission = Admission(memory, limits, forecast)
        policy = policy or WeightedShares(limits.weights)
        self.costs = CostEstimator(memory.attention_window.visible(inf), policy.service)
        self._batching = batching(limits)
        self._requests = requests = RunningSet(memory, self.admission, self.costs)
        self.running = requests.running
        self.waiting = requests.waiting
        self.counters = requests.counters
        self._deadlines = Deadlines(self.costs, memory)
        preemption = PreemptionPolicy(memory, self.costs, self.counters, choose)
        self._decode = DecodePhase(requests, preemption)
        self._prefill = PrefillPhase(requests, preemption, policy)
        self._policy = policy
        self._commit = StepCommit(requests, forecast)
        self._held_since: float | None = None

    def learn(self, model: StepTime, margin: float = 0.0) -> None:
        """Set the step-time model, and its usual relative error."""
        self.costs.model, self.costs.margin = model, margin

    # --- requests come and go

    def submit(self, request: Request) -> Rejection | None:
        """Queue a request, or return why it cannot be."""
        limits, waiting = self.limits, self.waiting
        if reason := invalid(request, limits) or too_large(request, limits, self.memory):
            return Rejection(reason)
        if request.id in self._requests.known:
            return Rejection(f"a request {request.id!r} is running already", "error")
        if reason := queue_full(request.request_class, waiting.counts, limits):
            self.counters.shed("queue_full")
            return Rejection(reason, "queue_full")
        request.tpot = min(request.tpot, limits.tpot.get(request.request_class, inf))
        request.end = min(request.prompt_len + request.max_tokens, limits.max_model_len)
        self._requests.estimate(request)
        others = request.deadline is not None and waiting.counts[request.request_class]
        if others and (reason := self._deadlines.cannot_meet(request, waiting.ahead(request))):
            self.counters.shed("backlog")
            return Rejection(reason, "abort")
        self._deadlines.add(request)
        self._requests.enqueue(request)
        return None

    def abort(self, request_id: str) -> bool:
        """Remove a request and free its pages; False if it is unknown or has ended."""
        request = self._requests.known.get(request_id)
        if request is not None:
            self._requests.remove(request)
        return request is not None

    def expire(self, now: float) -> list[Tokens]:
        """End requests whose first token can no longer be in time; never a stream that has begun."""
        due = list(self._deadlines.due(now))
        for request in due:
            self.counters.shed("backlog" if request.deadline and now < request.deadline else "deadline")
        return [self._commit.end(request, "abort", too_late(request, now), now) for request in due]

    @property
    def next_deadline(self) -> float:
        """The earliest time at which `expire` may end a request."""
        due = self._deadlines.next()
        return inf if due is None else due

    def fail(self, plan: StepPlan, reason: str, now: float) -> list[Tokens]:
        """End every request of a step that could not be executed, and distrust its pages."""
        ends = [self._commit.end(request, "error", reason, now) for request in leads(plan.live)]
        self._invalidate(plan)
        return ends

    def retract(self, plan: StepPlan) -> None:
        """A plan will not be executed: its requests are preempted, and computed again."""
        for request in leads(plan.live):
            self._requests.preempt(request)
        self._invalidate(plan)

    def _invalidate(self, plan: StepPlan) -> None:
        """The pages that the step's copies should have filled are lost: preempt every other request that holds one."""
        lost = self.memory.invalidate(plan.copies)
        for request in leads(request for request in self.running if not lost.isdisjoint(request.pages)):
            self._requests.preempt(request)

    # --- one step

    def step(self, now: float) -> StepPlan:
        """Plan the next step; empty while idle, while a batch window is open, or while it must await a commit."""
        self._requests.round += 1
        limits, memory, running = self.limits, self.memory, len(self.running)
        oldest = {name: request.arrival for name, request in self.waiting.oldest().items()}
        free, joined = limits.max_seqs - running, self._requests.joined
        opens = self._batching.opens(BatchState(oldest, self.waiting.counts, running, free, joined))
        if not running and min(opens.values(), default=inf) > now:
            since = now if self._held_since is None else self._held_since
            self._held_since = since if opens else None
            return StepPlan(wake=wake(opens, self._deadlines.next()))
        held_since, self._held_since = self._held_since, None
        memory.pool.now = now
        for request in self.waiting.round_robin():
            self._requests.refresh(request)
        self.admission.changed()
        step = self.builder(held_since)
        prefills = self._decode.plan(step)
        self._prefill.plan(step, prefills, opens, now)
        window = 0.0 if held_since is None else now - held_since
        if not step.chunks:
            return StepPlan(window=window)
        for chunk in step.chunks:  # from here on its tokens count as computed
            chunk.request.computed = chunk.start + chunk.count
            chunk.request.pending += chunk.samples
        self.counters.steps += 1
        return StepPlan(tuple(step.chunks), None, window, memory.copies(), self.costs.visible)

    def builder(self, held_since: float | None) -> StepBuilder:
        """An empty step."""
        limits = self.limits
        min_prefill = min(limits.page_tokens, limits.step_tokens)
        return StepBuilder(limits.step_tokens, self.costs.model, min_prefill, self.costs.visible, held_since)

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

    # --- many steps at once (`leap`)

    @property
    def holding(self) -> bool:
        """Whether requests wait for others to join their batch, or did until the last step."""
        return self._held_since is not None

    def advance(
        self, tokens: Mapping[RequestClass, int], steps: int, prompts: frozenset[RequestClass] = frozenset()
    ) -> None:
        """Count `steps` steps, each with so many tokens of each class, some of `prompts`, while none waits."""
        self._policy.order(prompts)
        for name, count in tokens.items():
            for _ in range(steps):
                self._policy.charge(name, count)
        self._requests.round += steps
        self.counters.steps += steps
        self.admission.changed()

    # --- numbers for metrics and the load report

    def queued_tokens(self) -> dict[RequestClass, int]:
        """Tokens by class left to prefill, of waiting and of running requests."""
        queued = self.waiting.tokens()
        for request in self.running:
            wanted = request.wanted
            gap = wanted - request.computed
            if gap != 1 or wanted <= request.prompt_len:  # it does not only decode
                queued[request.request_class] += gap
        return queued

    def oldest_wait(self, now: float) -> float:
        """Age of the oldest waiting request, 0 if none waits."""
        return max((now - head.arrival for head in self.waiting.oldest().values()), default=0.0)


def invalid(request: Request, limits: SchedulerLimits) -> str:
    """Why it has nothing to compute or to produce, or ids for which the model has no embedding."""
    if not request.prompt_len or request.max_tokens < 0:
        return "the prompt must have at least one token, and max_tokens 0 or more"
    if min(request.tokens) < 0 or max(request.tokens) >= limits.vocab_size:
        return f"the prompt holds a token id outside this model's vocabulary of {limits.vocab_size}"
    return ""


def too_large(request: Request, limits: SchedulerLimits, memory: KVCacheManager) -> str:
    """Why it needs more than the model's context or all pages (with a window: its least pages), and can never run."""
    length = request.prompt_len
    if length + min(request.max_tokens, 1) > limits.max_model_len:
        return f"the prompt has {length} tokens; this model takes fewer than {limits.max_model_len}"
    if not memory.fits_alone(min(length + request.max_tokens, limits.max_model_len)):
        return f"the request needs more KV memory than there is ({memory.pool.total * limits.page_tokens} tokens)"
    return too_wide(request.beams, limits, memory) if request.beams else ""


def queue_full(name: RequestClass, waiting: Mapping[RequestClass, int], limits: SchedulerLimits) -> str:
    """Why no more requests may wait, in total or in its class."""
    if sum(waiting.values()) >= limits.max_waiting:
        return f"the engine's queue is full ({limits.max_waiting} requests)"
    limit = limits.class_waiting.get(name, limits.max_waiting)
    if waiting[name] >= limit:
        return f"the engine's queue for class {name} is full ({limit} requests)"
    return ""
