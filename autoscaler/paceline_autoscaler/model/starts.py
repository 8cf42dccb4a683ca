"""How long replicas take to start, by pool and kind, and which pools have no capacity. Pure.

A start is cold on a node where the pool has never run: image and weights are fetched first. Where it has, and after a
restart, it is cached. A duration counts as ten times the prior at most, so that one stuck start does not teach that
starts take hours.

An overdue start is expected later the longer it lasts. After twice its usual time it counts as absent, and its pool is
blocked: orders go to other pools until it is tried again, after 1 min at first, then twice as long each time up to
10 min. An order without a replica (a quota refuses the pod) is overdue in the same way. A replica that becomes ready
ends the block.
Hole: if more than 40 replicas start at once the rest is not followed, and is expected as if it had just been ordered.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from paceline_autoscaler.model.series import quantile
from paceline_autoscaler.state import BlockedPool, KnownNode, LearnedState, StartSample
from paceline_autoscaler.types import Observation, PoolStatus, Replica, ScalingSpec, StartKind
from paceline_core.kube import StartStage
from paceline_core.registry.enums import ReplicaState
from paceline_core.units import counted, duration

MAX_SAMPLES = 8
MAX_NAMES = 40
MAX_NODES = 24
CAP = 10.0
OVERDUE_SHARE = 0.25
ABSENT = 2.0
ABSENT_MARGIN_S = 15.0
"""A start is not absent before it is overdue by this, however short starts are."""
BACKOFF_S = 60.0
MAX_BACKOFF_S = 600.0
FORGET_S = 3600.0
"""Failed tries are forgotten this long after the last one."""
_NOT_READY: Mapping[StartStage | None, tuple[str, str]] = {
    StartStage.SCHEDULE: ("has no node", "have no node"),
    StartStage.PULL: ("has no running container", "have no running container"),
    StartStage.LOAD: ("runs but is not ready", "run but are not ready"),
    None: ("is not ready", "are not ready"),
}
"""What one start and what several lack, by the stage that all of them are in."""


@dataclass(frozen=True, slots=True)
class PendingStart:
    """A replica that starts, or an order without one (`name` is empty): its age, and how long such a start takes."""

    name: str
    age_s: float
    usual_s: float
    stage: StartStage | None = None

    @property
    def eta_s(self) -> float:
        """Seconds until it is ready."""
        overdue_s = max(self.age_s - self.usual_s, 0.0)
        return max(self.usual_s - self.age_s, OVERDUE_SHARE * self.usual_s + overdue_s)

    @property
    def limit_s(self) -> float:
        """The age at which it counts as absent."""
        return max(ABSENT * self.usual_s, self.usual_s + ABSENT_MARGIN_S)

    @property
    def absent(self) -> bool:
        return self.age_s > self.limit_s


def start_s(spec: ScalingSpec, state: LearnedState, pool: str, kind: StartKind | None = None) -> float:
    """Seconds from ordering a replica until it is ready: the upper quartile of the pool's last starts, or the prior.

    A start of unknown kind is like the pool's last eight; a kind that has not been seen takes the prior at least.
    """
    seen = [sample for sample in state.starts if sample.pool == pool]
    alike = [sample.seconds for sample in seen if kind in (None, sample.kind)][-MAX_SAMPLES:]
    if not alike and seen:
        return max(spec.start_prior_s, upper_quartile(sample.seconds for sample in seen))
    return max(upper_quartile(alike) if alike else spec.start_prior_s, 1.0)


def pending_starts(spec: ScalingSpec, state: LearnedState, status: PoolStatus, now: float) -> list[PendingStart]:
    """The ordered replicas of a pool that are not ready, oldest first."""
    since = dict(state.starting)
    found = []
    for replica in status.replicas:
        if replica.state is ReplicaState.STARTING:
            began = since.get(replica.name, now)
            usual_s = start_s(spec, state, status.name, _kind(state, status.name, replica, began))
            found.append(PendingStart(replica.name, now - began, usual_s, replica.stage))
    awaited = [ordered for pool, ordered in state.awaited if pool == status.name]
    usual_s = start_s(spec, state, status.name)
    found += [PendingStart("", now - ordered, usual_s) for ordered in awaited]
    pending = max(status.desired - status.ready, 0)
    found += [PendingStart("", 0.0, usual_s)] * (pending - len(found))
    return sorted(found, key=lambda start: -start.age_s)[:pending]


def blocked_pools(state: LearnedState, now: float) -> dict[str, BlockedPool]:
    """The pools that take no orders at `now`, by name."""
    return {block.pool: block for block in state.blocked if now < block.until}


def learn_starts(observation: Observation, state: LearnedState) -> LearnedState:
    """Learn from the starts that ended, follow those that go on, block pools with absent ones."""
    samples = tuple(_ended(observation, state))
    state = replace(
        _followed(observation, state),
        starts=merged_starts(state.starts, samples),
        nodes=_nodes(observation, state),
        awaited=tuple(_awaited(observation, state))[:MAX_NAMES],
    )
    ready = {sample.pool for sample in samples}
    return replace(state, blocked=tuple(_blocks(observation, state, ready)))


def merged_starts(old: tuple[StartSample, ...], new: tuple[StartSample, ...]) -> tuple[StartSample, ...]:
    """Both, oldest first: the last eight of each pool and kind."""
    kept: list[StartSample] = []
    for sample in reversed((*old, *new)):
        if sum((sample.pool, sample.kind) == (other.pool, other.kind) for other in kept) < MAX_SAMPLES:
            kept.append(sample)
    return tuple(reversed(kept))


def _ended(observation: Observation, state: LearnedState) -> Iterator[StartSample]:
    """The starts of replicas that have become ready; one that is ready when first observed took at most its age."""
    since, now, cap_s = dict(state.starting), observation.now, CAP * observation.goal.start_prior_s
    known = {*state.started, *since}
    for pool in observation.pools:
        for replica in pool.replicas:
            if replica.state is not ReplicaState.READY:
                continue
            began = since.get(replica.name)
            if began is not None:
                yield StartSample(pool.name, _kind(state, pool.name, replica, began), min(now - began, cap_s))
            elif replica.name not in known and 0 < replica.age_s < start_s(observation.goal, state, pool.name):
                kind = _kind(state, pool.name, replica, now - replica.age_s)
                yield StartSample(pool.name, kind, min(replica.age_s, cap_s))


def _followed(observation: Observation, state: LearnedState) -> LearnedState:
    replicas, now = [replica for pool in observation.pools for replica in pool.replicas], observation.now
    before = dict(state.starting)
    starting = tuple(
        (replica.name, before.get(replica.name, now if replica.name in state.started else now - replica.age_s))
        for replica in replicas
        if replica.state is ReplicaState.STARTING
    )
    present = {replica.name for replica in replicas}
    ready = [replica.name for replica in replicas if replica.state is ReplicaState.READY]
    started = tuple(name for name in dict.fromkeys((*state.started, *ready)) if name in present)
    return replace(state, starting=starting[:MAX_NAMES], started=started[:MAX_NAMES])


def _nodes(observation: Observation, state: LearnedState) -> tuple[KnownNode, ...]:
    """Where each pool has run, those that run now last."""
    known = {(node.pool, node.name): node for node in state.nodes}
    for pool in observation.pools:
        for replica in pool.replicas:
            if replica.state is ReplicaState.READY:
                node = known.pop((pool.name, replica.node), KnownNode(pool.name, replica.node, observation.now))
                known[pool.name, replica.node] = node
    return tuple(known.values())[-MAX_NODES:]


def _kind(state: LearnedState, pool: str, replica: Replica, began: float) -> StartKind:
    ran = any((node.pool, node.name) == (pool, replica.node) and node.since <= began for node in state.nodes)
    return StartKind.CACHED if ran else StartKind.COLD


def _awaited(observation: Observation, state: LearnedState) -> Iterator[tuple[str, float]]:
    """Since when each order has no replica, by pool; a replica that appears is that of the oldest order."""
    for pool in observation.pools:
        there = pool.count(ReplicaState.READY) + pool.count(ReplicaState.STARTING)
        missing = max(pool.desired - there, 0)
        before = [since for name, since in state.awaited if name == pool.name]
        new = [observation.now] * (missing - len(before))
        yield from ((pool.name, since) for since in [*before, *new][len(before) + len(new) - missing :])


def _blocks(observation: Observation, state: LearnedState, ready: set[str]) -> Iterator[BlockedPool]:
    now, before = observation.now, {block.pool: block for block in state.blocked}
    for pool in observation.pools:
        starts = pending_starts(observation.goal, state, pool, now)
        absent = [start for start in starts if start.absent]
        block = before.get(pool.name)
        if pool.name in ready or (block is not None and not absent and now - block.until > FORGET_S):
            continue
        if absent and (block is None or now >= block.until):
            tries = 1 if block is None else block.tries + 1
            until = now + min(BACKOFF_S * 2 ** (tries - 1), MAX_BACKOFF_S)
            yield BlockedPool(pool.name, until, tries, _why(absent))
        elif block is not None:
            yield block


def _why(absent: list[PendingStart]) -> str:
    limit = duration(float(round(absent[0].limit_s)))
    created = [start for start in absent if start.name]
    names = [start.name for start in created]
    if not names:
        return f"{counted(len(absent), 'ordered replica')} not created within {limit}"
    stages = {start.stage for start in created}
    one, several = _NOT_READY[created[0].stage if len(stages) == 1 else None]
    if len(names) == 1:
        return f"replica {names[0]} {one} after {limit}"
    more = " and others" if len(names) > 3 else ""
    return f"replicas {', '.join(names[:3])}{more} {several} after {limit}"


def upper_quartile(values: Iterable[float]) -> float:
    """The value that three quarters of them do not exceed; there is at least one."""
    return quantile(values, 0.75)
