"""A small discrete model of gateways and replicas, in which the real meter and the real policy do the scaling.

Requests of one size arrive at a rate that changes; each replica serves one after another and keeps eight at most of its
own, the rest waits at the gateway. Starts take `cold_start_s`; who must leave finishes what it has. Time moves in steps
of a tenth of a second, decisions are taken once a second, exactly as in the loop.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random

from paceline_autoscaler.model.capacity import TokenMix, price
from paceline_autoscaler.policies import decide
from paceline_autoscaler.signals.live import DemandMeter
from paceline_autoscaler.state import Knowledge, PoolSpeed, State
from paceline_autoscaler.types import (
    Attainment,
    Decision,
    Observation,
    PoolSpec,
    PoolStatus,
    Replica,
    ScalingSpec,
    SloCounts,
    SloTarget,
    WorkerLoad,
)
from paceline_core.registry.enums import QueryResult, ReplicaState, RequestClass
from paceline_core.wire import ClassDemand, DemandReport, ServiceDemand, StepTime
from paceline_planner.replica import LengthFactors, ReplicaModel

SERVICE = "default/chat"
STEP_TIME = StepTime(base=6e-3, prefill=36e-6, sequence=4e-6, kv=4e-8, observations=100)
SPEED = PoolSpeed("main", STEP_TIME, 64, 400_000)
PROMPT, OUTPUT = 4096, 32
STEP_S = 0.1
OWN_LIMIT = 8
EPOCH = 1_800_000_000.0


def goal_of(least: int = 1, most: int = 8, ttft_s: float = 2.0, idle_after_s: float | None = None) -> ScalingSpec:
    return ScalingSpec(
        service=SERVICE,
        policy="slo",
        targets=(SloTarget(RequestClass.INTERACTIVE, "ttft", 0.95, ttft_s),),
        pools=(PoolSpec("main", "both", least, most, 1, 4.0),),
        step_tokens=2048,
        start_prior_s=20.0,
        drain_limit_s=60.0,
        idle_after_s=idle_after_s,
    )


@dataclass
class Server:
    name: str
    created: float
    ready_at: float
    busy_until: float = 0.0
    waiting: deque[float] = field(default_factory=deque)
    leaving: bool = False


@dataclass
class Plant:
    """The model. `rate(t)` is in requests per second; `served` holds (arrival, TTFT)."""

    goal: ScalingSpec
    rate: Callable[[float], float]
    cold_start_s: float = 20.0
    slowness: float = 1.0
    seed: int | None = None
    now: float = EPOCH
    desired: int = 1
    servers: list[Server] = field(default_factory=list)
    gateway: deque[float] = field(default_factory=deque)
    served: list[tuple[float, float]] = field(default_factory=list)
    arrivals: int = 0
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    desired_over_time: list[tuple[float, int]] = field(default_factory=list)
    state: State = field(default_factory=State)
    knowledge: Knowledge = field(default_factory=Knowledge)
    meter: DemandMeter = field(default_factory=DemandMeter)
    _due: float = 0.0
    _named: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed) if self.seed is not None else None
        replica = ReplicaModel(SPEED, self.goal.step_tokens, inf)
        unit = price(replica, TokenMix(PROMPT, OUTPUT), LengthFactors(), "both")
        self.prefill_s = unit.prompt * PROMPT * self.slowness
        self.work_s = unit.of(1, PROMPT, OUTPUT) * self.slowness
        for _ in range(self.desired):
            self._start(ready_at=self.now)

    @property
    def started(self) -> float:
        return EPOCH

    @property
    def waiting(self) -> int:
        """Requests that nobody has begun to serve."""
        return len(self.gateway) + sum(len(server.waiting) for server in self.servers)

    @property
    def elapsed(self) -> float:
        return self.now - EPOCH

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.second()

    def second(self) -> tuple[Observation, Decision]:
        """One second, and the decision at its end."""
        for _ in range(round(1 / STEP_S)):
            self._step()
        self.meter.on(self._report(), self.now)
        seen = self.observation()
        decision, self.state = decide(seen, self.state, self.knowledge)
        self.decisions.append((self.elapsed, decision))
        self._order(decision.replicas)
        return seen, decision

    def attainment(self, start: float, end: float) -> float:
        """Share of the requests that arrived in this span and met the target."""
        within = [ttft for arrival, ttft in self.served if start <= arrival - EPOCH < end]
        return sum(ttft <= self.goal.targets[0].seconds for ttft in within) / len(within)

    def _step(self) -> None:
        self.now += STEP_S
        self._arrive()
        self._dispatch()
        for server in self.servers:
            self._serve(server)
        self.servers = [s for s in self.servers if not (s.leaving and not s.waiting and s.busy_until <= self.now)]

    def _arrive(self) -> None:
        expected = self.rate(self.elapsed) * STEP_S
        if self.random is None:
            self._due += expected
            count = int(self._due)
            self._due -= count
        else:
            count = _poisson(self.random, expected)
        self.arrivals += count
        self.gateway.extend([self.now] * count)

    def _dispatch(self) -> None:
        able = [server for server in self.servers if not server.leaving and server.ready_at <= self.now]
        while self.gateway and able:
            server = min(able, key=lambda server: (len(server.waiting), server.busy_until))
            if len(server.waiting) >= OWN_LIMIT:
                return
            server.waiting.append(self.gateway.popleft())

    def _serve(self, server: Server) -> None:
        while server.waiting and server.busy_until < self.now + STEP_S:
            arrival = server.waiting.popleft()
            begin = max(server.busy_until, self.now)
            server.busy_until = begin + self.work_s
            self.served.append((arrival, begin + self.prefill_s - arrival))

    def _order(self, replicas: int) -> None:
        self.desired = replicas
        self.desired_over_time.append((self.elapsed, replicas))
        while len(self._staying()) < replicas:
            self._start(ready_at=self.now + self.cold_start_s)
        for server in sorted(self._staying(), key=lambda s: (s.ready_at <= self.now, -s.created))[: self._surplus()]:
            server.leaving = True

    def _surplus(self) -> int:
        return max(len(self._staying()) - self.desired, 0)

    def _staying(self) -> list[Server]:
        return [server for server in self.servers if not server.leaving]

    def _start(self, ready_at: float) -> None:
        self._named += 1
        self.servers.append(Server(f"main-{self._named}", ready_at - self.cold_start_s, ready_at, ready_at))

    def _report(self) -> DemandReport:
        row = ClassDemand(
            name=RequestClass.INTERACTIVE,
            arrivals=self.arrivals,
            prompt_tokens=self.arrivals * PROMPT,
            output_tokens=len(self.served) * OUTPUT,
            completed=len(self.served),
            queued=len(self.gateway),
            queued_prompt_tokens=len(self.gateway) * PROMPT,
            held=0 if any(s.ready_at <= self.now for s in self._staying()) else len(self.gateway),
            in_flight=self.waiting - len(self.gateway),
        )
        return DemandReport(
            gateway="g", started="2027-01-01", services=(ServiceDemand(service=SERVICE, classes=(row,)),)
        )

    def observation(self) -> Observation:
        replicas = tuple(Replica(s.name, self._state(s), self.now - s.created) for s in self.servers)
        loads = tuple(self._load(s) for s in self.servers if self._state(s) is ReplicaState.READY)
        return Observation(
            now=self.now,
            goal=self.goal,
            demand=self.meter.of(SERVICE, self.now, 1, 1),
            pools=(PoolStatus("main", self.desired, replicas, loads),),
            attainment=self._attainment(),
        )

    def _state(self, server: Server) -> ReplicaState:
        if server.leaving:
            return ReplicaState.DRAINING
        return ReplicaState.READY if server.ready_at <= self.now else ReplicaState.STARTING

    def _load(self, server: Server) -> WorkerLoad:
        waiting = len(server.waiting)
        return WorkerLoad(server.name, 64, 1, waiting, waiting * PROMPT, 400_000, 0.1, STEP_TIME)

    def _attainment(self) -> Attainment:
        window = 60.0
        first = [ttft for arrival, ttft in self.served if self.now - window <= arrival + ttft <= self.now]
        bad = sum(ttft > self.goal.targets[0].seconds for ttft in first)
        verdicts = SloCounts(RequestClass.INTERACTIVE, "ttft_p95", len(first) - bad, bad)
        return Attainment(QueryResult.VALUE, window, (verdicts,))


def _poisson(random: Random, mean: float) -> int:
    count, left = 0, random.expovariate(1.0)
    while left < mean:
        count += 1
        left += random.expovariate(1.0)
    return count
