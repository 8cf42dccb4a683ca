"""Learn between decisions: how long drains take, how long answers are, how fast replicas are. Pure.

Everything has a fixed size, so the whole state fits a ConfigMap. After a gap between observations (a restart, an
unreachable API server) conclusions that need continuous data are discarded.
"""

from collections.abc import Iterable
from dataclasses import astuple, replace
from math import exp, fsum

from paceline_autoscaler.model.capacity import speed_of
from paceline_autoscaler.model.starts import (
    MAX_NAMES,
    MAX_NODES,
    MAX_SAMPLES,
    learn_starts,
    merged_starts,
    upper_quartile,
)
from paceline_autoscaler.state import LearnedState, PoolSpeed, State
from paceline_autoscaler.types import (
    DEMAND_WINDOWS_S,
    ClassSignals,
    CompletedRequests,
    Observation,
    Replica,
    ScalingSpec,
)
from paceline_core.registry.enums import ReplicaState

DRAIN_PRIOR_S = 30.0
MAX_GAP_S = 15.0
LENGTHS_S = 300.0
"""How long the lengths of a completed request count, on average."""
_SPEED_NEWS = 0.05
_TYPICAL_PROMPT = 1024


def learn(observation: Observation, state: State) -> State:
    """What all policies learn from an observation; another policy begins without a state of its own."""
    own = state.own if state.policy == observation.goal.policy else None
    learned = state.learned
    if observation.now - learned.at > MAX_GAP_S:
        learned = replace(learned, idle_since=None)
        own = None if own is None else own.interrupted()
    return State(observation.goal.policy, _learned(observation, learned), own)


def _learned(observation: Observation, state: LearnedState) -> LearnedState:
    if not observation.endpoints_lost:
        state = _silences(observation, _drains(observation, learn_starts(observation, state)))
    before = {speed.pool: speed for speed in state.speeds}
    speeds = [speed_of(pool.name, pool.loads) or before.get(pool.name) for pool in observation.pools]
    return replace(
        state,
        at=observation.now,
        idle_since=_idle_since(observation, state),
        output_tokens=_output_tokens(observation.demand.classes, state.output_tokens),
        completed=_completed(observation, state),
        speeds=tuple(speed for speed in speeds if speed is not None),
    )


def drain_s(spec: ScalingSpec, state: LearnedState) -> float:
    """Seconds that a drain takes: the upper quartile of observed drains, at most the limit."""
    usual_s = upper_quartile(state.drains_s) if state.drains_s else DRAIN_PRIOR_S
    return min(usual_s, spec.drain_limit_s)


def merge_states(stored: State, recent: State) -> State:
    """Merge an earlier process's stored state with what was learned until it could be read."""
    if recent == State():
        return stored
    own = recent.own
    if own is not None and stored.own is not None and stored.policy == recent.policy:
        own = stored.own.merged(own)
    return State(recent.policy, _merged(stored.learned, recent.learned), own)


def _merged(stored: LearnedState, recent: LearnedState) -> LearnedState:
    return replace(
        recent,
        starts=merged_starts(stored.starts, recent.starts),
        nodes=tuple({(node.pool, node.name): node for node in (*recent.nodes, *stored.nodes)}.values())[-MAX_NODES:],
        blocked=tuple({block.pool: block for block in (*stored.blocked, *recent.blocked)}.values()),
        drains_s=(*stored.drains_s, *recent.drains_s)[-MAX_SAMPLES:],
        starting=_earlier(stored.starting, recent.starting),
        started=tuple(dict.fromkeys((*stored.started, *recent.started)))[:MAX_NAMES],
        draining=_earlier(stored.draining, recent.draining),
        silent=_earlier(stored.silent, recent.silent),
        output_tokens=stored.output_tokens if recent.output_tokens is None else recent.output_tokens,
        completed=stored.completed if recent.completed is None else recent.completed,
        speeds=tuple({speed.pool: speed for speed in (*stored.speeds, *recent.speeds)}.values()),
    )


def worth_storing(stored: State, state: State) -> bool:
    """Whether a state says something that a crash must not lose, compared with the stored one.

    After a crash the stored state may be old. Starts, drains, who is starting, draining or silent, the policy and what
    it finds worth storing are news at once. Speeds are, once a typical step takes 5 % more or less, which a fit on one
    step after a restart outdoes. Everything else may be as old as it likes. `idle_since` of a crash is discarded in any
    case, since it takes longer than MAX_GAP_S to be replaced: the idle time begins again, and no replica is removed
    meanwhile. Gateways repeat `output_tokens` with their first report.
    """
    if stored.policy != state.policy or _occurrences(stored.learned) != _occurrences(state.learned):
        return True
    before = {speed.pool: speed for speed in stored.learned.speeds}
    if any(speed.pool not in before or _faster_or_slower(before[speed.pool], speed) for speed in state.learned.speeds):
        return True
    return state.own is not None and (stored.own is None or state.own.worth_storing(stored.own))


def _occurrences(state: LearnedState) -> tuple[object, ...]:
    """What has happened, not what is measured."""
    since = (state.starting, state.started, state.draining, state.silent)
    return state.starts, state.nodes, state.blocked, state.drains_s, since


def _faster_or_slower(before: PoolSpeed, now: PoolSpeed) -> bool:
    """Whether a step that prefills a typical prompt, or that decodes in every slot, takes another time than before."""
    times = zip(_typical_steps_s(before), _typical_steps_s(now), strict=True)
    return any(abs(new - old) > _SPEED_NEWS * old for old, new in times)


def _typical_steps_s(speed: PoolSpeed) -> tuple[float, float]:
    step, prompt = speed.step_time, _TYPICAL_PROMPT
    return (
        step.seconds(prefill_tokens=prompt, sequences=0, kv_tokens=0, context=prompt),
        step.seconds(prefill_tokens=0, sequences=speed.slots, kv_tokens=speed.kv_tokens // 2),
    )


def _earlier(
    stored: tuple[tuple[str, float], ...], recent: tuple[tuple[str, float], ...]
) -> tuple[tuple[str, float], ...]:
    known = dict(stored)
    return tuple((name, min(at, known.get(name, at))) for name, at in recent)


def _drains(observation: Observation, state: LearnedState) -> LearnedState:
    replicas = [replica for pool in observation.pools for replica in pool.replicas]
    before, leaving = dict(state.draining), _named(replicas, ReplicaState.DRAINING)
    present = {replica.name for replica in replicas}
    took = [observation.now - since for name, since in state.draining if name not in present]
    draining = tuple((name, before.get(name, observation.now)) for name in leaving)
    return replace(state, drains_s=(*state.drains_s, *took)[-MAX_SAMPLES:], draining=draining[:MAX_NAMES])


def _silences(observation: Observation, state: LearnedState) -> LearnedState:
    since = dict(state.silent)
    silent = tuple((name, since.get(name, observation.now)) for pool in observation.pools for name in pool.silent)
    return replace(state, silent=silent[:MAX_NAMES])


def _named(replicas: Iterable[Replica], state: ReplicaState) -> list[str]:
    return [replica.name for replica in replicas if replica.state is state]


def _idle_since(observation: Observation, state: LearnedState) -> float | None:
    demand = observation.demand
    active = any(
        cls.queued or cls.held or cls.in_flight or (cls.flows and cls.flows[0].arrivals > 0) for cls in demand.classes
    )
    if active or demand.heard < max(demand.expected, 1):
        return None
    return state.idle_since if state.idle_since is not None else observation.now


def _output_tokens(classes: Iterable[ClassSignals], known: float | None) -> float | None:
    samples = [
        (cls.output_tokens, max(cls.flows[-1].arrivals, 1e-9)) for cls in classes if cls.output_tokens is not None
    ]
    if not samples:
        return known
    return fsum(tokens * weight for tokens, weight in samples) / fsum(weight for _, weight in samples)


def _completed(observation: Observation, state: LearnedState) -> CompletedRequests | None:
    """With what was completed since the last update; older requests count ever less."""
    passed_s = min(observation.now - state.at, DEMAND_WINDOWS_S[-1])
    found = [cls.completed for cls in observation.demand.classes if cls.completed is not None]
    if not found or passed_s <= 0:
        return state.completed
    kept, new = exp(-passed_s / LENGTHS_S), passed_s / DEMAND_WINDOWS_S[-1]
    known = [(state.completed, kept)] if state.completed is not None else []
    return _weighted([*known, *((one, new) for one in found)])


def _weighted(parts: Iterable[tuple[CompletedRequests, float]]) -> CompletedRequests:
    rows = [[weight * value for value in astuple(completed)] for completed, weight in parts]
    return CompletedRequests(*(fsum(column) for column in zip(*rows, strict=True)))
