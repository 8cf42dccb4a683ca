"""Results of a run: attainment by the gateway's own verdicts, GPU time, and a timeline.

Attainment is the share of the requests offered in the scored window that end well and in time. Shed, cut, failed and
unfinished requests miss; one that misses two targets counts once. Requests are scored by arrival.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from paceline_core.kube.cluster import ScaleTarget
from paceline_core.objects.resolved import Target
from paceline_core.registry.enums import Outcome, Verdict
from paceline_gateway.request.slo import evaluate_slos
from paceline_gateway.request.types import RequestRecord
from paceline_simulator.gateway import ClientRequest


@dataclass(frozen=True, slots=True)
class LatencyLimits:
    """The promise that attainment counts: TTFT within `ttft_s` and the time that a long prompt needs, TPOT on average.

    `prompt_rate`: prompt tokens that one more second of TTFT allows; inf: none.
    """

    ttft_s: float = 2.0
    tpot_s: float = 0.1
    prompt_rate: float = 3000.0

    def ttft_limit_s(self, prompt_tokens: int) -> float:
        """The limit of TTFT for a prompt of this length."""
        return self.ttft_s + prompt_tokens / self.prompt_rate

    def attained(self, record: RequestRecord, prompt_tokens: int) -> bool:
        """Whether the request kept it, by the verdicts of `request.slo`."""
        if record.terms is None or record.outcome is not Outcome.OK:
            return False
        cls, ttft_s = record.terms.request_class, self.ttft_limit_s(prompt_tokens)
        targets = (Target(cls, "ttft", 0.99, ttft_s), Target(cls, "tpot", 0.99, self.tpot_s))
        return all(verdict is Verdict.GOOD for _, verdict in evaluate_slos(record, targets))


@dataclass(frozen=True, slots=True)
class RequestResult:
    """One request. Times in seconds; `ttft` and `tpot` are None where there was no such token.

    `sent`: when it was first dispatched, None if never. `attained`: by the run's `LatencyLimits`. `missed`: the targets
    of its service's own SLO that it missed, by the gateway's verdicts.
    """

    at: float
    service: str
    tenant: str
    prompt_tokens: int
    output_tokens: int
    outcome: Outcome
    sent: float | None
    ttft: float | None
    tpot: float | None
    ended: float
    cached: int
    worker: str
    resumed: int
    attained: bool
    missed: tuple[str, ...] = ()

    @classmethod
    def of(cls, request: ClientRequest, record: RequestRecord, limits: LatencyLimits) -> "RequestResult":
        prompt = request.asked.prompt_tokens
        return cls(
            at=record.received,
            service=request.service,
            tenant=record.tenant,
            prompt_tokens=prompt,
            output_tokens=record.meter.output,
            outcome=record.outcome,
            sent=request.sent,
            ttft=record.ttft,
            tpot=record.tpot,
            ended=record.ended,
            cached=record.meter.cached,
            worker=record.worker,
            resumed=record.resumed,
            attained=limits.attained(record, prompt),
            missed=tuple(name for name, verdict in request.verdicts if verdict is not Verdict.GOOD),
        )


@dataclass(frozen=True, slots=True)
class Moment:
    """One service at one time: its replicas by state, what was ordered, and its requests."""

    at: float
    service: str
    desired: int
    ready: int
    starting: int
    draining: int
    queued: int
    in_flight: int


@dataclass(slots=True)
class SimulationResult:
    """`unfinished`: arrivals of requests that were open at the end, by service. `gpu_s`: GPU time of the scored window.

    `pool_gpu_s`: the same by pool. `ordered`: when each replica after the first ones was ordered. `start`, `end`: the
    scored window.
    """

    start: float = 0.0
    end: float = inf
    requests: list[RequestResult] = field(default_factory=list)
    unfinished: list[tuple[float, str]] = field(default_factory=list)
    timeline: list[Moment] = field(default_factory=list)
    gpu_s: dict[str, float] = field(default_factory=dict)
    pool_gpu_s: dict[ScaleTarget, float] = field(default_factory=dict)
    ordered: list[tuple[float, ScaleTarget]] = field(default_factory=list)
    seconds: float = 0.0

    def scored(self, service: str | None = None) -> Iterator[RequestResult]:
        return (r for r in self.requests if self.start <= r.at < self.end and service in (None, r.service))

    def offered(self, service: str | None = None) -> int:
        """Requests that arrived in the scored window."""
        cut = (self.start <= at < self.end and service in (None, name) for at, name in self.unfinished)
        return sum(1 for _ in self.scored(service)) + sum(cut)

    def attainment(self, service: str | None = None) -> float:
        """Share of the offered requests that attained; 1 if none was offered."""
        offered = self.offered(service)
        return sum(request.attained for request in self.scored(service)) / offered if offered else 1.0

    def hit_rate(self) -> float:
        """Share of the prompt tokens of answered requests that workers found cached."""
        answered = [request for request in self.scored() if request.outcome is Outcome.OK]
        return _share(sum(r.cached for r in answered), sum(r.prompt_tokens for r in answered))

    def mean_replicas(self, service: str) -> float:
        """Mean number of replicas that exist, draining ones included, over the scored window's moments."""
        counts = [
            moment.ready + moment.starting + moment.draining
            for moment in self.timeline
            if moment.service == service and self.start <= moment.at < self.end
        ]
        return _share(sum(counts), len(counts))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
