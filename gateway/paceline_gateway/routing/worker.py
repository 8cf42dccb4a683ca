"""One worker as this gateway sees it: the last line of its load stream, plus what was dispatched since.

A report is up to 250 ms old, so prompts dispatched since are added to it. Prompts that this gateway sent and that have
no answer yet are the lower bound. A stream shows when its prompt is done; an answer that does not stream does not, so
its prompt counts only until a report arrives that must include it. Known hole: prompts that other gateways sent since
the last report are not seen.

Classes share a worker's steps by weight, so what is ahead of a request depends on its class.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, inf
from typing import NamedTuple

from paceline_core.kube import Endpoint
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import LoadReport, WorkerState
from paceline_gateway.routing.circuit_breaker import Breaker

REPORT_LAG_S = 0.5
RAMP_S = 10.0
RAMP_FROM = 0.2
"""A worker that has just become ready gets this share of its slots, and all of them RAMP_S later."""
STEP_TOKENS = 2048
"""Prompt tokens in a step that also decodes: the workers' default."""
SHARES = {RequestClass.INTERACTIVE: 8.0, RequestClass.BATCH: 2.0, RequestClass.OFFLINE: 1.0}
"""The weights by which a worker's scheduler shares its steps between classes that have work."""
PLACES = {name: place for place, name in enumerate(RequestClass)}
"""Sums by class are lists: looking up an enum's member costs more than everything else that a pick reads."""
_SHARES = [SHARES[name] for name in RequestClass]
_CLASSES = len(_SHARES)


class WorkerHealth(StrEnum):
    """A worker's health; the values are the metric's label `state`."""

    READY = "ready"
    STARTING = "starting"
    DRAINING = "draining"
    SILENT = "silent"
    """Its load stream is cut or sends nothing: it is picked only when no ready worker is left."""
    FAILED = "failed"


class InFlight(NamedTuple):
    """A dispatched prompt without an answer yet: uncached tokens, class, when it was sent, after which report."""

    tokens: int
    place: int
    sent: float
    report: int


@dataclass(slots=True, eq=False)
class Worker:
    """Mutable, owned by a WorkerPool. What a pick reads is computed when a report comes, not with every pick.

    By class (`PLACES`): `reported` is from the last report; `unbegun_tokens` sums all of `unbegun`, `fresh_tokens` the
    part sent since that report; `backlogs` is the estimate from them. From the last report: `share` is this gateway's
    part of the slots, `token_s` seconds of a prompt token within a full step, `step_s` of a step that only decodes,
    `kv_tokens` in use of `kv_total`, `behind` the requests beyond its slots.
    """

    endpoint: Endpoint
    report: LoadReport | None = None
    heard: float = -inf
    connected: bool = False
    ready_since: float = inf
    breaker: Breaker = field(default_factory=Breaker)
    in_flight: int = 0
    picked: int = 0
    taken: int = 0
    """All requests ever dispatched to it."""
    whole: set[int] = field(default_factory=set)
    """Numbers of the requests in flight whose answers do not stream."""
    urgent: set[int] = field(default_factory=set)
    """Numbers of the interactive requests in flight."""
    unbegun: dict[int, InFlight] = field(default_factory=dict)
    reported: list[int] = field(default_factory=lambda: [0] * _CLASSES)
    unbegun_tokens: list[int] = field(default_factory=lambda: [0] * _CLASSES)
    fresh_tokens: list[int] = field(default_factory=lambda: [0] * _CLASSES)
    backlogs: list[int] = field(default_factory=lambda: [0] * _CLASSES)
    backlog: int = 0
    """Estimated prompt tokens that it has yet to compute."""
    reports: int = 0
    dead: bool = False
    """Its process ended unexpectedly, and no report has come since."""
    trials: set[int] = field(default_factory=set)
    """Numbers of the suspects that are on trial there."""
    recurring: set[int] = field(default_factory=set)
    """Numbers of streams that are near the token at which an earlier worker of theirs died."""
    tries_until: float = -inf
    """Until this time another gateway's suspect is assumed to be on trial there."""
    doubtful: set[int] = field(default_factory=set)
    """Numbers of other requests of which it might die."""
    shut: float = -inf
    """Until this time only suspects are sent there, so that a trial is not disturbed."""
    drains: bool = False
    """It refused a request because it drains, and no report has come since."""
    work: float = 0.0
    """Seconds of work dispatched here, decaying; kept by the pool's `HotSpotGuard`."""
    share: int = 0
    token_s: float = 0.0
    step_s: float = 0.0
    context_s: float = 0.0
    kv_tokens: int = 0
    kv_total: int = 0
    behind: int = 0
    name: str = field(init=False)
    address: tuple[str, int] = field(init=False)
    """Host and port; a name that returns with another address is another worker."""

    def __post_init__(self) -> None:
        self.name, self.address = self.endpoint.name, (self.endpoint.host, self.endpoint.port)

    @property
    def draining(self) -> bool:
        """It takes no new requests; a terminating pod drains whatever it reports."""
        reported_draining = self.report is not None and self.report.state is WorkerState.DRAINING
        return reported_draining or self.drains or self.endpoint.terminating

    @property
    def leaving(self) -> bool:
        """It drains and will end; a retired worker may come back, so its streams stay there."""
        retired = self.report is not None and self.report.retired and not self.endpoint.terminating
        return self.draining and not retired

    def standing(self, now: float, silence_s: float) -> WorkerHealth:
        if self.draining:
            return WorkerHealth.DRAINING
        if self.report is None:
            return WorkerHealth.STARTING
        if self.report.state is WorkerState.READY:
            fresh = self.connected and now - self.heard <= silence_s
            return WorkerHealth.READY if fresh else WorkerHealth.SILENT
        return WorkerHealth(self.report.state.value)

    def ramped(self, now: float) -> int:
        """How many of its slots may be used already: all of them RAMP_S after it became ready."""
        grown = RAMP_FROM + (1 - RAMP_FROM) * (now - self.ready_since) / RAMP_S
        return self.share if grown >= 1 else ceil(self.share * max(grown, RAMP_FROM))

    def open_to(self, place: int, reserved: int) -> int:
        """The slots that a class may fill when `reserved`, at most half of them, are for interactive requests."""
        if not place or not reserved:
            return self.share
        return self.share - max(min(reserved, self.share // 2) - len(self.urgent), 0)

    @property
    def backlog_s(self) -> float:
        """Seconds that the backlog takes by the worker's own step-time model."""
        return self.backlog * self.token_s

    def ahead(self, place: int, tokens: int) -> float:
        """Tokens computed before the last of `tokens` new ones of a class: its own, and other classes' in its steps."""
        own = self.backlogs[place]
        if own == self.backlog:
            return own
        ahead, share = float(own), (own + tokens) / _SHARES[place]
        for other, queued in enumerate(self.backlogs):
            if other != place and queued:
                ahead += min(queued, share * _SHARES[other])
        return ahead

    def first_token_s(self, place: int, tokens: int, cached: int, output: int) -> float:
        """Seconds until one more request's first token: the work ahead, the wait for a slot, and its own prompt.

        `tokens` are to be computed after the cached ones; its answer, like others, has `output` tokens.
        """
        seconds = self.prefill_s(tokens, cached)
        if self.backlog:
            seconds += self.ahead(place, tokens) * self.token_s
        return seconds if self.behind < 0 else seconds + self.slot_wait_s(output)

    def prefill_s(self, tokens: int, cached: int = 0) -> float:
        """Seconds to compute `tokens` after the cached ones, including the decodes in one step."""
        return self.step_s + tokens * (self.token_s + self.context_s * (cached + tokens / 2))

    def slot_wait_s(self, output: int) -> float:
        """Seconds until its queue has advanced by one request, if all its answers have `output` tokens."""
        if self.behind < 0 or self.report is None:
            return 0.0
        return (self.behind + 1) * output * self.step_s / max(self.report.slots, 1)

    def work_s(self, tokens: int, cached: int, output: int) -> float:
        """Seconds that a request adds to steps, prompt and answer; without the fixed time of each step."""
        if self.report is None:
            return 0.0
        model = self.report.step_time
        prompt = tokens * (model.prefill + model.context * (cached + tokens / 2))
        step = model.sequence + model.kv * (cached + tokens + output / 2)
        return prompt + output * step

    def fullness(self, tokens: int) -> float:
        """The share of its KV memory in use with `tokens` more; 0 while its capacity is unknown."""
        return (self.kv_tokens + tokens) / self.kv_total if self.kv_total else 0.0

    def take(self, number: int, tokens: int, name: RequestClass, now: float, *, stream: bool) -> None:
        """A request with `tokens` uncached prompt tokens was dispatched here."""
        place = PLACES[name]
        self.in_flight += 1
        self.taken += 1
        self.unbegun[number] = InFlight(tokens, place, now, self.reports)
        if not stream:
            self.whole.add(number)
        if not place:
            self.urgent.add(number)
        self.unbegun_tokens[place] += tokens
        self.fresh_tokens[place] += tokens
        self._believe(place)
        if self.breaker.broken:
            self.breaker.sent(number, now)

    def began(self, number: int) -> None:
        """Its prompt is computed: the first token came."""
        self._computed(number)
        self.breaker.succeeded(number)

    def give(self, number: int, now: float, *, failed: bool = False) -> None:
        """A request ended here. A stream that ends before its first token without a failure proves nothing."""
        self.in_flight -= 1
        if failed:
            self.breaker.failed(number, now)
        elif number in self.whole:
            self.breaker.succeeded(number)
        elif self.breaker.broken:
            self.breaker.left(number)
        self.whole.discard(number)
        self.urgent.discard(number)
        self._computed(number)

    def on_report(self, report: LoadReport, now: float) -> None:
        if report.state is not WorkerState.READY and not report.retired:
            self.ready_since = inf
        elif self.ready_since == inf:
            self.ready_since = now
        self.report, self.heard, self.connected, self.drains, self.dead = report, now, True, False, False
        self.reports += 1
        kv, model = report.kv, report.step_time
        self.behind = sum(report.waiting.values()) + report.running - report.slots
        self.share = self._part(report.slots, max(report.gateways, 1))
        self.kv_tokens = max(kv.total - kv.free - kv.cached, 0) * kv.page_tokens
        self.kv_total = kv.total * kv.page_tokens
        self.step_s = model.seconds(prefill_tokens=0, sequences=report.running, kv_tokens=self.kv_tokens)
        self.token_s = model.prefill + self.step_s / STEP_TOKENS
        self.context_s = model.context
        self.reported = [report.queued_tokens.get(name, 0) for name in PLACES]
        self.fresh_tokens = [0] * _CLASSES
        for place in range(_CLASSES):
            self._believe(place)
        old = now - REPORT_LAG_S
        for number in [t for t in self.whole & self.unbegun.keys() if self.unbegun[t].sent <= old]:
            self._computed(number)

    def _part(self, slots: int, gateways: int) -> int:
        """Slots that this gateway may fill: its equal part, or what it fills and its part of the idle ones.

        So idle slots are not given out twice, and a gateway beyond its part falls back as others claim theirs.
        """
        more = -(self.behind // gateways) if self.behind < 0 else -self.behind
        return min(max(-(-slots // gateways), self.in_flight + more), slots)

    def _computed(self, number: int) -> None:
        flight = self.unbegun.pop(number, None)
        if flight is None:
            return
        self.unbegun_tokens[flight.place] -= flight.tokens
        if flight.report == self.reports:
            self.fresh_tokens[flight.place] -= flight.tokens
        self._believe(flight.place)

    def _believe(self, place: int) -> None:
        believed = max(self.reported[place] + self.fresh_tokens[place], self.unbegun_tokens[place])
        self.backlog += believed - self.backlogs[place]
        self.backlogs[place] = believed
