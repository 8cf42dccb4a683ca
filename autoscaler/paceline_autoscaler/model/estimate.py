"""Estimate work from an observation: tokens become replica-seconds, pools of one role form a group. Pure.

All numbers of a `RoleEstimate` are in units of its reference pool, which serves a request at the least cost: a replica
of a pool that needs `ratio` times as long for the same request counts 1/ratio.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import fsum, inf

from paceline_autoscaler.model.backlog import overdue_work, queued_work
from paceline_autoscaler.model.burn import worst_burn
from paceline_autoscaler.model.capacity import TokenCost, TokenMix, mix_of, price, work_level, work_rate
from paceline_autoscaler.model.history import drain_s
from paceline_autoscaler.model.missing_signals import missing_signals, unreported_pools
from paceline_autoscaler.model.outlook import Outlook, service_outlook
from paceline_autoscaler.model.starts import blocked_pools, pending_starts, start_s
from paceline_autoscaler.model.work_history import WorkHistory
from paceline_autoscaler.state import Knowledge, LearnedState
from paceline_autoscaler.types import (
    ClassSignals,
    DemandForecast,
    MissingSignal,
    Observation,
    PoolSpec,
    PoolStatus,
    Role,
    ScalingSpec,
    WorkerLoad,
)
from paceline_core.registry.enums import RequestClass
from paceline_planner.replica import LengthFactors, ReplicaModel

OutlookOf = Callable[[WorkHistory, float, float, float, float], Outlook]
"""As `service_outlook`."""
CLEAR_MARGIN_S = 15.0
USABLE = 0.97
"""The share of a replica's capacity that is planned with: what a model of mean requests does not see takes the rest."""
SURGE_SHARE = 1 / 3
"""A surge is seen in windows of at least this share of a start: what ends sooner needs no replica."""
_TOLERATED_WAIT_S = 1.0
_USUAL_TPOT_S = 0.05
_NO_TARGET_QUANTILE = 0.95


@dataclass(frozen=True, slots=True)
class PoolEstimate:
    """One pool. `ratio` of its replica-seconds do what one of the reference pool does.

    `start_s`: how long a new replica takes to start; `etas`: seconds until each pending one is ready, without the
    `absent` ones, which were to be ready long ago. `blocked`: why it takes no orders, if it takes none.
    """

    spec: PoolSpec
    status: PoolStatus
    ratio: float
    start_s: float
    etas: tuple[float, ...]
    absent: int
    blocked: str

    @property
    def ready(self) -> int:
        return min(self.status.ready, self.status.desired)

    def present(self, count: int) -> int:
        """How many of `count` replicas are not absent; if they are fewer than ordered, absent ones go first."""
        return count - max(self.absent - max(self.status.desired - count, 0), 0)


@dataclass(frozen=True, slots=True)
class RoleEstimate:
    """The pools of one role, cheapest first. `speed_known`: a replica has reported its step time.

    `demand` is the work rate of the classes with a target over the longest window, `surge` the highest that a shorter
    one shows, `outlook` what it may come to when replicas ordered now serve. `backlog` is their waiting work to
    do within the horizon, `overdue` its part that is too late. `deferred`: the other classes that have queued requests.
    """

    role: Role
    pools: tuple[PoolEstimate, ...]
    speed_known: bool
    demand: float
    surge: float
    outlook: Outlook
    backlog: float
    overdue: float
    burn: float | None
    deferred: tuple[RequestClass, ...] = ()

    @property
    def desired(self) -> int:
        return sum(pool.status.desired for pool in self.pools)

    @property
    def ready(self) -> int:
        return sum(pool.ready for pool in self.pools)

    @property
    def start_s(self) -> float:
        """How long a replica ordered now takes to start."""
        return order_start_s(self.pools)

    @property
    def pending(self) -> tuple[float, ...]:
        """Seconds until each ordered replica is ready, soonest first; without absent ones."""
        return tuple(sorted(chain.from_iterable(pool.etas for pool in self.pools)))

    def capacity(self, counts: Mapping[str, int], derate: float) -> float:
        """Work rate that these many replicas can take on within the SLO; fewer than ordered go without absent ones."""
        return USABLE * derate * fsum(pool.present(counts[pool.spec.name]) / pool.ratio for pool in self.pools)

    def ready_capacity(self, derate: float) -> float:
        """The same of the replicas that are ready."""
        return self.capacity({pool.spec.name: pool.ready for pool in self.pools}, derate)

    def counts(self) -> dict[str, int]:
        return {pool.spec.name: pool.status.desired for pool in self.pools}


@dataclass(frozen=True, slots=True)
class WorkEstimate:
    """The input of policies. `backlogged`: more requests wait than the SLO allows; `idle_s`: since the last request.

    `unreported`: the pools of which a ready replica reports no load, and has done so lately, or none does.
    `answer_s`: how long answers take at most, of the usual length: misses are known as late as that. `forecast`: demand
    at the end of the horizon.
    """

    observation: Observation
    groups: tuple[RoleEstimate, ...]
    missing: tuple[MissingSignal, ...]
    unreported: frozenset[str]
    backlogged: bool
    idle_s: float
    burn: float | None
    start_s: float
    drain_s: float
    answer_s: float
    forecast: DemandForecast | None = None

    @property
    def spec(self) -> ScalingSpec:
        return self.observation.goal

    @property
    def ordered(self) -> dict[str, int]:
        return {pool.name: pool.desired for pool in self.observation.pools}

    @property
    def horizon_s(self) -> float:
        """The time over which capacity is compared with work: until replicas ordered now have started and caught up."""
        return self.start_s + self.clear_s

    @property
    def clear_s(self) -> float:
        """How long new replicas may take to catch up."""
        return clear_s(self.start_s)

    @property
    def round_trip_s(self) -> float:
        """How long a scale-down binds: the time to drain, and to start again if it was wrong."""
        return self.start_s + self.drain_s


def clear_s(start: float) -> float:
    """One start and a bit: to catch up faster would take replicas that become superfluous before they have paid off."""
    return start + CLEAR_MARGIN_S


def order_start_s(pools: tuple[PoolEstimate, ...]) -> float:
    """How long a replica ordered now takes to start, in the cheapest pool that takes it."""
    with_room = [pool for pool in pools if not pool.blocked and pool.status.desired < pool.spec.max]
    return (with_room or list(pools))[0].start_s


def estimate(
    observation: Observation, state: LearnedState, knowledge: Knowledge, outlook_of: OutlookOf = service_outlook
) -> WorkEstimate:
    roles = dict.fromkeys(pool.role for pool in observation.goal.pools)
    groups = tuple(_role_estimate(observation, state, role, knowledge, outlook_of) for role in roles)
    start = max(group.start_s for group in groups)
    return WorkEstimate(
        observation=observation,
        groups=groups,
        missing=missing_signals(observation),
        unreported=unreported_pools(observation, state),
        backlogged=_backlogged(observation, groups),
        idle_s=0.0 if state.idle_since is None else observation.now - state.idle_since,
        burn=worst_burn(observation, None),
        start_s=start,
        drain_s=drain_s(observation.goal, state),
        answer_s=_answer_s(observation.goal, state),
        forecast=_forecast(groups, start),
    )


def work_rates(observation: Observation, state: LearnedState, passed_s: float) -> dict[Role, tuple[float, float]]:
    """By role the work rate of the last `passed_s`, and the seconds that it is of; none without a known speed."""
    promised, _ = _by_promise(observation)
    mix, found = mix_of(observation.demand.classes, state.output_tokens), {}
    for role in dict.fromkeys(pool.role for pool in observation.goal.pools):
        pools = [pool for pool in observation.goal.pools if pool.role == role]
        prices = _prices(observation.goal, pools, state, mix, role)
        if prices.keys().isdisjoint(speed.pool for speed in state.speeds):
            continue
        unit = min(prices.values(), key=lambda price: price.of(1, mix.prompt_tokens, mix.output_tokens))
        recent = [_shortest(cls, passed_s) for cls in promised]
        seconds = min([flow.seconds for cls in recent for flow in cls.flows], default=passed_s)
        found[role] = work_level(recent, unit, state.output_tokens), min(passed_s, seconds)
    return found


def _shortest(cls: ClassSignals, seconds: float) -> ClassSignals:
    """With the shortest window alone that covers so many seconds, else the longest."""
    covering = [flow for flow in cls.flows if flow.seconds >= seconds - 0.5]
    return replace(cls, flows=tuple(covering[:1]) or cls.flows[-1:])


def _answer_s(spec: ScalingSpec, state: LearnedState) -> float:
    tpots = [target.seconds for target in spec.targets if target.metric == "tpot"]
    return max(tpots, default=_USUAL_TPOT_S) * (state.output_tokens or 0.0)


def _forecast(groups: tuple[RoleEstimate, ...], start: float) -> DemandForecast:
    """Of the role with the highest demand."""
    outlook = max((group.outlook for group in groups), key=lambda outlook: outlook.p50)
    return DemandForecast(start, outlook.p50, outlook.p90)


def _role_estimate(
    observation: Observation, state: LearnedState, role: Role, knowledge: Knowledge, outlook_of: OutlookOf
) -> RoleEstimate:
    classes = observation.demand.classes
    mix = mix_of(classes, state.output_tokens)
    specs = [pool for pool in observation.goal.pools if pool.role == role]
    prices = _prices(observation.goal, specs, state, mix, role)
    promised, others = _by_promise(observation)
    costs = {pool.name: prices[pool.name].of(1, mix.prompt_tokens, mix.output_tokens) for pool in specs}
    specs.sort(key=lambda pool: (pool.dollars_per_hour * costs[pool.name], costs[pool.name], pool.name))
    reference = specs[0].name
    priced = costs[reference] > 0
    pools = tuple(
        _pool_estimate(
            observation,
            state,
            spec,
            costs[spec.name] / costs[reference] if priced and costs[spec.name] > 0 else 1.0,
        )
        for spec in specs
    )
    start = order_start_s(pools)
    horizon_s = start + clear_s(start)
    backlog = queued_work(observation, promised, prices[reference], state, horizon_s)
    backlog += _in_workers(pools, prices, mix, {cls.name for cls in others})
    demand = work_level(promised, prices[reference], state.output_tokens)
    return RoleEstimate(
        role=role,
        pools=pools,
        speed_known=not prices.keys().isdisjoint(speed.pool for speed in state.speeds),
        demand=demand,
        surge=work_rate(promised, prices[reference], state.output_tokens, SURGE_SHARE * start),
        outlook=outlook_of(knowledge.history(role), start, demand, *_promise(observation, promised, mix)),
        backlog=backlog,
        overdue=min(overdue_work(promised, prices[reference], state), backlog),
        burn=worst_burn(observation, role),
        deferred=tuple(cls.name for cls in others if max(cls.queued, cls.held)),
    )


def _pool_estimate(observation: Observation, state: LearnedState, spec: PoolSpec, ratio: float) -> PoolEstimate:
    status = next(status for status in observation.pools if status.name == spec.name)
    starts = pending_starts(observation.goal, state, status, observation.now)
    block = blocked_pools(state, observation.now).get(spec.name)
    return PoolEstimate(
        spec=spec,
        status=status,
        ratio=ratio,
        start_s=start_s(observation.goal, state, spec.name),
        etas=tuple(start.eta_s for start in starts if not start.absent),
        absent=sum(start.absent for start in starts),
        blocked="" if block is None else block.why,
    )


def _prices(
    spec: ScalingSpec, pools: list[PoolSpec], state: LearnedState, mix: TokenMix, role: Role
) -> dict[str, TokenCost]:
    """The prices by pool; a pool without a measured speed is assumed to equal one that has it."""
    tpots = (target.seconds for target in spec.targets if target.metric == "tpot" and role != "prefill")
    tpot_s = min(tpots, default=inf)
    factors = LengthFactors() if state.completed is None else LengthFactors.of(state.completed)
    found = {
        speed.pool: price(ReplicaModel(speed, spec.step_tokens, tpot_s), mix, factors, role) for speed in state.speeds
    }
    default = next((found[pool.name] for pool in pools if pool.name in found), TokenCost(0.0, 0.0))
    return {pool.name: found.get(pool.name, default) for pool in pools}


def _by_promise(observation: Observation) -> tuple[list[ClassSignals], list[ClassSignals]]:
    """The classes with a target, and the others; without any target all count as if they had one."""
    with_target = {target.cls for target in observation.goal.targets}
    classes = observation.demand.classes
    promised = [cls for cls in classes if cls.name in with_target or not with_target]
    return promised, [cls for cls in classes if cls not in promised]


def _promise(observation: Observation, promised: list[ClassSignals], mix: TokenMix) -> tuple[float, float]:
    """How long work may wait in seconds, by the strictest TTFT, and which share may wait longer, by the quantiles."""
    names = {cls.name for cls in promised}
    targets = [target for target in observation.goal.targets if target.cls in names]
    waits = (target.limit(mix.prompt_tokens) for target in targets if target.metric == "ttft")
    quantile = max((target.quantile for target in targets), default=_NO_TARGET_QUANTILE)
    return min(waits, default=_TOLERATED_WAIT_S), 1 - quantile


def _backlogged(observation: Observation, groups: tuple[RoleEstimate, ...]) -> bool:
    """Whether more waits than ready replicas do within the strictest TTFT; without a known speed, if anything waits."""
    classes = observation.demand.classes
    if any(cls.held for cls in classes):
        return True
    if not all(group.speed_known for group in groups):
        loads = (load for pool in observation.pools for load in pool.loads)
        return any(cls.queued for cls in classes) or any(load.waiting for load in loads)
    ttfts = [target.seconds for target in observation.goal.targets if target.metric == "ttft"]
    tolerated = min([_TOLERATED_WAIT_S, *ttfts])
    return any(group.backlog > max(group.ready, 1) * tolerated for group in groups)


def _in_workers(
    pools: tuple[PoolEstimate, ...], prices: dict[str, TokenCost], mix: TokenMix, others: set[RequestClass]
) -> float:
    """Replica-seconds that wait in workers, without those of other classes; some reports do not tell them apart."""
    return fsum(
        prices[pool.spec.name].of(*_waiting_beside(load, others), mix.output_tokens) / pool.ratio
        for pool in pools
        for load in pool.status.loads
    )


def _waiting_beside(load: WorkerLoad, others: set[RequestClass]) -> tuple[int, int]:
    """The waiting requests of a worker without those of other classes, and their prompt tokens."""
    theirs = [(requests, tokens) for cls, requests, tokens in load.by_class if cls in others]
    return load.waiting - sum(requests for requests, _ in theirs), load.queued_tokens - sum(
        tokens for _, tokens in theirs
    )
