"""From an observation to a picture: tokens become work, pools of one role are put together, gaps are named. Pure."""

import re

from paceline_autoscaler.capacity import TokenCost, TokenMix, mix_of, output_of, price, work_rate
from paceline_autoscaler.memory import drain_s, start_s
from paceline_autoscaler.nouns import (
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
from paceline_autoscaler.picture import PoolEstimate, RoleEstimate, WorkEstimate, clear_s
from paceline_core.registry.enums import QueryResult, ReplicaState

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
