"""The data types of scaling: specification, observation, learned state, recommendation, decision. No behaviour.

ConfigMaps and ledgers store the field names of `Observation`, `LearnedState`, `Decision` and their parts.

All times are `now`: Unix seconds of a clock that never goes back. The wall clock is read once at start, the monotonic
clock from then on. So a step of the wall clock moves no window, and a stored state means the same to the next process,
up to the difference of their clocks. Work is in replica-seconds: what one replica does in one second; its rate is in
replica-seconds per second, so a rate of 2.4 keeps 2.4 replicas busy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from paceline_core.clock import Clock
from paceline_core.kube import StartStage
from paceline_core.registry.enums import Direction, QueryResult, ReplicaState, RequestClass, ScaleLimit, ScaleReason
from paceline_core.wire import StepTime

Role = Literal["both", "prefill", "decode"]
PolicyName = Literal["slo", "advise", "queue", "concurrency", "kv", "fixed", "external"]
DEMAND_WINDOWS_S = (5, 15, 60)
"""Seconds that the flows of a class count, ascending."""
ATTAINMENT_WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class SloTarget:
    """One target: `quantile` (0.95) of a class's requests stay below their limit; `name` is its metric label.

    The limit is `seconds`, and `per_prompt_token` more for each token of the prompt.
    """

    cls: RequestClass
    metric: str
    quantile: float
    seconds: float
    per_prompt_token: float = 0.0

    def limit(self, prompt_tokens: float) -> float:
        """The limit in seconds for a prompt of this length."""
        return self.seconds + self.per_prompt_token * prompt_tokens

    @property
    def name(self) -> str:
        return f"{self.metric}_p{round(self.quantile * 100)}"


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """Bounds and price of one pool; `gpus` and `dollars_per_hour` are of one replica (emulated GPUs where emulated)."""

    name: str
    role: Role
    min: int
    max: int
    gpus: int
    dollars_per_hour: float


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """The user's configuration of one service, in numbers.

    `pause_until` is the annotation's text; `foreign` names a Deployment that paceline does not manage.
    """

    service: str
    policy: PolicyName
    targets: tuple[SloTarget, ...]
    pools: tuple[PoolSpec, ...]
    step_tokens: int
    start_prior_s: float
    drain_limit_s: float
    idle_after_s: float | None = None
    budget_gpus: int | None = None
    budget_dollars_per_hour: float | None = None
    pause_until: str | None = None
    pause_reason: str = ""
    foreign: str | None = None


@dataclass(frozen=True, slots=True)
class RateWindow:
    """Arrivals of the last `seconds`."""

    seconds: float
    arrivals: float
    prompt_tokens: float


@dataclass(frozen=True, slots=True)
class CompletedRequests:
    """Sums over requests that were answered in full, with the token counts of their workers (`wire.ClassDemand`)."""

    requests: float
    prompt_tokens: float
    cached_tokens: float
    output_tokens: float
    attended_pairs: float
    kv_reads: float


@dataclass(frozen=True, slots=True)
class ClassSignals:
    """One class over all gateways; `flows` from the shortest window to the longest, `output_tokens` per request.

    `completed`: in the longest window; None if there were none, or workers report no token counts.

    `overdue_tokens`: those of `queued_tokens` whose requests are too late for their targets.
    `oldest_s`: how long the oldest queued request has waited; `deadline_s`: until the nearest deadline of a queued one.
    """

    name: RequestClass
    flows: tuple[RateWindow, ...] = ()
    output_tokens: float | None = None
    queued: int = 0
    queued_tokens: int = 0
    overdue_tokens: int = 0
    held: int = 0
    in_flight: int = 0
    oldest_s: float = 0.0
    deadline_s: float | None = None
    completed: CompletedRequests | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """The clients' demand, as reported by `heard` of `expected` gateways."""

    expected: int
    heard: int
    classes: tuple[ClassSignals, ...] = ()


class StartKind(StrEnum):
    """`cold`: on a node where the pool has never run, so that image and weights are fetched; else `cached`."""

    COLD = "cold"
    CACHED = "cached"


@dataclass(frozen=True, slots=True)
class Replica:
    """One worker of a pool; `age_s` since it was created; `node` is empty until it is scheduled, and in local mode.

    `stage` of its start, while it is starting; None where that is not known.
    """

    name: str
    state: ReplicaState
    age_s: float
    node: str = ""
    stage: StartStage | None = None


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """A ready worker's last report. `queued_tokens` are prompt tokens not yet computed, `kv_used` is 0 to 1.

    `by_class`: waiting requests and their prompt tokens, where the report tells classes apart. A step time of zero is
    not known.
    """

    worker: str
    slots: int
    running: int
    waiting: int
    queued_tokens: int
    kv_tokens: int
    kv_used: float
    step_time: StepTime
    by_class: tuple[tuple[RequestClass, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """One pool: the replicas ordered, those that exist, the load of the ready ones, and a canary's workers."""

    name: str
    desired: int
    replicas: tuple[Replica, ...] = ()
    loads: tuple[WorkerLoad, ...] = ()
    canary: int = 0

    def count(self, state: ReplicaState) -> int:
        return sum(replica.state is state for replica in self.replicas)

    @property
    def ready(self) -> int:
        return self.count(ReplicaState.READY)

    @property
    def silent(self) -> tuple[str, ...]:
        """Ready workers without a load report."""
        reported = {load.worker for load in self.loads}
        names = (replica.name for replica in self.replicas if replica.state is ReplicaState.READY)
        return tuple(name for name in names if name not in reported)


@dataclass(frozen=True, slots=True)
class SloCounts:
    """Requests judged against one target within the window."""

    cls: RequestClass
    slo: str
    good: float
    bad: float


@dataclass(frozen=True, slots=True)
class Attainment:
    """SLO attainment from the metrics source. `verdicts` is empty unless `result` is VALUE.

    `source` is its address; `cause`: why there is no value.
    """

    result: QueryResult
    window_s: float
    verdicts: tuple[SloCounts, ...] = ()
    source: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class MeasuredLatency:
    """A target's metric in the attainment's window: this quantile of the class's requests took `seconds`."""

    cls: RequestClass
    metric: str
    quantile: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that a decision may depend on. `endpoints_lost`, `objects_lost`: workers, services are stale.

    `latencies`: of the targets that were measured; `demand_age_s` and `attainment_age_s`: how old the oldest part of
    those signals is, None before the first. `state_unread`: the state that an earlier autoscaler stored cannot
    be read. `recent_edit`: what another writer did to the replicas lately; `other_scaler`: who keeps doing so, while
    the autoscaler yields; both sentences, or empty.
    """

    now: float
    goal: ScalingSpec
    demand: Demand
    pools: tuple[PoolStatus, ...]
    attainment: Attainment | None
    latencies: tuple[MeasuredLatency, ...] = ()
    demand_age_s: float | None = None
    attainment_age_s: float | None = None
    endpoints_lost: bool = False
    objects_lost: bool = False
    state_unread: bool = False
    recent_edit: str = ""
    other_scaler: str = ""

    @property
    def supply(self) -> tuple[tuple[int, int], ...]:
        """Ready and ordered replicas of each pool."""
        return tuple((pool.ready, pool.desired) for pool in self.pools)

    @property
    def present(self) -> dict[str, int]:
        """Replicas that cost money, by pool, including starting and draining ones and a canary's."""
        return {pool.name: len(pool.replicas) + pool.canary for pool in self.pools}


class MissingSignal(StrEnum):
    """A signal that is absent, incomplete or stale. While there is one, no replica is removed."""

    GATEWAYS = "gateways"
    ENDPOINTS = "endpoints"
    LOAD = "load"
    ATTAINMENT = "attainment"
    OBJECTS = "objects"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class RejectedCount:
    """A number of replicas of the service that was considered: what it costs, and why it was not chosen.

    `dollars_per_hour` is None in ledgers of releases that did not note it.
    """

    replicas: int
    dollars_per_hour: float | None
    why: str

    @property
    def sentence(self) -> str:
        """`3 for $12.00 an hour: ...`; without a price the number alone."""
        cost = f" for ${self.dollars_per_hour:.2f} an hour" if self.dollars_per_hour else ""
        return f"{self.replicas}{cost}: {self.why}"


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Replicas per pool, and why. `body` is the sentence without the leading `2→4:`; `limit` is what binds so far.

    A policy sets `rejected`, `deferred` and the `capacity` it assumes; constraints change the rest.
    """

    counts: Mapping[str, int]
    reason: ScaleReason
    body: str
    limit: ScaleLimit = ScaleLimit.NONE
    rejected: tuple[RejectedCount, ...] = ()
    capacity: float = 0.0
    deferred: tuple[RequestClass, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class DemandForecast:
    """The demand forecast for `after_s` seconds from now, over all demand paths: median and 90th percentile."""

    after_s: float
    p50: float
    p90: float

    @property
    def sentence(self) -> str:
        return f"demand in {self.after_s:.0f} s: p50 {self.p50:.2f}, p90 {self.p90:.2f} replica-s/s"


@dataclass(frozen=True, slots=True)
class SignalValues:
    """The numbers behind a decision: rates in replica-s/s of the cheapest pool, backlog in replica-s, times in s.

    `forecast`: of the horizon, if the knowledge has paths of demand.
    """

    demand: float = 0.0
    backlog: float = 0.0
    capacity: float = 0.0
    burn: float | None = None
    start_s: float = 0.0
    drain_s: float = 0.0
    forecast: DemandForecast | None = None


@dataclass(frozen=True, slots=True)
class PoolDecision:
    """`current` was ordered, `wish` is what policy and limits result in, `replicas` is ordered now."""

    name: str
    current: int
    wish: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Decision:
    """Replicas to order and why: one sentence with numbers, the binding limit, and what was rejected.

    `deferred`: the classes without a target that have queued requests, and wait for idle capacity.
    """

    pools: tuple[PoolDecision, ...]
    direction: Direction
    reason: ScaleReason
    limit: ScaleLimit
    sentence: str
    rejected: tuple[RejectedCount, ...] = ()
    gaps: tuple[MissingSignal, ...] = ()
    reading: SignalValues = SignalValues()
    deferred: tuple[RequestClass, ...] = ()

    @property
    def replicas(self) -> int:
        return sum(pool.replicas for pool in self.pools)

    @property
    def changes(self) -> tuple[PoolDecision, ...]:
        """The pools whose scale is to be written."""
        return tuple(pool for pool in self.pools if pool.replicas != pool.current)


Now = Callable[[], float]


def unix_clock(clock: Clock) -> Now:
    """A clock in Unix seconds that never goes back: the wall clock now, advanced by the monotonic clock."""
    offset = clock.utc().timestamp() - clock.monotonic()
    return lambda: offset + clock.monotonic()
