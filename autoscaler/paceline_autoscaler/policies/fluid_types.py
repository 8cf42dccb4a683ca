"""The data types of the fluid model: demand by bin, a plan, and its result. No behaviour beyond sums.

Times are seconds from the first bin on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from paceline_autoscaler.state import PoolSpeed
from paceline_autoscaler.types import Decision, ScalingSpec, SloTarget
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_planner.replica import RequestMix

CLASS = RequestClass.INTERACTIVE
"""The class of all requests of a plan."""
MOMENT_S = 10.0
TTFT = SloTarget(CLASS, "ttft", 0.99, 2.0, 1 / 3000)
TPOT = SloTarget(CLASS, "tpot", 0.99, 0.1)


@dataclass(frozen=True, slots=True)
class DemandBin:
    """Requests that arrive evenly within a bin: their number, and sums over them.

    `cached_tokens` are prompt tokens that need no computation. `attended_pairs`: pairs of tokens that prefill attends
    to, u·(p - u/2) for a prompt of p tokens of which u are not cached. `kv_reads`: KV tokens that decode steps read,
    o·(p + o/2) for o output tokens.
    """

    arrivals: float = 0.0
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0
    cached_tokens: float = 0.0
    attended_pairs: float = 0.0
    kv_reads: float = 0.0

    def __add__(self, other: "DemandBin") -> "DemandBin":
        """The requests of both."""
        return DemandBin(
            self.arrivals + other.arrivals,
            self.prompt_tokens + other.prompt_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.attended_pairs + other.attended_pairs,
            self.kv_reads + other.kv_reads,
        )

    def mix(self, step: StepTime) -> RequestMix:
        """The mean request, if there are some."""
        count, uncached = self.arrivals, self.prompt_tokens - self.cached_tokens
        return RequestMix(
            prompt=self.prompt_tokens / count,
            uncached=uncached / count,
            output=self.output_tokens / count,
            prefill_s=(step.prefill * uncached + step.context * self.attended_pairs) / count,
            decode_s=(step.sequence * self.output_tokens + step.kv * self.kv_reads) / count,
            held_tokens=self.kv_reads / self.output_tokens if self.output_tokens else 0.0,
            attended_pairs=self.attended_pairs / count,
        )


@dataclass(frozen=True, slots=True)
class LengthSpread:
    """How lengths differ: those of equal shares of the requests, shortest first, as multiples of the plan's mean."""

    prompt: tuple[float, ...] = (1.0,)
    output: tuple[float, ...] = (1.0,)


@dataclass(frozen=True, slots=True)
class FluidPlan:
    """One service with one pool: its demand, its replicas' speed, how they start, and what is scored.

    `bins` of `bin_s` seconds each, within which arrivals are even. `replicas` are ready at the start, a later one
    `lead_s` after its order; `lead_spread` is the standard deviation of that as a share. `ttft` and `tpot`: the promise
    that attainment counts, each request against the limit itself; the service's own targets are what policies see.
    `min_prefill`: prompt tokens that a step computes even if it exceeds the TPOT limit.
    `start`: Unix seconds of the first bin, for policies' clocks. `score`: the window that results count. A request
    that has waited `hold_s` leaves, and one that finds `queue_limit` requests waiting does not stay. Verdicts and
    latencies are seen `metrics_lag_s` after their scrape; `latencies`: whether these are measured, which takes a sixth
    of the time and is not read by our own policy.
    """

    service: ScalingSpec
    speed: PoolSpeed
    bins: Sequence[DemandBin]
    replicas: int
    bin_s: float = 1.0
    lead_s: float = 180.0
    lead_spread: float = 0.0
    lengths: LengthSpread = LengthSpread()
    ttft: SloTarget = TTFT
    tpot: SloTarget = TPOT
    min_prefill: int = 0
    score: tuple[float, float] = (0.0, inf)
    start: float = 0.0
    hold_s: float = 120.0
    queue_limit: float = 4096.0
    metrics_lag_s: float = 0.0
    latencies: bool = True


@dataclass(frozen=True, slots=True)
class FluidMoment:
    """The pool at one time. `demand`: requests a second that arrive in the next MOMENT_S; `capacity`: how many of this
    mix its ready replicas sustain.

    `queued` requests have no first token yet, `running` ones decode.
    """

    at: float
    demand: float
    capacity: float
    desired: int
    ready: int
    starting: int
    draining: int
    queued: float
    running: float


@dataclass(frozen=True, slots=True)
class FluidHour:
    """Requests that arrived in an hour of the scored window, those of them that met each target, and its GPU time."""

    offered: float
    met: tuple[float, ...]
    gpu_s: float


@dataclass(frozen=True, slots=True)
class FluidResult:
    """Requests of the scored window that were offered, answered, and attained both limits; GPU time in that window.

    Requests without an answer waited too long or found no room. GPU time is from order to release. `decisions`: our
    policy's that changed replicas, with their time. `hours`: of the scored window from its start on, by the service's
    own targets of CLASS. `end`: when the run ended.
    """

    offered: float
    answered: float
    attained: float
    gpu_s: float
    timeline: tuple[FluidMoment, ...]
    decisions: tuple[tuple[float, Decision], ...] = ()
    hours: tuple[FluidHour, ...] = ()
    end: float = inf

    @property
    def attainment(self) -> float:
        """Share of the offered requests that attained; 1 if none was offered."""
        return self.attained / self.offered if self.offered else 1.0
