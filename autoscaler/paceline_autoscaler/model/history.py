"""Learn between decisions: how long drains take, past peaks of demand, how fast replicas are. Pure.

Everything has a fixed size, so the whole state fits a ConfigMap. After a gap between observations (a restart, an
unreachable API server) conclusions that need continuous data are discarded: a peak may have been missed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import exp, floor

from paceline_autoscaler.model.capacity import speed_of
from paceline_autoscaler.model.starts import (
    MAX_NAMES,
    MAX_NODES,
    MAX_SAMPLES,
    learn_starts,
    merged_starts,
    upper_quartile,
)
from paceline_autoscaler.types import (
    ClassSignals,
    DemandHistory,
    DemandPeak,
    LearnedState,
    Observation,
    PoolSpeed,
    Replica,
    Role,
    ScalingSpec,
)
from paceline_core.registry.enums import ReplicaState

DRAIN_PRIOR_S = 30.0
DERATE_RECOVERY_S = 2 * 3600.0
MAX_GAP_S = 15.0
_MAX_PEAKS = 32
_SPEED_NEWS = 0.05
_DERATE_NEWS = 0.01
_TYPICAL_PROMPT = 1024


@dataclass(frozen=True, slots=True)
class DemandSample:
    """What one pass adds to a history. `complete`: every gateway has reported; `behind`: work or a start is pending."""

    now: float
    rate: float
    ready: int
    complete: bool
    backlog: float = 0.0
    behind: bool = False


def learn(observation: Observation, state: LearnedState) -> LearnedState:
    if state.policy != observation.goal.policy:
        state = replace(state, policy=observation.goal.policy, memories=())
    if observation.now - state.at > MAX_GAP_S:  # discard conclusions that assume continuous data
        memories = tuple(replace(history, complete_since=None) for history in state.memories)
        state = replace(state, idle_since=None, memories=memories)
    if not observation.endpoints_lost:
        state = _silences(observation, _drains(observation, learn_starts(observation, state)))
    before = {speed.pool: speed for speed in state.speeds}
    speeds = [speed_of(pool.name, pool.loads) or before.get(pool.name) for pool in observation.pools]
    return replace(
        state,
        at=observation.now,
        idle_since=_idle_since(observation, state),
        output_tokens=_output_tokens(observation.demand.classes, state.output_tokens),
        speeds=tuple(speed for speed in speeds if speed is not None),
    )


def drain_s(spec: ScalingSpec, state: LearnedState) -> float:
    """Seconds that a drain takes: the upper quartile of observed drains, at most the limit."""
    usual_s = upper_quartile(state.drains_s) if state.drains_s else DRAIN_PRIOR_S
    return min(usual_s, spec.drain_limit_s)


def history_of(state: LearnedState, role: Role) -> DemandHistory:
    return next((history for history in state.memories if history.role == role), DemandHistory(role))


def with_history(state: LearnedState, history: DemandHistory) -> LearnedState:
    others = tuple(other for other in state.memories if other.role != history.role)
    return replace(state, memories=(*others, history))


def record_demand(history: DemandHistory, sample: DemandSample, window_s: float) -> DemandHistory:
    """Add a sample: updates the window's peak, since when data are complete, and since when supply is unchanged."""
    now = sample.now
    since = history.complete_since if history.complete_since is not None else now
    if history.ready != sample.ready:
        history = replace(history, ready=sample.ready, supply_since=now, backlog=sample.backlog, caught_up_at=None)
    if history.caught_up_at is None and sample.complete and not sample.behind:
        history = replace(history, caught_up_at=now)
    return replace(
        history,
        peaks=_peaks(history.peaks, now, sample.rate, window_s),
        complete_since=since if sample.complete else None,
        derate=_recovered(history, now),
        derate_at=now,
    )


def merge_states(stored: LearnedState, recent: LearnedState) -> LearnedState:
    """Merge an earlier process's stored state with what was learned until it could be read."""
    if recent == LearnedState():
        return stored
    old = {history.role: history for history in stored.memories} if stored.policy == recent.policy else {}
    memories = []
    for new in recent.memories:  # keep the earlier, higher peaks and the lower derate
        was, newest = old.get(new.role, new), new.peaks[:1]
        before = tuple(peak for peak in was.peaks if all(peak.at < one.at and peak.rate > one.rate for one in newest))
        derate = min(new.derate, _recovered(was, new.derate_at))
        memories.append(replace(new, peaks=(*before, *new.peaks), derate=derate))
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
        speeds=tuple({speed.pool: speed for speed in (*stored.speeds, *recent.speeds)}.values()),
        memories=tuple(memories),
    )


def worth_storing(stored: LearnedState, state: LearnedState) -> bool:
    """Whether a state says something that a crash must not lose, compared with the stored one.

    After a crash the stored state may be old. Starts, drains, who is starting, draining or silent, the supply, the
    policy and derates are news at once. Speeds are, once a typical step takes 5 % more or less, which a fit on one
    step after a restart outdoes. Everything else may be as old as it likes. Peaks, `complete_since` and `idle_since`
    of a crash are discarded in any case, since it takes longer than MAX_GAP_S to be replaced: the cooldown and the
    idle time begin again, and no replica is removed meanwhile. Gateways repeat `output_tokens` with their first report.
    A missing `caught_up_at` is found again later than it was, so that less is learned from attainment, not more.
    """
    if _occurrences(stored) != _occurrences(state):
        return True
    before = {speed.pool: speed for speed in stored.speeds}
    if any(speed.pool not in before or _faster_or_slower(before[speed.pool], speed) for speed in state.speeds):
        return True
    known = {history.role: history for history in stored.memories}
    return any(
        abs(history.derate - _recovered(known[history.role], history.derate_at)) > _DERATE_NEWS
        for history in state.memories
    )


def _occurrences(state: LearnedState) -> tuple[object, ...]:
    """What has happened, not what is measured; `memories` has the same roles wherever this is equal."""
    supply = sorted((history.role, history.ready, history.supply_since) for history in state.memories)
    since = (state.starting, state.started, state.draining, state.silent)
    return state.policy, state.starts, state.nodes, state.blocked, state.drains_s, since, supply


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


def _recovered(history: DemandHistory, now: float) -> float:
    return 1 - (1 - history.derate) * exp(-max(now - history.derate_at, 0.0) / DERATE_RECOVERY_S)


def peak(history: DemandHistory) -> float:
    """The highest rate of the window."""
    return max((peak.rate for peak in history.peaks), default=0.0)


def covered_s(history: DemandHistory, now: float) -> float:
    """For how long every gateway has reported."""
    return 0.0 if history.complete_since is None else now - history.complete_since


def _peaks(peaks: tuple[DemandPeak, ...], now: float, rate: float, window_s: float) -> tuple[DemandPeak, ...]:
    """A sliding maximum: keeps only peaks that may still become the maximum, at most one for each bin, newest last."""
    width = max(window_s / _MAX_PEAKS, 1e-3)
    at = (floor(now / width) + 1) * width
    live = [peak for peak in peaks if now - window_s <= peak.at <= at and peak.rate > rate]
    if live and live[-1].at == at:
        return tuple(live)
    return (*live, DemandPeak(at, rate))


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
    return sum(tokens * weight for tokens, weight in samples) / sum(weight for _, weight in samples)
