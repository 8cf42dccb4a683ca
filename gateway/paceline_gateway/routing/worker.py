"""One worker as this gateway sees it: its own word from the load stream, plus what was dispatched since.

A report is up to 250 ms old, so the gateway's own count of prompts that have not begun answers is laid beside it and
the larger of the two is believed. Streams show when their prompt is done; a whole answer does not, so its prompt
counts only until a report arrives that must include it. Known hole: prompts that other gateways sent within the last
report's age are not seen.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from paceline_core.kube import Endpoint
from paceline_core.wire import LoadReport, WorkerState

REPORT_LAG_S = 0.5
SUSPECT_S = 1.0


class Standing(StrEnum):
    """What may be expected of a worker; the values are the metric's label `state`."""

    READY = "ready"
    STARTING = "starting"
    DRAINING = "draining"
    SILENT = "silent"
    """Its load stream is cut or says nothing: picked only when nobody else is left."""
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class Worker:
    """Mutable, owned by a Fleet. `unbegun` maps tickets to (prompt tokens, dispatched at, streams).

    `reported_tokens` and `kv_tokens` are sums over the last report, made once and read with every pick.
    """

    endpoint: Endpoint
    report: LoadReport | None = None
    heard: float = float("-inf")
    connected: bool = False
    suspect_until: float = float("-inf")
    in_flight: int = 0
    picked: int = 0
    unbegun: dict[int, tuple[int, float, bool]] = field(default_factory=dict)
    unbegun_tokens: int = 0
    reported_tokens: int = 0
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
    def backlog(self) -> int:
        """Prompt tokens it has yet to compute, as far as can be known."""
        return max(self.reported_tokens, self.unbegun_tokens)

    @property
    def backlog_s(self) -> float:
        """Seconds that the backlog takes by the worker's own step-time model."""
        return self.backlog * self.report.step_time.prefill if self.report else 0.0

    @property
    def slots(self) -> int:
        """This gateway's share of its slots: all gateways that read its load stream have the same."""
        return 0 if self.report is None else -(-self.report.slots // max(self.report.gateways, 1))

    def has_room(self, lookahead_s: float) -> bool:
        """A slot of this gateway's share is free, and it has less work ahead than it may be given ahead of time."""
        if self.report is None or self.in_flight >= self.slots:
            return False
        return self.backlog_s < lookahead_s

    def cost(self, prompt_tokens: int) -> float:
        """Seconds of the step that would hold its backlog, this prompt, and everything it decodes."""
        if self.report is None:
            return 0.0
        tokens, sequences = self.backlog + prompt_tokens, self.in_flight + 1
        return self.report.step_time.seconds(prefill_tokens=tokens, sequences=sequences, kv_tokens=self.kv_tokens)

    def take(self, ticket: int, prompt_tokens: int, now: float, *, stream: bool) -> None:
        """A request was dispatched here."""
        self.in_flight += 1
        self.unbegun[ticket] = (prompt_tokens, now, stream)
        self.unbegun_tokens += prompt_tokens

    def began(self, ticket: int) -> None:
        """Its prompt is computed: the first token came."""
        entry = self.unbegun.pop(ticket, None)
        if entry is not None:
            self.unbegun_tokens -= entry[0]

    def give(self, ticket: int) -> None:
        """It ended here, one way or another."""
        self.in_flight -= 1
        self.began(ticket)

    def says(self, report: LoadReport, now: float) -> None:
        """A line of the load stream."""
        self.report, self.heard, self.connected = report, now, True
        self.reported_tokens = sum(report.queued_tokens.values())
        self.kv_tokens = max(report.kv.total - report.kv.free - report.kv.cached, 0) * report.kv.page_tokens
        old = now - REPORT_LAG_S
        for ticket in [t for t, (_, sent, stream) in self.unbegun.items() if not stream and sent <= old]:
            self.began(ticket)
