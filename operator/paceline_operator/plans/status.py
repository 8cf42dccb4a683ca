"""The operator's share of a service's status: what runs, in numbers, and five conditions.

Ready tells whether requests are answered; its observedGeneration moves on only when every Deployment has seen its
present spec, so that `kubectl wait` never believes the counts of an older one. Nothing that is not ours is counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline_core.workload import (
    NO_TROUBLE,
    ConditionValue,
    PoolCounts,
    RunningRevision,
    Status,
    conditions,
    of_replicas,
    progress,
    readiness,
    workload,
)
from paceline_operator.nouns import ObservedChild, PodProblem, ReconcileInput, ReplicaCounts, ServiceFacts

CONDITIONS = ("Accepted", "Ready", "Progressing", "ModelFits", "Degraded")
ROLLING = "RollingOut"
STUCK = "ProgressDeadlineExceeded"
_LIMIT = 1024
_NOTHING_RUNS = ConditionValue("False", "NotAccepted", "Nothing runs: the object is not accepted.")
_NOTHING_MOVES = ConditionValue("False", "NotAccepted", "Nothing changes: the object is not accepted.")


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """What a plan is about to do. `coming`: the first replicas of each pool that has no Deployment yet."""

    pending: bool = False
    coming: tuple[tuple[str, int], ...] = ()
    waits: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _PoolCounts:
    """The Deployments of one service: counts by pool, what is desired over all, and those seen."""

    pools: tuple[PoolCounts, ...]
    desired: int
    seen: tuple[ReplicaCounts, ...]

    @property
    def ready(self) -> int:
        return sum(pool.ready for pool in self.pools)

    @property
    def observed(self) -> bool:
        return all(counts.observed for counts in self.seen)

    @property
    def updated(self) -> int:
        return sum(counts.updated for counts in self.seen)

    @property
    def rolling(self) -> bool:
        return not self.observed or any(counts.updated < counts.total for counts in self.seen)

    @property
    def leaving(self) -> int:
        return sum(max(counts.total - counts.desired, 0) + counts.terminating for counts in self.seen)

    @property
    def settled(self) -> bool:
        return all(counts.settled for counts in self.seen) and self.ready == self.desired


def owned(live: ObservedChild, uid: str) -> bool:
    """Whether this very service is the controller of `live`."""
    return live.owner is not None and live.owner.uid == uid


def status(view: ReconcileInput, facts: ServiceFacts, outlook: RolloutProgress) -> Status:
    """`status` as the operator applies it."""
    standing = _standing(view, facts, dict(outlook.coming))
    before = view.service.get("status") or {}
    degraded = _degraded(standing, view.troubles, outlook.foreign)
    run = _run(view, facts, standing, pending=outlook.pending)
    kept = _told_fit(before) if _serves_older(standing, facts, run) else None
    verdicts = {
        "Accepted": facts.accepted,
        "Ready": _ready(standing, facts, run, degraded),
        "Progressing": _progressing(standing, facts, run, outlook, began=rolls(before)),
        "ModelFits": kept or facts.fits,
        "Degraded": degraded,
    }
    said = conditions(verdicts, before.get("conditions") or (), view.time)
    fresh = standing.observed and not outlook.pending
    older = [kind for kind, so in (("Ready", not fresh), ("ModelFits", kept is not None)) if so]
    return {
        "observedGeneration": facts.generation,
        "conditions": [_generation(one, facts.generation, older, before) for one in said],
        "workload": workload(standing.pools, standing.desired, run, verdicts),
    }


def _generation(condition: Status, generation: int, older: Sequence[str], before: Mapping[str, Any]) -> Status:
    """Conditions that are `older` speak of the generation that they spoke of last."""
    if condition["type"] in older:
        known = _last(before, condition["type"]).get("observedGeneration")
        return condition if known is None else {**condition, "observedGeneration": known}
    return {**condition, "observedGeneration": generation}


def _last(before: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((one for one in before.get("conditions") or () if one["type"] == kind), {})


def _told_fit(before: Mapping[str, Any]) -> ConditionValue | None:
    """What was said of the revision that serves."""
    last = _last(before, "ModelFits")
    return ConditionValue(last["status"], last["reason"], last["message"]) if last else None


def _serves_older(standing: _PoolCounts, facts: ServiceFacts, run: RunningRevision) -> bool:
    """Whether pods of another revision than the spec's serve: a rollout goes on, or the spec is not accepted."""
    return bool(run.rolling_out or (standing.seen and not facts.pools and not facts.workload and run.revision))


def _standing(view: ReconcileInput, facts: ServiceFacts, coming: dict[str, int]) -> _PoolCounts:
    metadata = view.service["metadata"]
    own: dict[str, ObservedChild] = {}
    for place, live in sorted(view.children.items()):
        borrowed = facts.workload and live.key.name == facts.workload
        if place[0] == "Deployment" and (borrowed or owned(live, metadata["uid"])):
            own[live.pool or live.key.name] = live
    names = [*facts.pools, *(name for name in own if name not in facts.pools)]
    pools = tuple(_counts(name, own.get(name), coming.get(name, 0)) for name in names)
    seen = tuple(live.replicas for live in own.values() if live.replicas)
    missing = sum(coming.get(name, 0) for name in facts.pools if name not in own)
    return _PoolCounts(pools, sum(counts.desired for counts in seen) + missing, seen)


def _counts(name: str, live: ObservedChild | None, coming: int) -> PoolCounts:
    if live is None or live.replicas is None:
        return PoolCounts(name, starting=coming)
    counts = live.replicas
    starting = max(counts.desired, counts.total) - counts.ready
    return PoolCounts(name, counts.ready, max(starting, 0), counts.terminating)


def _run(view: ReconcileInput, facts: ServiceFacts, standing: _PoolCounts, *, pending: bool) -> RunningRevision:
    """Until every pod is a new one, the revision that was served before an edit is the one that is told."""
    told = (view.service.get("status") or {}).get("workload") or {}
    before = told.get("revision") or facts.revision
    replaced = facts.revision == before or not (standing.ready and (pending or standing.rolling))
    return RunningRevision(
        revision=facts.revision if replaced else before,
        endpoint=view.settings.endpoint,
        emulated=facts.emulated if replaced else told.get("emulated", False),
        model=facts.model if replaced else told.get("model") or facts.model,
        served_name=facts.served_name if replaced else told.get("servedName") or facts.served_name,
        min_replicas=facts.min_replicas,
        max_replicas=facts.max_replicas,
        rolling_out="" if replaced else facts.revision,
    )


def _ready(
    standing: _PoolCounts, facts: ServiceFacts, run: RunningRevision, degraded: ConditionValue
) -> ConditionValue:
    if not standing.seen and facts.accepted.status == "False" and not facts.pools:
        return _NOTHING_RUNS
    return readiness(standing.ready, standing.desired, degraded, _serving(facts, run))


def _serving(facts: ServiceFacts, run: RunningRevision) -> str:
    if run.rolling_out:
        return f"revision {run.revision} serves until revision {run.rolling_out} has replaced it"
    if not facts.pools and not facts.workload and run.revision:
        return f"revision {run.revision} of the last accepted spec serves"
    return ""


def rolls(before: Mapping[str, Any]) -> bool:
    """Whether what was said last is that a service that answers requests gets a new revision."""
    said = {one["type"]: one for one in before.get("conditions") or ()}
    served = said.get("Ready", {}).get("status") == "True"
    return served and bool(said.get("Progressing", {}).get("reason") == ROLLING)


def _progressing(
    standing: _PoolCounts, facts: ServiceFacts, run: RunningRevision, outlook: RolloutProgress, *, began: bool
) -> ConditionValue:
    """A rollout that began goes on until every replica of the new revision is ready."""
    trouble = next((counts.trouble for counts in standing.seen if counts.trouble), None)
    if outlook.waits:
        return ConditionValue("True", "Waiting", _sentence("; ".join(outlook.waits)))
    if trouble is not None and trouble.reason == STUCK:
        return ConditionValue("False", STUCK, _sentence(trouble.message))
    if not standing.seen and not facts.pools:
        return _NOTHING_MOVES
    if outlook.pending or standing.rolling or (began and standing.ready < standing.desired):
        done = of_replicas(min(standing.updated, standing.desired), standing.desired)
        model = f", whose model is {facts.model}" if facts.model != run.model else ""
        return ConditionValue("True", ROLLING, _sentence(f"{done} of the revision {facts.revision}{model}"))
    return progress(standing.ready, standing.desired, settled=standing.settled, leaving=standing.leaving)


def _degraded(standing: _PoolCounts, pods: Sequence[PodProblem], foreign: Sequence[str]) -> ConditionValue:
    if foreign:
        message = f"{', '.join(foreign)} belongs to somebody else; delete or rename it, or rename this service."
        return ConditionValue("True", "ForeignChild", message)
    own = [counts.trouble for counts in standing.seen if counts.trouble]
    troubles = [*own, *sorted(pods, key=lambda trouble: (-trouble.pods, trouble.reason, trouble.pool))]
    if not troubles:
        return NO_TROUBLE
    telling = next((one for one in troubles if one.reason != STUCK), troubles[0])
    return ConditionValue("True", telling.reason, "; ".join(dict.fromkeys(_told(one) for one in troubles))[:_LIMIT])


def _told(trouble: PodProblem) -> str:
    pool = f" in pool {trouble.pool}" if trouble.pool else ""
    count = f"{trouble.pods} pods{pool}: " if trouble.pods > 1 else f"1 pod{pool}: " if pool else ""
    return f"{count}{trouble.reason}: {trouble.message}" if trouble.message else f"{count}{trouble.reason}"


def _sentence(text: str) -> str:
    return (text if text.endswith(".") else f"{text}.")[:_LIMIT]
