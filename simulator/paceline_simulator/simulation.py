"""A whole run on one event heap: workloads, gateways, engines, the cluster and the autoscaler of several services.

    arrivals -> gateway (request machine, queues, routing) -> engine (scheduler, KV memory, step clock)
                   | demand, 1 s                               | load, at most 4 a second
                   v                                           v
                autoscaler: meter, observation, policy -> cluster: starts by stage, drains, losses

Several gateways take arrivals in turn, and each knows only its own requests and the workers' reports.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from math import inf
from random import Random

from paceline_autoscaler.model.observation import scaling_spec
from paceline_autoscaler.output.victims import PoolWorker, choose_victims
from paceline_autoscaler.policies.replica_policy import PastSignals, ReplicaPolicy
from paceline_autoscaler.signals.live import DemandMeter
from paceline_core.kube.cluster import ScaleTarget
from paceline_core.objects.resolved import ResolvedService
from paceline_core.registry.enums import ReplicaState, RequestClass
from paceline_gateway.config import HttpLimits
from paceline_gateway.routing.policies import RoutingPolicy, ShortestTTFT
from paceline_simulator.cluster import EPOCH, REVISION, PoolPlan, SimulatedCluster, SimulatedReplica
from paceline_simulator.control import MetricsSpec, ScrapedMetrics, SimulatedScaler
from paceline_simulator.engine import SimulatedEngine
from paceline_simulator.events import EventQueue
from paceline_simulator.gateway import ClientRequest, SimulatedGateway
from paceline_simulator.results import LatencyLimits, Moment, RequestResult, SimulationResult
from paceline_simulator.traces import TraceRequest

REPORT_S = 0.25
"""The shortest time between two load reports of a worker."""
QUIET_S = 5.0
"""The longest one."""
PHASES = 8
"""Parts of REPORT_S over which the reports of different workers are spread."""
SWEEP_S = 0.25
DEMAND_S = 1.0
MOMENT_S = 10.0
_EPOCH_S = EPOCH.timestamp()

Follow = Callable[[ClientRequest, float], TraceRequest | None]
"""The next request of a client whose last one has ended, if it sends another."""


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """One service: its pools, its workload, the policy that scales it, and its replicas at the start by pool.

    `arrivals` by class, each in the order of arrival. `follow`: for clients that wait for their answers.
    """

    service: ResolvedService
    pools: tuple[PoolPlan, ...]
    arrivals: Mapping[RequestClass, Sequence[TraceRequest]]
    policy: ReplicaPolicy
    replicas: Mapping[str, int]
    metrics: MetricsSpec = field(default_factory=MetricsSpec)
    follow: Follow | None = None


@dataclass(frozen=True, slots=True)
class RunPlan:
    """`score`: the window that results count. `until`: the end of the run; inf: when the last request has ended.

    `routing` makes the routing policy of a gateway, by its number.
    """

    services: tuple[ServicePlan, ...]
    gateways: int = 1
    seed: int = 0
    until: float = inf
    score: tuple[float, float] = (0.0, inf)
    latency: LatencyLimits = field(default_factory=LatencyLimits)
    limits: HttpLimits = field(default_factory=HttpLimits)
    routing: Callable[[HttpLimits, int], RoutingPolicy] = lambda limits, _: ShortestTTFT(limits.lookahead_s)


Arrival = tuple[float, str, RequestClass, TraceRequest]


class Simulation:
    """One run of a plan; call `run` once."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.events = EventQueue()
        self.result = SimulationResult(*plan.score)
        self._plans = {service.service.key: service for service in plan.services}
        pools = [pool for service in plan.services for pool in service.pools]
        random = Random(plan.seed)  # noqa: S311 - repeatable draws, no secrets
        self.cluster = SimulatedCluster(pools, self.events, random, self._changed, self._killed)
        services = [service.service for service in plan.services]
        self.gateways = [
            SimulatedGateway(
                f"gateway-{number}",
                services,
                self.events,
                self.cluster.engines,
                policy=partial(plan.routing, plan.limits, number),
                settled=self._settled,
                limits=plan.limits,
            )
            for number in range(plan.gateways)
        ]
        self.scalers = {key: _scaler(service, plan.gateways) for key, service in self._plans.items()}
        self._arrivals = merge(*map(_arrivals, plan.services), key=lambda arrival: arrival[0])
        self._numbers = 0
        self._expected = sum(len(requests) for s in plan.services for requests in s.arrivals.values())
        self._reported: dict[str, tuple[float, tuple[int, int, int]]] = {}
        self._paid: dict[ScaleTarget, float] = {}

    def run(self) -> SimulationResult:
        events, plan = self.events, self.plan
        for service in plan.services:
            self.cluster.begin({pool.target: service.replicas.get(pool.target.pool, 0) for pool in service.pools})
            scaler = self.scalers[service.service.key]
            events.every(service.metrics.scrape_s, partial(self._scrape, scaler))
            events.every(service.policy.period_s, partial(self._signals, service.service.key), first=DEMAND_S)
        events.every(SWEEP_S, self._sweep, first=SWEEP_S)
        events.every(DEMAND_S, self._demand, first=DEMAND_S / 2)
        events.every(MOMENT_S, self._moment)
        for place, time in enumerate(plan.score):
            if time < inf:
                events.at(time, self._pay, (-1.0, 1.0)[place])
        self._next_arrival()
        if self._expected:
            events.run(plan.until)
        return self._finished()

    # --- requests

    def _next_arrival(self) -> None:
        arrival = next(self._arrivals, None)
        if arrival is not None:
            self.events.at(arrival[0], self._arrive, arrival)

    def _arrive(self, arrival: Arrival) -> None:
        self._next_arrival()
        self._request(*arrival[1:])

    def _request(self, service: str, request_class: RequestClass, asked: TraceRequest) -> None:
        number, self._numbers = self._numbers, self._numbers + 1
        self.gateways[number % len(self.gateways)].arrive(number, service, request_class, asked)

    def _settled(self, request: ClientRequest) -> None:
        record, plan = request.record, self._plans[request.service]
        if record is None:
            return
        self.scalers[request.service].metrics.count(request.request_class, request.verdicts, record)
        self.result.requests.append(RequestResult.of(request, record, self.plan.latency))
        following = plan.follow(request, self.events.now) if plan.follow else None
        if following is not None:
            self.events.at(following.at, self._request, request.service, request.request_class, following)
            return
        self._expected -= 1
        if not self._expected:
            self._stop()

    def _stop(self) -> None:
        """End the run, but not before its scored window, which is paid to its end."""
        end = self.plan.score[1]
        if self.events.now < end < inf:
            self.events.at(end, self.events.stop)
        else:
            self.events.stop()

    # --- workers

    def _changed(self, service: str) -> None:
        endpoints = self.cluster.endpoints(service)
        for gateway in self.gateways:
            gateway.on_workers(service, endpoints)
        for name, engine in self.cluster.engines.items():
            if name not in self._reported:
                self._reported[name] = (-inf, (0, 0, 0))
                self._report(engine)

    def _killed(self, replica: SimulatedReplica) -> None:
        for gateway in self.gateways:
            gateway.killed(replica.name)

    def _report(self, engine: SimulatedEngine) -> None:
        if self.cluster.engines.get(engine.name) is not engine:
            del self._reported[engine.name]
            return
        now, (at, activity), gap = self.events.now, self._reported[engine.name], REPORT_S
        if at == -inf:
            gap *= (len(self._reported) % PHASES + 1) / PHASES
        if now - at >= QUIET_S or engine.activity != activity:
            report = engine.load_report()
            if len(self.gateways) > 1:
                report = report.model_copy(update={"gateways": len(self.gateways)})
            self._reported[engine.name] = (now, engine.activity)
            self.scalers[report.service].on_load(report)
            for gateway in self.gateways:
                gateway.on_report(report.service, report)
        self.events.at(now + gap, self._report, engine)

    def _sweep(self) -> None:
        for gateway in self.gateways:
            gateway.sweep()
        self.cluster.sweep()

    # --- scaling

    def _demand(self) -> None:
        for gateway in self.gateways:
            report = gateway.demand()
            for scaler in self.scalers.values():
                scaler.on_demand(report, _EPOCH_S + self.events.now)

    def _scrape(self, scaler: SimulatedScaler) -> None:
        scaler.metrics.scrape(self.events.now)

    def _signals(self, key: str) -> None:
        now, scaler = self.events.now, self.scalers[key]
        self.events.at(now + scaler.policy.lag_s, self._scale, key, scaler.signals(_EPOCH_S + now, now))

    def _scale(self, key: str, signals: PastSignals) -> None:
        scaler = self.scalers[key]
        targets = {pool.target.pool: pool.target for pool in self._plans[key].pools}
        desired = {name: self.cluster.desired[target] for name, target in targets.items()}
        observation = scaler.observe(_EPOCH_S + self.events.now, signals, desired, self.cluster.endpoints(key))
        counts = {targets[name]: count for name, count in scaler.policy.replicas(observation).items()}
        retired: list[str] = []
        if scaler.policy.retires:
            retired = [name for target, count in counts.items() for name in self._victims(target, count)]
        self.cluster.scale(counts, retired)

    def _victims(self, target: ScaleTarget, count: int) -> tuple[str, ...]:
        """The workers of a pool that the autoscaler retires so that `count` are left."""
        there = [r for r in self.cluster.replicas if r.plan.target == target and not r.draining]
        if len(there) <= count:
            return ()
        loads = {r.name: r.engine.remaining_load() for r in there if r.engine is not None}
        workers = [PoolWorker(r.name, REVISION, r.engine is not None, loads.get(r.name)) for r in there]
        return choose_victims(workers, len(there) - count)

    # --- results

    def _pay(self, sign: float) -> None:
        for target, _ in self._targets():
            self._paid[target] = self._paid.get(target, 0.0) + sign * self.cluster.gpu_seconds(target)

    def _targets(self) -> Iterator[tuple[ScaleTarget, str]]:
        return ((pool.target, key) for key, plan in self._plans.items() for pool in plan.pools)

    def _moment(self) -> None:
        for key in self._plans:
            replicas = [replica.state for replica in self.cluster.of(key)]
            dispatchers = [gateway.services[key].dispatcher for gateway in self.gateways]
            queued = sum(dispatcher.waiting for dispatcher in dispatchers)
            opened = sum(request.service == key for gateway in self.gateways for request in gateway.open.values())
            counts = {state: replicas.count(state) for state in ReplicaState}
            desired = sum(self.cluster.desired[target] for target, owner in self._targets() if owner == key)
            self.result.timeline.append(
                Moment(
                    at=self.events.now,
                    service=key,
                    desired=desired,
                    ready=counts[ReplicaState.READY],
                    starting=counts[ReplicaState.STARTING],
                    draining=counts[ReplicaState.DRAINING],
                    queued=queued,
                    in_flight=opened - queued,
                )
            )

    def _finished(self) -> SimulationResult:
        result = self.result
        result.seconds = self.events.now
        if self.plan.score[1] > self.events.now:
            self._pay(1.0)
        result.pool_gpu_s, result.ordered = self._paid, self.cluster.ordered
        for target, key in self._targets():
            result.gpu_s[key] = result.gpu_s.get(key, 0.0) + self._paid.get(target, 0.0)
        result.unfinished = [
            (request.asked.at, request.service) for gateway in self.gateways for request in gateway.open.values()
        ]
        return result


def _scaler(plan: ServicePlan, gateways: int) -> SimulatedScaler:
    spec = scaling_spec(plan.service)
    return SimulatedScaler(spec, plan.policy, ScrapedMetrics(plan.metrics, spec.targets), DemandMeter(), gateways)


def _arrivals(plan: ServicePlan) -> Iterable[Arrival]:
    """One service's arrivals in the order of time; those that come at the same instant in the order of classes."""
    return merge(
        *(
            [(request.at, plan.service.key, cls, request) for request in requests]
            for cls, requests in plan.arrivals.items()
        ),
        key=lambda arrival: arrival[0],
    )
