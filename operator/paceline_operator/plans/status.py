"""The operator's share of a service's status: what runs, in numbers, and five conditions.

Ready reports whether requests are answered; its observedGeneration advances only when every Deployment has observed its
present spec, so that `kubectl wait` never accepts the counts of an older one. Unmanaged objects do not count.

A first status that is not final and mere counters are written a little later than news. A service that settles within
HOLD_S of being first observed costs one write instead of four. Many that start at once wait for each other (for
scheduler, registry and API server), so each of them waits TURN_S longer. Hole: a counter that goes up and down again
within COALESCE_S is never reported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from paceline_core.objects.workload_status import (
    NO_PROBLEM,
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
from paceline_operator.plans.types import (
    ObservedChild,
    PodProblem,
    ReconcileInput,
    ReplicaCounts,
    ServiceFacts,
)

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
    unmanaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _PoolCounts:
    """The Deployments of one service: counts by pool, the total of desired replicas, and those seen."""

    pools: tuple[PoolCounts, ...]
    desired: int
    deployments: tuple[ReplicaCounts, ...]

    @property
    def ready(self) -> int:
        return sum(pool.ready for pool in self.pools)

    @property
    def observed(self) -> bool:
        return all(counts.observed for counts in self.deployments)

    @property
    def updated(self) -> int:
        return sum(counts.updated for counts in self.deployments)

    @property
    def rolling(self) -> bool:
        return not self.observed or any(counts.updated < counts.total for counts in self.deployments)

    @property
    def leaving(self) -> int:
        return sum(max(counts.total - counts.desired, 0) + counts.terminating for counts in self.deployments)

    @property
    def settled(self) -> bool:
        return all(counts.settled for counts in self.deployments) and self.ready == self.desired


def owned(live: ObservedChild, uid: str) -> bool:
    """Whether this exact service is the controller of `live`."""
    return live.owner is not None and live.owner.uid == uid


def status(view: ReconcileInput, facts: ServiceFacts, rollout: RolloutProgress) -> Status:
    deployed = _deployed(view, facts, dict(rollout.coming))
    before = view.service.get("status") or {}
    degraded = _degraded(deployed, view.problems, rollout.unmanaged)
    run = _run(view, facts, deployed, pending=rollout.pending)
    # whether pods of another revision than the spec's serve: a rollout continues, or the spec is not accepted
    refused = deployed.deployments and not facts.pools and not facts.workload and run.revision
    older_fit, last = None, _last(before, "ModelFits")
    if last and (run.rolling_out or refused):
        older_fit = ConditionValue(last["status"], last["reason"], last["message"])
    verdicts = {
        "Accepted": facts.accepted,
        "Ready": _ready(deployed, facts, run, degraded),
        "Progressing": _progressing(deployed, facts, run, rollout, began=rolls(before)),
        "ModelFits": older_fit or facts.fits,
        "Degraded": degraded,
    }
    updated = conditions(verdicts, before.get("conditions") or (), view.time)
    fresh = deployed.observed and not rollout.pending
    older = [kind for kind, so in (("Ready", not fresh), ("ModelFits", older_fit is not None)) if so]
    shown = []
    for one in updated:
        known = _last(before, one["type"]).get("observedGeneration") if one["type"] in older else facts.generation
        shown.append(one if known is None else {**one, "observedGeneration": known})
    return {
        "observedGeneration": facts.generation,
        "conditions": shown,
        "workload": workload(deployed.pools, deployed.desired, run, verdicts),
    }


def _last(before: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((one for one in before.get("conditions") or () if one["type"] == kind), {})


def _deployed(view: ReconcileInput, facts: ServiceFacts, coming: dict[str, int]) -> _PoolCounts:
    metadata = view.service["metadata"]
    own: dict[str, ObservedChild] = {}
    for place, live in sorted(view.children.items()):
        borrowed = facts.workload and live.key.name == facts.workload
        if place[0] == "Deployment" and (borrowed or owned(live, metadata["uid"])):
            own[live.pool or live.key.name] = live
    names = [*facts.pools, *(name for name in own if name not in facts.pools)]
    pools = []
    for name in names:
        counts = own[name].replicas if name in own else None
        if counts is None:
            pools.append(PoolCounts(name, starting=coming.get(name, 0)))
        else:
            starting = max(counts.desired, counts.total) - counts.ready
            pools.append(PoolCounts(name, counts.ready, max(starting, 0), counts.terminating))
    deployments = tuple(live.replicas for live in own.values() if live.replicas)
    missing = sum(coming.get(name, 0) for name in facts.pools if name not in own)
    return _PoolCounts(tuple(pools), sum(counts.desired for counts in deployments) + missing, deployments)


def _run(view: ReconcileInput, facts: ServiceFacts, deployed: _PoolCounts, *, pending: bool) -> RunningRevision:
    """Until every pod is a new one, the revision that was served before an edit is the one that is reported."""
    reported = (view.service.get("status") or {}).get("workload") or {}
    before = reported.get("revision") or facts.revision
    replaced = facts.revision == before or not (deployed.ready and (pending or deployed.rolling))
    return RunningRevision(
        revision=facts.revision if replaced else before,
        endpoint=view.settings.endpoint,
        emulated=facts.emulated if replaced else reported.get("emulated", False),
        model=facts.model if replaced else reported.get("model") or facts.model,
        served_name=facts.served_name if replaced else reported.get("servedName") or facts.served_name,
        min_replicas=facts.min_replicas,
        max_replicas=facts.max_replicas,
        rolling_out="" if replaced else facts.revision,
    )


def _ready(
    deployed: _PoolCounts, facts: ServiceFacts, run: RunningRevision, degraded: ConditionValue
) -> ConditionValue:
    if not deployed.deployments and facts.accepted.status == "False" and not facts.pools:
        return _NOTHING_RUNS
    serving = ""
    if run.rolling_out:
        serving = f"revision {run.revision} serves until revision {run.rolling_out} has replaced it"
    elif not facts.pools and not facts.workload and run.revision:
        serving = f"revision {run.revision} of the last accepted spec serves"
    return readiness(deployed.ready, deployed.desired, degraded, serving)


def rolls(before: Mapping[str, Any]) -> bool:
    """Whether the last status shows a new revision of a service that answers requests."""
    last = {one["type"]: one for one in before.get("conditions") or ()}
    served = last.get("Ready", {}).get("status") == "True"
    return served and bool(last.get("Progressing", {}).get("reason") == ROLLING)


def _progressing(
    deployed: _PoolCounts, facts: ServiceFacts, run: RunningRevision, rollout: RolloutProgress, *, began: bool
) -> ConditionValue:
    """A rollout that has begun continues until every replica of the new revision is ready."""
    problem = next((counts.problem for counts in deployed.deployments if counts.problem), None)
    if rollout.waits:
        return ConditionValue("True", "Waiting", _sentence("; ".join(rollout.waits)))
    if problem is not None and problem.reason == STUCK:
        return ConditionValue("False", STUCK, _sentence(problem.message))
    if not deployed.deployments and not facts.pools:
        return _NOTHING_MOVES
    if rollout.pending or deployed.rolling or (began and deployed.ready < deployed.desired):
        done = of_replicas(min(deployed.updated, deployed.desired), deployed.desired)
        model = f", whose model is {facts.model}" if facts.model != run.model else ""
        return ConditionValue("True", ROLLING, _sentence(f"{done} of the revision {facts.revision}{model}"))
    return progress(deployed.ready, deployed.desired, settled=deployed.settled, leaving=deployed.leaving)


def _degraded(deployed: _PoolCounts, pods: Sequence[PodProblem], unmanaged: Sequence[str]) -> ConditionValue:
    if unmanaged:
        message = (
            f"{', '.join(unmanaged)} is managed by another controller; delete or rename it, or rename this service."
        )
        return ConditionValue("True", "ForeignChild", message)
    own = [counts.problem for counts in deployed.deployments if counts.problem]
    problems = [*own, *sorted(pods, key=lambda problem: (-problem.pods, problem.reason, problem.pool))]
    if not problems:
        return NO_PROBLEM
    first = next((one for one in problems if one.reason != STUCK), problems[0])
    texts: dict[str, None] = {}
    for one in problems:
        pool = f" in pool {one.pool}" if one.pool else ""
        count = f"{one.pods} pods{pool}: " if one.pods > 1 else f"1 pod{pool}: " if pool else ""
        texts[f"{count}{one.reason}: {one.message}" if one.message else f"{count}{one.reason}"] = None
    return ConditionValue("True", first.reason, "; ".join(texts)[:_LIMIT])


def _sentence(text: str) -> str:
    return (text if text.endswith(".") else f"{text}.")[:_LIMIT]


HOLD_S: Final = 1.0
TURN_S: Final = 0.1
COALESCE_S: Final = 2.0


def status_due(
    before: Mapping[str, Any], after: Mapping[str, Any], *, now: float, held_until: float, written: float | None
) -> float | None:
    """Seconds until `after` should be written: 0 for now, None if it equals `before`.

    `held_until`: when a first status that is not final may be written (see `initial_delay_s`); `written`: when this
    process last wrote the status.
    """
    if same_share(before, after):
        return None
    old, share = _share(before), _share(after)
    if not old and written is None:
        final = any(share[kind]["status"] == "False" for kind in ("Accepted", "Progressing"))
        return 0.0 if final else max(held_until - now, 0.0)
    usual = {"Accepted": "True", "Ready": "False"}  # a condition that was never written
    turned = any(old.get(kind, {}).get("status", default) != share[kind]["status"] for kind, default in usual.items())
    if written is None or turned:
        return 0.0
    return max(written + COALESCE_S - now, 0.0)


def initial_delay_s(bulk_starts: int) -> float:
    """How long after its first observation an unsettled service reports nothing."""
    return max(HOLD_S, bulk_starts * TURN_S)


def same_share(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return (
        before.get("observedGeneration") == after["observedGeneration"]
        and before.get("workload") == after["workload"]
        and _share(before) == _share(after)
    )


def _share(status: Mapping[str, Any]) -> dict[str, Any]:
    return {one["type"]: one for one in status.get("conditions") or () if one["type"] in CONDITIONS}
