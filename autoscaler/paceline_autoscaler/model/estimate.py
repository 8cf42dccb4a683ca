"""From an observation to a picture: tokens become work, pools of one role are put together, gaps are named. Pure.

An observation made sense of: work instead of tokens, pools of one role together, what is missing named. Pure.

Everything in a Group is in units of its reference pool, the one that does a request at the least cost: a replica of a
pool that needs `ratio` times as long for the same request counts 1/ratio.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from paceline_autoscaler.model.capacity import TokenCost, TokenMix, mix_of, output_of, price, usable, work_rate
from paceline_autoscaler.model.history import drain_s, start_s
from paceline_autoscaler.types import (
    ClassSignals,
    LearnedState,
    MissingSignal,
    Observation,
    PoolSpec,
    PoolStatus,
    Role,
    ScalingSpec,
    SloCounts,
)
from paceline_core.registry.enums import QueryResult, ReplicaState

MIN_CLEAR_S = 10.0


@dataclass(frozen=True, slots=True)
class PoolEstimate:
    """One pool. `ratio` of its replica-seconds do what one of the reference pool does; `etas` (s) of who is pending."""

    goal: PoolSpec
    view: PoolStatus
    ratio: float
    etas: tuple[float, ...]

    @property
    def ready(self) -> int:
        """Replicas that take requests and are still ordered."""
        return min(self.view.ready, self.view.desired)


@dataclass(frozen=True, slots=True)
class RoleEstimate:
    """The pools of one role, cheapest first. `known`: some replica has told how fast it is."""

    role: Role
    columns: tuple[PoolEstimate, ...]
    known: bool
    demand: float
    backlog: float
    burn: float | None

    @property
    def desired(self) -> int:
        """Replicas ordered."""
        return sum(column.view.desired for column in self.columns)

    @property
    def ready(self) -> int:
        """Replicas that take requests and are still ordered."""
        return sum(column.ready for column in self.columns)

    @property
    def pending(self) -> tuple[float, ...]:
        """Seconds until each ordered replica comes, soonest first."""
        return tuple(sorted(chain.from_iterable(column.etas for column in self.columns)))

    def capacity(self, counts: Mapping[str, int], derate: float) -> float:
        """Work rate that these many replicas can take on while keeping the promise."""
        share = usable(sum(counts.values())) * derate
        return share * sum(counts[column.goal.name] / column.ratio for column in self.columns)

    def counts(self) -> dict[str, int]:
        """Replicas ordered, by pool."""
        return {column.goal.name: column.view.desired for column in self.columns}


@dataclass(frozen=True, slots=True)
class WorkEstimate:
    """What policies look at. `backlogged`: more waits than the promise allows; `idle_s`: how long nobody has asked."""

    observation: Observation
    groups: tuple[RoleEstimate, ...]
    gaps: tuple[MissingSignal, ...]
    backlogged: bool
    idle_s: float
    burn: float | None
    start_s: float
    drain_s: float

    @property
    def goal(self) -> ScalingSpec:
        """What the user wishes."""
        return self.observation.goal

    @property
    def ordered(self) -> dict[str, int]:
        """Replicas ordered, by pool."""
        return {view.name: view.desired for view in self.observation.pools}

    @property
    def horizon_s(self) -> float:
        """How far ahead capacity is compared with work: until what is ordered now has arrived and caught up."""
        return self.start_s + self.clear_s

    @property
    def clear_s(self) -> float:
        """How long new replicas may take to catch up."""
        return clear_s(self.start_s)

    @property
    def round_trip_s(self) -> float:
        """What a scale-down commits to: draining, and starting again if it was wrong."""
        return self.start_s + self.drain_s


def clear_s(lead: float) -> float:
    """Catching up faster than in two starts would take replicas that are needless before they have paid for theirs."""
    return max(2 * lead, MIN_CLEAR_S)


_QUANTILE = re.compile(r"_p([1-9][0-9])$")
_OVERDUE_SHARE = 0.25
_JUDGED_ENOUGH = 10
_TOLERATED_WAIT_S = 1.0


def estimate(seen: Observation, known: LearnedState) -> WorkEstimate:
    """Make sense of an observation with what is known."""
    lead = start_s(seen.goal, known)
    roles = dict.fromkeys(pool.role for pool in seen.goal.pools)
    groups = tuple(_group(seen, known, role, lead) for role in roles)
    return WorkEstimate(
        observation=seen,
        groups=groups,
        gaps=gaps_of(seen),
        backlogged=_backlogged(seen, groups),
        idle_s=0.0 if known.idle_since is None else seen.now - known.idle_since,
        burn=worst_burn(seen, None),
        start_s=lead,
        drain_s=drain_s(seen.goal, known),
    )


def gaps_of(seen: Observation) -> tuple[MissingSignal, ...]:
    """What is missing from the picture."""
    silent = any(len(pool.loads) < pool.ready for pool in seen.pools)
    found = {
        MissingSignal.GATEWAYS: seen.demand.heard < max(seen.demand.expected, 1),
        MissingSignal.ENDPOINTS: seen.endpoints_lost,
        MissingSignal.LOAD: silent,
        MissingSignal.OBJECTS: seen.objects_lost,
        MissingSignal.ATTAINMENT: _unknown_attainment(seen),
        MissingSignal.STATE: seen.state_unread,
    }
    return tuple(gap for gap, missing in found.items() if missing)


def worst_burn(seen: Observation, role: Role | None) -> float | None:
    """The fastest-burning budget among the targets that pools of this role answer for; None when nothing was judged."""
    if seen.attainment is None or seen.attainment.result is not QueryResult.VALUE:
        return None
    burns = [burn_of(verdicts) for verdicts in seen.attainment.verdicts if _concerns(verdicts.slo, role)]
    return max((burn for burn in burns if burn is not None), default=None)


def burn_of(verdicts: SloCounts) -> float | None:
    """Share of misses over the share allowed; None for too few requests, or a target that is not a latency quantile."""
    judged = verdicts.good + verdicts.bad
    quantile = _QUANTILE.search(verdicts.slo)
    if quantile is None or judged < _JUDGED_ENOUGH:
        return None
    return verdicts.bad / judged / (1 - int(quantile[1]) / 100)


def _unknown_attainment(seen: Observation) -> bool:
    """Empty and NaN are explained where every gateway says that nobody asked: there was nothing to judge."""
    if not seen.goal.targets:
        return False
    if seen.attainment is None:
        return True
    if seen.attainment.result in {QueryResult.EMPTY, QueryResult.NAN}:
        return any(cls.in_flight or cls.queued or any(f.arrivals for f in cls.flows) for cls in seen.demand.classes)
    return seen.attainment.result is not QueryResult.VALUE


def _concerns(slo: str, role: Role | None) -> bool:
    return role not in ("prefill", "decode") or slo.startswith("e2e") or slo.startswith("ttft") == (role == "prefill")


def _group(seen: Observation, known: LearnedState, role: Role, lead: float) -> RoleEstimate:
    mix = mix_of(seen.demand.classes, known.output_tokens)
    goals = [pool for pool in seen.goal.pools if pool.role == role]
    prices = _prices(seen.goal, goals, known, mix, role)
    costs = {pool.name: prices[pool.name].of(1, mix.prompt_tokens, mix.output_tokens) for pool in goals}
    goals.sort(key=lambda pool: (pool.dollars_per_hour * costs[pool.name], costs[pool.name], pool.name))
    first = goals[0].name
    views = {view.name: view for view in seen.pools}
    columns = tuple(
        PoolEstimate(
            pool, views[pool.name], _ratio(costs[pool.name], costs[first]), _etas(views[pool.name], seen, known, lead)
        )
        for pool in goals
    )
    return RoleEstimate(
        role=role,
        columns=columns,
        known=not prices.keys().isdisjoint(speed.pool for speed in known.speeds),
        demand=work_rate(seen.demand.classes, prices[first], known.output_tokens),
        backlog=_backlog(seen, columns, prices, known, lead + clear_s(lead)),
        burn=worst_burn(seen, role),
    )


def _ratio(cost: float, reference: float) -> float:
    return cost / reference if cost > 0 and reference > 0 else 1.0


def _prices(
    goal: ScalingSpec, pools: list[PoolSpec], known: LearnedState, mix: TokenMix, role: Role
) -> dict[str, TokenCost]:
    """A pool that nobody has measured is taken to be like one that somebody has."""
    tpot = min((target.seconds for target in goal.targets if target.metric == "tpot"), default=None)
    found = {speed.pool: price(speed, mix, tpot, goal.step_tokens, role) for speed in known.speeds}
    default = next((found[pool.name] for pool in pools if pool.name in found), TokenCost(0.0, 0.0))
    return {pool.name: found.get(pool.name, default) for pool in pools}


def _etas(view: PoolStatus, seen: Observation, known: LearnedState, lead: float) -> tuple[float, ...]:
    """One that is overdue is still coming: it is never ordered twice, but it is not believed to be there at once."""
    since = dict(known.starting)
    starting = [replica for replica in view.replicas if replica.state is ReplicaState.STARTING]
    ages = sorted((seen.now - since.get(replica.name, seen.now) for replica in starting), reverse=True)
    pending = max(view.desired - view.ready, 0)
    etas = [max(lead - age, _OVERDUE_SHARE * lead) for age in ages[:pending]]
    return (*etas, *[lead] * (pending - len(etas)))


def _backlog(
    seen: Observation, columns: tuple[PoolEstimate, ...], prices: dict[str, TokenCost], known: LearnedState, soon: float
) -> float:
    reference = prices[columns[0].goal.name]
    queued = 0.0
    for cls in seen.demand.classes:
        waiting = max(cls.queued, cls.held)
        work = reference.of(waiting, _queued_tokens(cls, waiting), output_of(cls, known.output_tokens))
        queued += work * _urgency(cls, seen.goal, soon)
    output = mix_of(seen.demand.classes, known.output_tokens).output_tokens
    inside = sum(
        prices[column.goal.name].of(load.waiting, load.queued_tokens, output) / column.ratio
        for column in columns
        for load in column.view.loads
    )
    return queued + inside


def _queued_tokens(cls: ClassSignals, waiting: int) -> float:
    if not waiting or cls.queued_tokens or not cls.flows or not cls.flows[-1].arrivals:
        return cls.queued_tokens
    return waiting * cls.flows[-1].prompt_tokens / cls.flows[-1].arrivals


def _urgency(cls: ClassSignals, goal: ScalingSpec, soon: float) -> float:
    """Work that has time is cleared only in part by then: time until the promise, else until the queue gives it up."""
    promised = [target.seconds for target in goal.targets if target.cls is cls.name and target.metric == "ttft"]
    slack = min(promised, default=cls.deadline_s)
    return 1.0 if slack is None else min(1.0, soon / max(slack, 1e-9))


def _backlogged(seen: Observation, groups: tuple[RoleEstimate, ...]) -> bool:
    """More waits than the ready replicas do within the strictest TTFT; without a known speed, anything that waits."""
    if any(cls.held for cls in seen.demand.classes):
        return True
    if not all(group.known for group in groups):
        return any(cls.queued for cls in seen.demand.classes) or any(
            load.waiting for p in seen.pools for load in p.loads
        )
    ttfts = [target.seconds for target in seen.goal.targets if target.metric == "ttft"]
    tolerated = min([_TOLERATED_WAIT_S, *ttfts])
    return any(group.backlog > max(group.ready, 1) * tolerated for group in groups)
