"""Simulated services for comparisons of routing and of queues: emulated H100s with Llama 3.1 8B, a fixed number.

Gateways take calls in turn, each with its own queues; each worker reports to every gateway. Calls may arrive faster
than logged, because a log's rate is too low for several workers and its prefixes must not be doubled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from benchmarks.harness import quantile
from benchmarks.routing.policies import Name, make

from paceline_autoscaler.types import Observation
from paceline_core.kube import ObjectKey
from paceline_core.kube.cluster import ScaleTarget
from paceline_core.objects import InferenceService, ResolvedService
from paceline_core.objects.defaults import resolve
from paceline_core.registry.enums import RequestClass
from paceline_gateway.config import HttpLimits
from paceline_simulator.cluster import EPOCH, PoolPlan, StartTimes
from paceline_simulator.engine import EngineSpec
from paceline_simulator.simulation import RunPlan, ServicePlan, Simulation
from paceline_simulator.traces import TraceRequest

WINDOW_S = 60.0
SERVICE = "simulation/chat"
TARGET = ScaleTarget(ObjectKey("simulation", "chat"), "main")
LIMITS = HttpLimits(held_requests=1 << 30, queue_bytes=1 << 60)
HOLD_S = 3600.0


@dataclass(frozen=True, slots=True)
class RoutingVariant:
    """One routing policy in so many gateways. `leaves`: when one worker is drained, if it is; `joins`: when one more
    comes, with nothing cached.
    """

    policy: Name
    gateways: int = 1
    leaves: float = inf
    joins: float = inf


@dataclass(frozen=True, slots=True)
class TimedReplicas:
    """A policy that has `count` replicas, except between two times: then one less."""

    count: int
    leaves: float
    joins: float
    period_s: float = 0.5
    lag_s: float = 0.0
    retires: bool = False

    def replicas(self, observation: Observation) -> Mapping[str, int]:
        since = observation.now - EPOCH.timestamp()
        return {"main": self.count - (self.leaves <= since < self.joins)}


@dataclass(slots=True)
class Outcome:
    """Of one run: sorted times to first token, cached and all prompt tokens, each worker's seconds of work by window.

    Work is what steps take beyond the fixed part that each has, however little is in it.
    """

    ttft: list[float] = field(default_factory=list)
    cached: int = 0
    prompts: int = 0
    work: dict[str, dict[int, float]] = field(default_factory=dict)
    busy: float = 0.0
    seconds: float = 0.0

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that were found cached."""
        return self.cached / self.prompts

    @property
    def mean(self) -> float:
        """Mean TTFT."""
        return sum(self.ttft) / len(self.ttft)

    def quantile(self, share: float) -> float:
        """TTFT that this share stays below."""
        return quantile(self.ttft, share)

    @property
    def imbalance(self) -> float:
        """The busiest worker's work over the mean."""
        return _ratio([sum(windows.values()) for windows in self.work.values()])

    @property
    def worst_window(self) -> float:
        """The same within the worst window; the first and the last are not whole and left out."""
        last = max(max(windows, default=0) for windows in self.work.values())
        return max((_ratio([w.get(n, 0.0) for w in self.work.values()]) for n in range(1, last)), default=1.0)

    @property
    def utilization(self) -> float:
        """Share of all workers' time spent in steps."""
        return self.busy / (len(self.work) * self.seconds)


class WorkMeter:
    """Each worker's seconds of work by window; a run calls `measure` at the end of each."""

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self._before: dict[str, float] = {}
        self.work: dict[str, dict[int, float]] = {}
        self.busy: dict[str, float] = {}
        run.events.every(WINDOW_S, self.measure, first=WINDOW_S)

    def measure(self) -> None:
        window = int(self._run.events.now / WINDOW_S - 1e-9)
        for name, engine in self._run.cluster.engines.items():
            engine.catch_up()
            work = engine.busy_s - engine.spec.model.base * engine.scheduler.counters.steps
            self.work.setdefault(name, {})[window] = work - self._before.get(name, 0.0)
            self._before[name], self.busy[name] = work, engine.busy_s


def service() -> ResolvedService:
    """A service without promises, whose queues hold whatever comes."""
    manifest = {
        "metadata": {"name": "chat", "namespace": "simulation", "uid": "chat"},
        "spec": {
            "model": {"source": "builtin://demo", "servedName": "chat"},
            "runtime": {"name": "paceline"},
            "pools": [{"name": "main", "accelerator": "h100", "replicas": {"min": 1, "max": 64}}],
        },
    }
    made = resolve(InferenceService.model_validate(manifest))
    classes = {n: replace(cls, queue_limit=1 << 30, hold_timeout_s=HOLD_S) for n, cls in made.classes.items()}
    return replace(made, classes=classes)


def simulation(
    calls: Mapping[RequestClass, Sequence[TraceRequest]],
    spec: EngineSpec,
    variant: RoutingVariant,
    workers: int,
    until: float = inf,
) -> Simulation:
    """The run; `until`: when it ends, whatever is left."""
    policy = TimedReplicas(workers, variant.leaves, variant.joins)
    pool = PoolPlan(TARGET, spec, StartTimes.of(1e-3))
    plan = RunPlan(
        (ServicePlan(service(), (pool,), calls, policy, {"main": workers}),),
        gateways=variant.gateways,
        until=until,
        limits=LIMITS,
        routing=lambda limits, number: make(variant.policy, lookahead_s=limits.lookahead_s, seed=number),
    )
    return Simulation(plan)


def measured(run: Simulation) -> Outcome:
    """Run it to its end."""
    meter = WorkMeter(run)
    result = run.run()
    meter.measure()
    begun = [request for request in result.requests if request.ttft is not None]
    return Outcome(
        ttft=sorted(request.ttft or 0.0 for request in begun),
        cached=sum(request.cached for request in begun),
        prompts=sum(request.prompt_tokens for request in begun),
        work=meter.work,
        busy=sum(meter.busy.values()),
        seconds=result.seconds,
    )


def simulate(
    calls: Sequence[TraceRequest], spec: EngineSpec, variant: RoutingVariant, workers: int, rate: float
) -> Outcome:
    """All calls, arriving `rate` times as fast as logged, until the last one has ended."""
    faster = [replace(call, at=call.at / rate) for call in calls]
    return measured(simulation({RequestClass.INTERACTIVE: faster}, spec, variant, workers))


def _ratio(seconds: Sequence[float]) -> float:
    mean = sum(seconds) / len(seconds)
    return max(seconds) / mean if mean else 1.0
