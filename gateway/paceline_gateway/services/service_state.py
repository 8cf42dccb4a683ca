"""The state of one service: its dispatcher, its estimates, its counts, and the pressure on it."""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from paceline_core.objects.resolved import ResolvedService, ResolvedTenant
from paceline_core.objects.route import Pressure
from paceline_core.registry import Outcome, RequestClass, Verdict
from paceline_core.registry.enums import FallbackReason
from paceline_core.wire import LENGTH_BUCKETS, Isolated, length_bucket
from paceline_gateway.api.admission import AdmittedRequest
from paceline_gateway.config import HttpLimits
from paceline_gateway.queueing.dispatcher import URGENT, Dispatcher, QueueLimits
from paceline_gateway.queueing.pressure import PressureState
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.queueing.shedding import ShedDecision
from paceline_gateway.request.attempts import RetryBudget
from paceline_gateway.request.burn import BurnWindow
from paceline_gateway.request.prompt_size import PromptSize
from paceline_gateway.request.slo import Verdicts, in_time_s, whole_answer_targets
from paceline_gateway.request.types import RequestRecord, RequestTerms, TokenUsage
from paceline_gateway.routing.circuit_breaker import BreakerState
from paceline_gateway.routing.model_lookup import DestinationLoad, overloaded
from paceline_gateway.routing.policies import RoutingPolicy, RoutingRequest
from paceline_gateway.routing.worker import WorkerHealth
from paceline_gateway.routing.worker_pool import WorkerPool
from paceline_gateway.services.usage_estimates import PRIOR_OUTPUT, UsageEstimates
from paceline_gateway.telemetry.metrics import OTHER
from paceline_gateway.telemetry.service_metrics import ServiceMetrics

_OK, _GOOD = Outcome.OK, Verdict.GOOD
_EMPTY_PROMPT = PromptSize()
_LATE = frozenset({DestinationLoad.OVERLOADED, DestinationLoad.QUEUE_FULL})
ISOLATED = 16
TENANTS = 32
"""The most tenants of a class with a demand row of their own."""


@dataclass(slots=True)
class RequestCounters:
    """One class's cumulative counts. `open` is the current number.

    `prompt_tokens` of arrivals are estimates. `completed` requests were answered in full: see `ClassDemand`.
    """

    arrivals: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    completed: int = 0
    completed_prompt_tokens: int = 0
    cached_tokens: int = 0
    attended_pairs: int = 0
    kv_reads: int = 0
    good: int = 0
    bad: int = 0
    open: int = 0

    def arrived(self, prompt_tokens: int, more: int = 1) -> None:
        """A request with so many prompt tokens arrived; `more` is 0 for one that goes to another service at once."""
        self.arrivals += 1
        self.prompt_tokens += prompt_tokens
        self.open += more

    def ended(self, good: bool | None, usage: TokenUsage | None) -> None:
        """A request ended; `good`: whether it kept its promises, None if not judged; `usage` of a complete answer."""
        self.open -= 1
        if good is not None:
            self.good += good
            self.bad += not good
        if usage is None or not usage.output:
            return
        self.completed += 1
        self.output_tokens += usage.output
        if prompt := usage.prompt:
            computed = prompt - usage.cached
            self.completed_prompt_tokens += prompt
            self.cached_tokens += usage.cached
            self.attended_pairs += computed * (2 * prompt - computed) // 2
            self.kv_reads += usage.output * (2 * prompt + usage.output) // 2


@dataclass(slots=True)
class LengthCounts:
    """How long one class's completed requests were, cumulative; see `ClassLengths`."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    prompts: list[int] = field(default_factory=lambda: [0] * LENGTH_BUCKETS)
    outputs: list[int] = field(default_factory=lambda: [0] * LENGTH_BUCKETS)

    def add(self, usage: TokenUsage) -> None:
        """A request was answered in full."""
        if not usage.prompt or not usage.output:
            return
        self.requests += 1
        self.prompt_tokens += usage.prompt
        self.cached_tokens += usage.cached
        self.output_tokens += usage.output
        self.prompts[length_bucket(usage.prompt)] += 1
        self.outputs[length_bucket(usage.output)] += 1


class Placement(NamedTuple):
    """A request at one service: its place in the queue, its terms there and their retry budget."""

    service: "ServiceState"
    admission: AdmittedRequest
    queued: QueuedRequest
    terms: RequestTerms
    budget: RetryBudget


class ServiceState:
    """One service. `spec` and `series` are replaced when the object changes; the rest stays."""

    def __init__(
        self, service: ResolvedService, series: ServiceMetrics, limits: HttpLimits, policy: RoutingPolicy
    ) -> None:
        self.key = service.key
        self.spec = service
        self.series = series
        pool = WorkerPool(
            policy,
            silence_s=limits.load_silence_s,
            lookahead_s=limits.lookahead_s,
            prefix_bytes=limits.prefix_bytes,
        )
        self.pool = pool
        self.dispatcher = Dispatcher(pool, QueueLimits(held=limits.held_requests, size=limits.queue_bytes))
        self.estimates = UsageEstimates(pool)
        self.tallies = {name: RequestCounters() for name in RequestClass}
        self.lengths = {name: LengthCounts() for name in RequestClass}
        self.tenants: dict[RequestClass, dict[str, RequestCounters]] = {name: {} for name in RequestClass}
        self.isolated: deque[Isolated] = deque(maxlen=ISOLATED)
        """The last isolated requests."""
        self.pressures: dict[Pressure, PressureState] = {"overload": PressureState(), "burn": PressureState()}
        self._burn = BurnWindow()
        self._budgets: dict[float, RetryBudget] = {}
        """Retry budgets by the share of retries that their requests have."""

    def expected_output(self, name: RequestClass, asked: int | None) -> int:
        """Output tokens to expect of a request: the class's mean so far, at most what the request allows."""
        tally = self.tallies[name]
        mean = round(tally.output_tokens / tally.completed) if tally.completed else PRIOR_OUTPUT
        return mean if asked is None else min(mean, asked)

    def observe(self, now: float) -> None:
        """Bring the pressure on the service up to date; called a few times a second."""
        self.pressures["overload"].observe(self._late(now), now)
        self.pressures["burn"].observe(self._burns(now), now)
        self.dispatcher.overloaded = self.pressures["overload"].lasting

    def degrades(self, name: RequestClass, trigger: Pressure, after_s: float) -> bool:
        """Whether routes serve requests of this class less; those without a target wait instead."""
        return bool(self.spec.classes[name].targets) and self.pressures[trigger].holds(after_s)

    def fits(self, prompt: PromptSize) -> bool:
        """Whether the context is long enough for a prompt, as far as both are known."""
        return not self.pool.context or self.estimates.prompt_tokens(prompt) < self.pool.context

    def _late(self, now: float) -> bool:
        """Whether a new interactive request would wait too long for its ttft, whatever its prompt.

        False if that is unknown, if nothing is promised, and while there are no interactive requests to protect.
        """
        if not self.dispatcher.urgent or all(t.metric != "ttft" for t in self.spec.classes[URGENT].targets):
            return False
        return self.load(URGENT, 0, _EMPTY_PROMPT, now) in _LATE

    def _burns(self, now: float) -> bool:
        if not self._burn:
            return False
        objectives = {
            (target.cls, target.name): target.objective
            for terms in self.spec.classes.values()
            for target in (*terms.targets, *whole_answer_targets(terms.targets, 0, 0))
        }
        burn = self._burn.worst(objectives, now)
        return burn is not None and burn > 1

    def load(self, name: RequestClass, size: int, prompt: PromptSize, now: float) -> DestinationLoad:
        """How the service would take one more request."""
        terms = self.spec.classes[name]
        if not self.pool.eligible(now):
            return DestinationLoad.UNAVAILABLE
        if self.dispatcher.refusal(name, size, terms.queue_limit, now) is not None:
            return DestinationLoad.QUEUE_FULL
        tokens = self.estimates.prompt_tokens(prompt)
        promised = [target.limit(tokens) for target in terms.targets if target.metric == "ttft"]
        if not promised:
            return DestinationLoad.OPEN
        ttft_s = self.pool.ttft_s(RoutingRequest(tokens, name), self.dispatcher.queues[name].prompt_tokens, now)
        return overloaded(ttft_s, self._slot_wait_s(name, now), promised)

    def _slot_wait_s(self, name: RequestClass, now: float) -> float | None:
        """How long one more request waits for a slot: by the length of answers, or the queue's rate if that is less."""
        tally, dispatcher = self.tallies[name], self.dispatcher
        output = tally.output_tokens // tally.completed if tally.completed else None
        wait = self.pool.slot_wait_s(name, dispatcher.ahead(name), output, now)
        pace = dispatcher.wait_s(name, now) if len(dispatcher.queues[name]) else None
        if wait == 0 or pace is None:
            return wait
        return pace if wait is None else min(wait, pace)

    def diverted(self, name: RequestClass, prompt: PromptSize, reason: FallbackReason) -> None:
        """A request for this service goes to another one on arrival: it is demand for both."""
        tokens = self.estimates.prompt_tokens(prompt)
        self.tallies[name].arrived(tokens, 0)
        self.tally(name, OTHER).arrived(tokens, 0)
        self.series.diverted[reason].inc()

    def went_on(self, queued: QueuedRequest, reason: FallbackReason) -> None:
        """A request that had arrived here moved to another service, and was served nothing here."""
        self.tallies[queued.request_class].open -= 1
        self.tally(queued.request_class, queued.tenant).open -= 1
        self.dispatcher.queues[queued.request_class].settle(queued, 0.0)
        self.series.diverted[reason].inc()

    def place(
        self, number: int, tenant: ResolvedTenant, admission: AdmittedRequest, deadline: float, *, writes: bool
    ) -> Placement:
        """The placement of a tenant's request here; `writes`: its answer has output tokens."""
        name, prefix, share = admission.request_class, admission.prefix, admission.destination.retry_share
        output = self.expected_output(name, admission.max_tokens) if writes else 0
        tokens = 0 if admission.counts else self.estimates.prompt_tokens(admission.prompt, tenant.name)
        targets = () if admission.counts else self.spec.classes[name].targets
        queued = QueuedRequest(
            number,
            name,
            tokens,
            len(admission.body),
            deadline,
            stream=admission.stream,
            in_time_s=in_time_s(targets, tokens, output, stream=admission.stream),
            tenant=tenant.name,
            weight=tenant.weight,
            expected_output=output,
            keys=() if prefix is None else prefix.keys,
            prompt_bytes=0 if prefix is None else prefix.size,
        )
        terms = RequestTerms(
            service=self.key,
            request_class=name,
            stream=admission.stream,
            prompt_tokens=queued.prompt_tokens,
            hold_s=self.spec.classes[name].hold_timeout_s,
            attempts=admission.destination.attempts,
            promised=not admission.counts,
            fallbacks=bool(admission.fallbacks),
            degraded=admission.degraded,
        )
        budget = self._budgets.get(share)
        if budget is None:
            budget = self._budgets[share] = RetryBudget(share)
        return Placement(self, admission, queued, terms, budget)

    def takes(self, queued: QueuedRequest, now: float) -> bool:
        """Whether the request may wait here without another one being shed."""
        return self.dispatcher.shed(queued, self.spec.classes[queued.request_class].queue_limit, now) is None

    def shed(self, queued: QueuedRequest, now: float) -> ShedDecision | None:
        """The request to shed so that this one may wait, if any; it is counted as shed."""
        shed = self.dispatcher.shed(queued, self.spec.classes[queued.request_class].queue_limit, now)
        if shed is not None:
            self.series.classes[shed.queued.request_class].shed[shed.reason].inc()
        return shed

    def tally(self, name: RequestClass, tenant: str) -> RequestCounters:
        """A tenant's own counts; those beyond the first TENANTS share one."""
        own = self.tenants[name]
        found = own.get(tenant)
        if found is None:
            label = tenant if len(own) < TENANTS else OTHER
            found = own.setdefault(label, RequestCounters())
            self.series.isolated(label)
        return found

    def isolate(self, name: RequestClass, entry: Isolated) -> None:
        """Count a request of this class that workers died of."""
        self.isolated.append(entry)
        self.series.isolated(entry.tenant if entry.tenant in self.tenants[name] else OTHER).inc()

    def arrived(self, name: RequestClass, prompt_tokens: int, tenant: str = OTHER) -> None:
        self.tallies[name].arrived(prompt_tokens)
        self.tally(name, tenant).arrived(prompt_tokens)

    def ended(
        self, record: RequestRecord, verdicts: Verdicts, name: RequestClass, prompt: PromptSize, choices: int = 1
    ) -> None:
        good = all(verdict is _GOOD for _, verdict in verdicts) if verdicts else None
        usage = record.meter if record.outcome is _OK else None
        self._burn.add(name, verdicts, record.ended)
        self.tallies[name].ended(good, usage)
        self.tally(name, record.tenant).ended(good, usage)
        if usage is not None:
            self.lengths[name].add(usage)
            self.estimates.prompts.learn(prompt, usage.prompt, record.tenant)
            if output := usage.output:  # an answer without any, like an embedding, says nothing about answers' length
                self.estimates.outputs[name].learn(record.tenant, output, choices)

    def show(self, now: float) -> None:
        standings = self.pool.standings(now)
        for state in WorkerHealth:
            self.series.workers[state].set(standings[state])
        circuits = self.pool.circuits(now)
        for circuit in BreakerState:
            self.series.circuits[circuit].set(circuits[circuit])
        self.series.prefix_bytes.set(self.pool.prefixes.bytes)
        self.series.in_flight.set(sum(tally.open for tally in self.tallies.values()))
        self.series.held.set(self.dispatcher.held(now))
        self.series.reserved_slots.set(self.pool.reserved)
        for name, queue in self.dispatcher.queues.items():
            self.series.classes[name].show(queue, self.dispatcher.turns.promoted.pop(name, 0), now)
            self.series.classes[name].show_demand(partial(getattr, self.tallies[name]))
