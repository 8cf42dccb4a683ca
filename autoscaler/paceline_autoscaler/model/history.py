"""What is remembered between decisions: how long starts and drains take, past peaks of demand, how fast replicas are.

Pure functions from what is seen and what was known to what is known now. Everything has a fixed size, so the whole
state fits a ConfigMap, and nothing here acts: it only makes the next decision better informed. What follows a time in
which nobody looked (a restart, an API server that is gone) counts as seen from then on: a peak may have been missed.
Hole: of more than 40
replicas in one state the rest is not followed, so their starts teach nothing and a restart passes for a long start.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil, exp, floor

from paceline_autoscaler.model.capacity import speed_of
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
BLIND_S = 15.0
_KEPT = 8
_NAMES = 40
_PEAKS = 32


@dataclass(frozen=True, slots=True)
class DemandSample:
    """What one pass adds to a memory. `complete`: every gateway was heard."""

    now: float
    rate: float
    ready: int
    complete: bool


def learn(seen: Observation, known: LearnedState) -> LearnedState:
    """Fold one observation into the state."""
    if known.policy != seen.goal.policy:
        known = replace(known, policy=seen.goal.policy, memories=())
    if seen.now - known.at > BLIND_S:
        known = _awoken(known)
    if not seen.endpoints_lost:
        known = _drains(seen, _starts(seen, known))
    return replace(
        known,
        at=seen.now,
        idle_since=_idle_since(seen, known),
        output_tokens=_output_tokens(seen.demand.classes, known.output_tokens),
        speeds=_speeds(seen, known),
    )


def _awoken(known: LearnedState) -> LearnedState:
    """Nobody looked for a while: what was concluded from looking all the time holds no more."""
    memories = tuple(replace(memory, complete_since=None) for memory in known.memories)
    return replace(known, idle_since=None, memories=memories)


def start_s(goal: ScalingSpec, known: LearnedState) -> float:
    """Seconds from ordering a replica to its first token: the upper quartile of what was seen, or the prior."""
    return max(_upper_quartile(known.starts_s, goal.start_prior_s), 1.0)


def drain_s(goal: ScalingSpec, known: LearnedState) -> float:
    """Seconds from the order to leave until a replica is gone; never more than it is allowed."""
    return min(_upper_quartile(known.drains_s, DRAIN_PRIOR_S), goal.drain_limit_s)


def memory_of(known: LearnedState, role: Role) -> DemandHistory:
    """What is remembered of the pools of a role."""
    return next((memory for memory in known.memories if memory.role == role), DemandHistory(role))


def with_memory(known: LearnedState, memory: DemandHistory) -> LearnedState:
    """The state with a role's memory replaced."""
    others = tuple(other for other in known.memories if other.role != memory.role)
    return replace(known, memories=(*others, memory))


def record_demand(memory: DemandHistory, moment: DemandSample, window_s: float) -> DemandHistory:
    """Fold one moment in: the peak of the window, since when it is complete, since when supply is what it is."""
    now = moment.now
    since = memory.complete_since if memory.complete_since is not None else now
    return replace(
        memory,
        peaks=_peaks(memory.peaks, now, moment.rate, window_s),
        complete_since=since if moment.complete else None,
        ready=moment.ready,
        supply_since=memory.supply_since if memory.ready == moment.ready else now,
        derate=_recovered(memory, now),
        derate_at=now,
    )


def joined(stored: LearnedState, since: LearnedState) -> LearnedState:
    """What an earlier process stored, and what was learned here until that could be read."""
    if since == LearnedState():
        return stored
    old = {memory.role: memory for memory in stored.memories} if stored.policy == since.policy else {}
    return replace(
        since,
        starts_s=(*stored.starts_s, *since.starts_s)[-_KEPT:],
        drains_s=(*stored.drains_s, *since.drains_s)[-_KEPT:],
        starting=_earlier(stored.starting, since.starting),
        started=tuple(dict.fromkeys((*stored.started, *since.started)))[:_NAMES],
        draining=_earlier(stored.draining, since.draining),
        output_tokens=stored.output_tokens if since.output_tokens is None else since.output_tokens,
        speeds=tuple({speed.pool: speed for speed in (*stored.speeds, *since.speeds)}.values()),
        memories=tuple(_joined(old.get(memory.role, memory), memory) for memory in since.memories),
    )


def _earlier(
    stored: tuple[tuple[str, float], ...], since: tuple[tuple[str, float], ...]
) -> tuple[tuple[str, float], ...]:
    """Who is at it now, each since the earlier of two times."""
    known = dict(stored)
    return tuple((name, min(at, known.get(name, at))) for name, at in since)


def _joined(old: DemandHistory, new: DemandHistory) -> DemandHistory:
    """The higher peaks that came before, and the more careful word on how fast replicas are."""
    newest = new.peaks[:1]
    before = tuple(peak for peak in old.peaks if all(peak.at < one.at and peak.rate > one.rate for one in newest))
    return replace(new, peaks=(*before, *new.peaks), derate=min(new.derate, _recovered(old, new.derate_at)))


def _recovered(memory: DemandHistory, now: float) -> float:
    """The derate, on its way back to 1."""
    return 1 - (1 - memory.derate) * exp(-max(now - memory.derate_at, 0.0) / DERATE_RECOVERY_S)


def peak(memory: DemandHistory) -> float:
    """The highest rate of the window."""
    return max((peak.rate for peak in memory.peaks), default=0.0)


def covered_s(memory: DemandHistory, now: float) -> float:
    """For how long the picture has been whole."""
    return 0.0 if memory.complete_since is None else now - memory.complete_since


def _peaks(peaks: tuple[DemandPeak, ...], now: float, rate: float, window_s: float) -> tuple[DemandPeak, ...]:
    """A sliding maximum: only what may still become the maximum is kept, at most one peak a bin, newest last."""
    width = max(window_s / _PEAKS, 1e-3)
    at = (floor(now / width) + 1) * width
    alive = [peak for peak in peaks if now - window_s <= peak.at <= at and peak.rate > rate]
    if alive and alive[-1].at == at:
        return tuple(alive)
    return (*alive, DemandPeak(at, rate))


def _starts(seen: Observation, known: LearnedState) -> LearnedState:
    replicas = [replica for pool in seen.pools for replica in pool.replicas]
    before = dict(known.starting)
    ready = _named(replicas, ReplicaState.READY)
    took = [seen.now - before[name] for name in ready if name in before]
    took += _unseen(replicas, known, start_s(seen.goal, known))
    starting = tuple(
        (
            replica.name,
            before.get(replica.name, seen.now if replica.name in known.started else seen.now - replica.age_s),
        )
        for replica in replicas
        if replica.state is ReplicaState.STARTING
    )
    present = {replica.name for replica in replicas}
    started = tuple(name for name in dict.fromkeys((*known.started, *ready)) if name in present)
    return replace(
        known, starts_s=(*known.starts_s, *took)[-_KEPT:], starting=starting[:_NAMES], started=started[:_NAMES]
    )


def _unseen(replicas: Iterable[Replica], known: LearnedState, usual_s: float) -> list[float]:
    """Starts that fell between two passes: who is ready when first seen took no longer than its age."""
    met = {*known.started, *(name for name, _ in known.starting)}
    fresh = [replica for replica in replicas if replica.state is ReplicaState.READY and replica.name not in met]
    return [replica.age_s for replica in fresh if 0 < replica.age_s < usual_s]


def _drains(seen: Observation, known: LearnedState) -> LearnedState:
    replicas = [replica for pool in seen.pools for replica in pool.replicas]
    before, leaving = dict(known.draining), _named(replicas, ReplicaState.DRAINING)
    present = {replica.name for replica in replicas}
    took = [seen.now - since for name, since in known.draining if name not in present]
    draining = tuple((name, before.get(name, seen.now)) for name in leaving)
    return replace(known, drains_s=(*known.drains_s, *took)[-_KEPT:], draining=draining[:_NAMES])


def _named(replicas: Iterable[Replica], state: ReplicaState) -> list[str]:
    return [replica.name for replica in replicas if replica.state is state]


def _idle_since(seen: Observation, known: LearnedState) -> float | None:
    if seen.demand.heard < max(seen.demand.expected, 1) or any(_active(cls) for cls in seen.demand.classes):
        return None
    return known.idle_since if known.idle_since is not None else seen.now


def _active(cls: ClassSignals) -> bool:
    return bool(cls.queued or cls.held or cls.in_flight or (cls.flows and cls.flows[0].arrivals > 0))


def _output_tokens(classes: Iterable[ClassSignals], known: float | None) -> float | None:
    told = [(cls.output_tokens, max(cls.flows[-1].arrivals, 1e-9)) for cls in classes if cls.output_tokens is not None]
    if not told:
        return known
    return sum(tokens * weight for tokens, weight in told) / sum(weight for _, weight in told)


def _speeds(seen: Observation, known: LearnedState) -> tuple[PoolSpeed, ...]:
    before = {speed.pool: speed for speed in known.speeds}
    now = {pool.name: speed_of(pool.name, pool.loads) or before.get(pool.name) for pool in seen.pools}
    return tuple(speed for speed in now.values() if speed is not None)


def _upper_quartile(values: tuple[float, ...], prior: float) -> float:
    return sorted(values)[ceil(0.75 * len(values)) - 1] if values else prior
