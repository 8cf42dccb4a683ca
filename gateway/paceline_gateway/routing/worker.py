"""One worker as this gateway sees it: its own word from the load stream, plus what was dispatched since.

A report is up to 250 ms old, so prompts that went there since it came are added to what it says; what this gateway
counts itself, prompts that have not begun answers, is the least there can be. Streams show when their prompt is done; a
whole answer does not, so its prompt counts only until a report arrives that must include it. Known hole: prompts that
other gateways sent within the last report's age are not seen.

Classes share a worker's steps by weight, so what is ahead of a request depends on its class.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, inf

from paceline_core.kube import Endpoint
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import LoadReport, WorkerState
from paceline_gateway.routing.breaker import Breaker

REPORT_LAG_S = 0.5
RAMP_S = 10.0
RAMP_FROM = 0.2
"""A worker that has just become ready takes this share of its slots, and all of them RAMP_S later."""
STEP_TOKENS = 2048
"""Prompt tokens in a step beside which it decodes, as workers have it by default."""
SHARES = {RequestClass.INTERACTIVE: 8.0, RequestClass.BATCH: 2.0, RequestClass.OFFLINE: 1.0}
"""How a worker's scheduler shares its steps between classes that have work."""


class Standing(StrEnum):
    """What may be expected of a worker; the values are the metric's label `state`."""

    READY = "ready"
    STARTING = "starting"
    DRAINING = "draining"
    SILENT = "silent"
    """Its load stream is cut or says nothing: picked only when nobody else is left."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Flight:
    """A dispatched prompt of which nothing has come back: uncached tokens, class, when it went, after which report."""

    tokens: int
    request_class: RequestClass
    sent: float
    report: int


@dataclass(slots=True, eq=False)
class Worker:
    """Mutable, owned by a Fleet.

    `unbegun_tokens` and `fresh_tokens` are sums over `unbegun`: all of it, and what went there since the last report.
    `token_s`, `step_s` and `kv_tokens` are of the last report, made once and read with every pick: seconds of a prompt
    token within a full step, of a step that only decodes, and KV tokens in use.
    """

    endpoint: Endpoint
    report: LoadReport | None = None
    heard: float = -inf
    connected: bool = False
    ready_since: float = inf
    breaker: Breaker = field(default_factory=Breaker)
    in_flight: int = 0
    picked: int = 0
    whole: set[int] = field(default_factory=set)
    """Tickets of those in flight whose answers do not stream."""
    unbegun: dict[int, Flight] = field(default_factory=dict)
    unbegun_tokens: Counter[RequestClass] = field(default_factory=Counter)
    fresh_tokens: Counter[RequestClass] = field(default_factory=Counter)
    reports: int = 0
    work: float = 0.0
    """Seconds of work dispatched here, fading; kept by the fleet's balance."""
    token_s: float = 0.0
    step_s: float = 0.0
    kv_tokens: int = 0

    @property
    def name(self) -> str:
        """The endpoint's name."""
        return self.endpoint.name

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return (self.endpoint.host, self.endpoint.port)

    def standing(self, now: float, silence_s: float) -> Standing:
        """Its state now; a terminating pod drains whatever it says."""
        if self.endpoint.terminating:
            return Standing.DRAINING
        if self.report is None:
            return Standing.STARTING
        if self.report.state is WorkerState.READY:
            fresh = self.connected and now - self.heard <= silence_s
            return Standing.READY if fresh else Standing.SILENT
        return Standing(self.report.state.value)

    @property
    def slots(self) -> int:
        """This gateway's share of its slots: all gateways that read its load stream have the same."""
        return 0 if self.report is None else -(-self.report.slots // max(self.report.gateways, 1))

    def ramped(self, now: float) -> int:
        """Of these slots, how many it may be given already: all of them RAMP_S after it became ready."""
        grown = RAMP_FROM + (1 - RAMP_FROM) * (now - self.ready_since) / RAMP_S
        return self.slots if grown >= 1 else ceil(self.slots * max(grown, RAMP_FROM))

    @property
    def backlog(self) -> int:
        """Prompt tokens it has yet to compute, as far as can be known."""
        return sum(self.backlog_of(name) for name in RequestClass)

    @property
    def backlog_s(self) -> float:
        """Seconds that the backlog takes by the worker's own step-time model."""
        return self.backlog * self.token_s

    def backlog_of(self, name: RequestClass) -> int:
        """The same of one class."""
        reported = 0 if self.report is None else self.report.queued_tokens.get(name, 0)
        return max(reported + self.fresh_tokens[name], self.unbegun_tokens[name])

    def ahead(self, name: RequestClass, tokens: int) -> float:
        """Tokens computed before the last of so many new ones: its class's, and of others what shares the steps."""
        own = self.backlog_of(name)
        ahead, share = float(own), (own + tokens) / SHARES[name]
        for other, weight in SHARES.items():
            if other is not name and (queued := self.backlog_of(other)):
                ahead += min(queued, share * weight)
        return ahead

    def prefill_s(self, tokens: int, cached: int = 0) -> float:
        """Seconds to compute so many tokens behind the cached ones, the step that decodes beside them included."""
        if self.report is None:
            return 0.0
        quadratic = self.report.step_time.context * tokens * (cached + tokens / 2)
        return self.step_s + tokens * self.token_s + quadratic

    def work_s(self, tokens: int, cached: int, output: int) -> float:
        """Seconds of its time that a request takes: its prompt's, and its share of the steps that it decodes in."""
        if self.report is None:
            return 0.0
        model = self.report.step_time
        prompt = tokens * model.prefill + model.context * tokens * (cached + tokens / 2)
        step = model.base / max(self.in_flight, 1) + model.sequence + model.kv * (cached + tokens + output / 2)
        return prompt + output * step

    def slot_wait_s(self, output: int) -> float:
        """Seconds until its own queue has moved on by one more, if all its requests have answers of this length."""
        report = self.report
        if report is None:
            return 0.0
        behind = sum(report.waiting.values()) + 1 - (report.slots - report.running)
        return max(behind, 0) * output * self.step_s / max(report.slots, 1)

    def fullness(self, tokens: int) -> float:
        """Share of its KV memory in use if it holds so many tokens more, 0 where it has not said how much there is."""
        report = self.report
        total = 0 if report is None else report.kv.total * report.kv.page_tokens
        return (self.kv_tokens + tokens) / total if total else 0.0

    def take(self, ticket: int, tokens: int, name: RequestClass, now: float, *, stream: bool) -> None:
        """A request was dispatched here, with so many uncached prompt tokens."""
        self.in_flight += 1
        self.unbegun[ticket] = Flight(tokens, name, now, self.reports)
        if not stream:
            self.whole.add(ticket)
        self.unbegun_tokens[name] += tokens
        self.fresh_tokens[name] += tokens
        self.breaker.sent(ticket, now)

    def began(self, ticket: int) -> None:
        """Its prompt is computed: the first token came."""
        self.breaker.succeeded(ticket)
        self._computed(ticket)

    def give(self, ticket: int, now: float, *, failed: bool = False) -> None:
        """It ended here. A stream that ends before it begins, without a failure, tells nothing: its client left."""
        self.in_flight -= 1
        if failed:
            self.breaker.failed(ticket, now)
        elif ticket in self.whole:
            self.breaker.succeeded(ticket)
        else:
            self.breaker.left(ticket)
        self.whole.discard(ticket)
        self._computed(ticket)

    def says(self, report: LoadReport, now: float) -> None:
        """A line of the load stream."""
        if report.state is not WorkerState.READY:
            self.ready_since = inf
        elif self.ready_since == inf:
            self.ready_since = now
        self.report, self.heard, self.connected = report, now, True
        self.reports += 1
        self.kv_tokens = max(report.kv.total - report.kv.free - report.kv.cached, 0) * report.kv.page_tokens
        model = report.step_time
        self.step_s = model.seconds(prefill_tokens=0, sequences=report.running, kv_tokens=self.kv_tokens)
        self.token_s = model.prefill + self.step_s / STEP_TOKENS
        self.fresh_tokens.clear()
        old = now - REPORT_LAG_S
        for ticket in [t for t in self.whole & self.unbegun.keys() if self.unbegun[t].sent <= old]:
            self._computed(ticket)

    def _computed(self, ticket: int) -> None:
        flight = self.unbegun.pop(ticket, None)
        if flight is None:
            return
        self.unbegun_tokens[flight.request_class] -= flight.tokens
        if flight.report == self.reports:
            self.fresh_tokens[flight.request_class] -= flight.tokens
