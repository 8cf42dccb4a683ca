"""One worker as this gateway sees it: its own word from the load stream, plus what was dispatched since.

A report is up to 250 ms old, so prompts that went there since it came are added to what it says; what this gateway
counts itself, prompts that have not begun answers, is the least there can be. Streams show when their prompt is done; a
whole answer does not, so its prompt counts only until a report arrives that must include it. Known hole: prompts that
other gateways sent within the last report's age are not seen.

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
"""A worker that has just become ready takes this share of its slots, and all of them RAMP_S later."""
STEP_TOKENS = 2048
"""Prompt tokens in a step beside which it decodes, as workers have it by default."""
SHARES = {RequestClass.INTERACTIVE: 8.0, RequestClass.BATCH: 2.0, RequestClass.OFFLINE: 1.0}
"""How a worker's scheduler shares its steps between classes that have work."""
PLACES = {name: place for place, name in enumerate(RequestClass)}
"""Sums by class are lists: looking up an enum's member costs more than all else that a pick reads of a worker."""
_SHARES = [SHARES[name] for name in RequestClass]
_CLASSES = len(_SHARES)


class WorkerHealth(StrEnum):
    """What may be expected of a worker; the values are the metric's label `state`."""

    READY = "ready"
    STARTING = "starting"
    DRAINING = "draining"
    SILENT = "silent"
    """Its load stream is cut or says nothing: picked only when nobody else is left."""
    FAILED = "failed"


class InFlight(NamedTuple):
    """A dispatched prompt of which nothing has come back: uncached tokens, class, when it went, after which report."""

    tokens: int
    place: int
    sent: float
    report: int


@dataclass(slots=True, eq=False)
class Worker:
    """Mutable, owned by a WorkerPool. What a pick reads is made when a report comes, not with every pick.

    By class (`PLACES`): `reported` in the last report, `unbegun_tokens` and `fresh_tokens` sums over `unbegun`, all of
    it and what went there since that report, `backlogs` what is believed. Of the last report: `share` of the slots that
    is this gateway's, `token_s` seconds of a prompt token within a full step, `step_s` of a step that only decodes,
    `kv_tokens` in use of `kv_total`, `behind` requests too many for its slots.
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
    """Requests that ever went there."""
    whole: set[int] = field(default_factory=set)
    """Numbers of those in flight whose answers do not stream."""
    urgent: set[int] = field(default_factory=set)
    """Numbers of those in flight that are interactive."""
    unbegun: dict[int, InFlight] = field(default_factory=dict)
    reported: list[int] = field(default_factory=lambda: [0] * _CLASSES)
    unbegun_tokens: list[int] = field(default_factory=lambda: [0] * _CLASSES)
    fresh_tokens: list[int] = field(default_factory=lambda: [0] * _CLASSES)
    backlogs: list[int] = field(default_factory=lambda: [0] * _CLASSES)
    backlog: int = 0
    """Prompt tokens it has yet to compute, as far as can be known."""
    reports: int = 0
    dead: bool = False
    """Its process has ended without a word, and no report has come since."""
    trials: set[int] = field(default_factory=set)
    """Numbers of the suspects that are on trial there."""
    recurring: set[int] = field(default_factory=set)
    """Numbers of streams that are near the token at which an earlier worker of theirs died."""
    tries_until: float = -inf
    """Until then another gateway's suspect is taken to be on trial there."""
    doubtful: set[int] = field(default_factory=set)
    """Numbers of others that it might die of."""
    shut: float = -inf
    """Until then what is no suspect keeps off a trial."""
    drains: bool = False
    """It has refused a request because it drains, and no report has come since."""
    work: float = 0.0
    """Seconds of work dispatched here, fading; kept by the pool's `HotSpotGuard`."""
    share: int = 0
    token_s: float = 0.0
    step_s: float = 0.0
    context_s: float = 0.0
    kv_tokens: int = 0
    kv_total: int = 0
    behind: int = 0
    name: str = field(init=False)
    address: tuple[str, int] = field(init=False)
    """Host and port; a name that comes back under another address is another worker."""

    def __post_init__(self) -> None:
        self.name, self.address = self.endpoint.name, (self.endpoint.host, self.endpoint.port)

    @property
    def draining(self) -> bool:
        """It takes nothing new any more; a terminating pod drains whatever it says."""
        reported_draining = self.report is not None and self.report.state is WorkerState.DRAINING
        return reported_draining or self.drains or self.endpoint.terminating

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
        """Of its slots, how many it may be given already: all of them RAMP_S after it became ready."""
        grown = RAMP_FROM + (1 - RAMP_FROM) * (now - self.ready_since) / RAMP_S
        return self.share if grown >= 1 else ceil(self.share * max(grown, RAMP_FROM))

    def open_to(self, place: int, reserved: int) -> int:
        """How many slots a class may fill, when `reserved` are for interactive requests: at most half of them are."""
        if not place or not reserved:
            return self.share
        return self.share - max(min(reserved, self.share // 2) - len(self.urgent), 0)

    @property
    def backlog_s(self) -> float:
        """Seconds that the backlog takes by the worker's own step-time model."""
        return self.backlog * self.token_s

    def ahead(self, place: int, tokens: int) -> float:
        """Tokens computed before the last of so many new ones of a class: its own, and of others what shares steps."""
        own = self.backlogs[place]
        if own == self.backlog:
            return own
        ahead, share = float(own), (own + tokens) / _SHARES[place]
        for other, queued in enumerate(self.backlogs):
            if other != place and queued:
                ahead += min(queued, share * _SHARES[other])
        return ahead

    def first_token_s(self, place: int, tokens: int, cached: int, output: int) -> float:
        """Seconds until one more request's first token: what is ahead of it, its slot, and its own prompt.

        `tokens` are to be computed behind the cached ones; its answer, like others, has `output` tokens.
        """
        seconds = self.prefill_s(tokens, cached)
        if self.backlog:
            seconds += self.ahead(place, tokens) * self.token_s
        return seconds if self.behind < 0 else seconds + self.slot_wait_s(output)

    def prefill_s(self, tokens: int, cached: int = 0) -> float:
        """Seconds to compute so many tokens behind the cached ones, the step that decodes beside them included."""
        return self.step_s + tokens * (self.token_s + self.context_s * (cached + tokens / 2))

    def slot_wait_s(self, output: int) -> float:
        """Seconds until its own queue has moved on by one more, if all its requests have answers of this length."""
        if self.behind < 0 or self.report is None:
            return 0.0
        return (self.behind + 1) * output * self.step_s / max(self.report.slots, 1)

    def work_s(self, tokens: int, cached: int, output: int) -> float:
        """Seconds that a request adds to steps, prompt and answer; not what each takes, however little is in it."""
        if self.report is None:
            return 0.0
        model = self.report.step_time
        prompt = tokens * (model.prefill + model.context * (cached + tokens / 2))
        step = model.sequence + model.kv * (cached + tokens + output / 2)
        return prompt + output * step

    def fullness(self, tokens: int) -> float:
        """Share of its KV memory in use if it holds so many tokens more, 0 where it has not said how much there is."""
        return (self.kv_tokens + tokens) / self.kv_total if self.kv_total else 0.0

    def take(self, number: int, tokens: int, name: RequestClass, now: float, *, stream: bool) -> None:
        """A request was dispatched here, with so many uncached prompt tokens."""
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
        """It ended here. A stream that ends before it begins, without a failure, tells nothing: its client left."""
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
        if report.state is not WorkerState.READY:
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
        self.reported = [report.queued_tokens.get(name, 0) for name in RequestClass]
        self.fresh_tokens = [0] * _CLASSES
        for place in range(_CLASSES):
            self._believe(place)
        old = now - REPORT_LAG_S
        for number in [t for t in self.whole & self.unbegun.keys() if self.unbegun[t].sent <= old]:
            self._computed(number)

    def _part(self, slots: int, gateways: int) -> int:
        """Slots that this gateway may fill: its equal part, or what it fills and its part of those that lie idle.

        So idle slots are not shared out twice, and who went beyond its part falls back as others come to theirs.
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
