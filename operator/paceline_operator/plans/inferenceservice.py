"""One service's plan: what to create, repair, hand over or delete, what to report, when to look again.

Level-triggered over what was observed, so any crash, stale list or repetition leads to the same result: a create never
forces, so it cannot overwrite another controller's new object; a repair and a delete name the object's uid, so they
cannot affect its successor. Unmanaged objects are reported, never changed. A refused spec changes nothing that runs.
"""

from dataclasses import dataclass, replace

from paceline_core.kube.cluster import Manifest, ObjectKey
from paceline_core.objects import FieldError
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_core.objects.naming import ANNOTATION_UPGRADE, deployment_name
from paceline_core.objects.resolved import ResolvedPool, ResolvedService
from paceline_core.objects.workload_status import ConditionValue
from paceline_operator.plans.children import (
    deployment,
    differs,
    disruption_budget,
    inputs_of,
    render,
    rendered_before,
    workers_service,
)
from paceline_operator.plans.events import events, reported_by_events
from paceline_operator.plans.labels import RENDERED
from paceline_operator.plans.namespace import missing, unmanaged_shared
from paceline_operator.plans.pod import device_marks
from paceline_operator.plans.status import RolloutProgress, initial_delay_s, owned, status, status_due
from paceline_operator.plans.types import (
    Action,
    Apply,
    Converged,
    Delete,
    DesiredChild,
    HandOver,
    Memo,
    ObservedChild,
    ReconcileInput,
    ReconcilePlan,
    ServiceFacts,
    Validation,
)
from paceline_operator.plans.validation import refusal, validate

RENDERED_LIMIT = 200_000
"""The most bytes of a template; all annotations of an object may take 262,144."""
SHARED_WAIT_S = 1.0
OLDER_WAIT_S = 2.0
_VALIDATED_INPUTS = 5
"""How many of the inputs, from the first, affect the validation."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be done for one service, why some of it must wait, and which children another controller manages.

    `repairs`: the same spec had nothing left to do before, so another controller caused the present work.
    """

    facts: ServiceFacts
    actions: tuple[Action, ...] = ()
    coming: tuple[tuple[str, int], ...] = ()
    waits: tuple[str, ...] = ()
    unmanaged: tuple[str, ...] = ()
    again_s: float | None = None
    repairs: bool = False


def plan_service(view: ReconcileInput) -> ReconcilePlan:
    """The plan; cheap if none of its inputs has changed since it last found nothing to do."""
    if view.service["metadata"].get("deletionTimestamp"):
        return ReconcilePlan()
    memo = view.memo or Memo(since=view.now)
    metadata = view.service["metadata"]
    upgrade = (metadata.get("annotations") or {}).get(ANNOTATION_UPGRADE)
    shared = missing(view.shared, view.settings)
    unmanaged = unmanaged_shared(view.shared)
    devices = device_marks(view.service, view.profiles)
    inputs = (
        metadata["uid"],
        metadata.get("generation"),
        upgrade,
        view.loss,
        devices,
        shared,
        unmanaged,
        view.settings,
    )
    fingerprints = frozenset((place, live.fingerprint) for place, live in view.children.items())
    known = memo.settled
    same = known is not None and known.inputs == inputs
    if known is not None and same and known.children == fingerprints:
        work = _Work(known.facts)
    else:
        # to read and resolve a service is a tenth of its plan: a creation takes two plans and one validation
        validated, judged = memo.validated, inputs[:_VALIDATED_INPUTS]
        if validated is None or validated[0] != judged:
            validated = (judged, validate(view.service, view.loss, view.profiles))
        work = replace(_plan_work(view, validated[1]), repairs=same)
        idle = not (work.actions or work.waits or work.unmanaged)
        settled = Converged(inputs, fingerprints, work.facts) if idle else None
        memo = replace(memo, settled=settled, validated=None if idle else validated)
    return _with_status(view, memo, work)


def _with_status(view: ReconcileInput, memo: Memo, work: _Work) -> ReconcilePlan:
    # a Service or a budget is complete as soon as it is written
    moves_pods = any(not isinstance(one, Apply) or one.child.kind == "Deployment" for one in work.actions)
    rollout = RolloutProgress(moves_pods, work.coming, work.waits, work.unmanaged)
    before = view.service.get("status") or {}
    after = status(view, work.facts, rollout)
    held_until = memo.since + initial_delay_s(view.bulk_starts)
    wait_s = status_due(before, after, now=view.now, held_until=held_until, written=memo.written)
    written = after if wait_s == 0 else None
    memo = replace(memo, reported=reported_by_events(view), written=view.now if written else memo.written)
    return ReconcilePlan(
        actions=work.actions,
        status=written,
        events=events(view, before, written, work.actions, repairs=work.repairs),
        again_s=min((wait for wait in (wait_s or None, work.again_s) if wait is not None), default=None),
        memo=memo,
    )


def _plan_work(view: ReconcileInput, validation: Validation) -> _Work:
    if not validation.runs or validation.resolved is None:
        return _Work(_facts(view, validation))
    children = desired_children(view, validation)
    rendered = [(child, child.body["metadata"].get("annotations", {}).get(RENDERED, "")) for child in children]
    if too_large := [child for child, template in rendered if len(template) > RENDERED_LIMIT]:
        problem = FieldError("spec.runtime.env", f"makes {too_large[0].key.name} too large; move values to a ConfigMap")
        return _Work(_facts(view, validation, refusal("TooLarge", [problem])))
    return _plan_children(view, validation.resolved, _facts(view, validation), children)


def _facts(view: ReconcileInput, validation: Validation, accepted: ConditionValue | None = None) -> ServiceFacts:
    """A service that is not accepted keeps the revision that runs."""
    service = validation.resolved
    runs = validation.runs and accepted is None
    generation = view.service["metadata"].get("generation", 0)
    workload = (service.runtime.workload or "") if service else ""
    if service is None or not runs:
        reported = (view.service.get("status") or {}).get("workload") or {}
        spec = view.service.get("spec")
        written = spec.get("model") if isinstance(spec, dict) else None
        source = written.get("source") if isinstance(written, dict) else None
        return ServiceFacts(
            generation=generation,
            revision=reported.get("revision", ""),
            pools=(),
            emulated=reported.get("emulated", False),
            accepted=accepted or validation.accepted,
            fits=validation.fits,
            workload=workload,
            model=reported.get("model") or (source if isinstance(source, str) else ""),
            served_name=reported.get("servedName", ""),
            min_replicas=reported.get("minReplicas", 0),
            max_replicas=reported.get("maxReplicas", 0),
        )
    return ServiceFacts(
        generation=generation,
        revision=service.revision,
        pools=tuple(pool.name for pool in service.pools),
        emulated=service.emulated,
        accepted=validation.accepted,
        fits=validation.fits,
        workload=workload,
        model=service.model.source,
        served_name=service.model.served_name,
        min_replicas=sum(pool.min for pool in service.pools),
        max_replicas=sum(pool.max for pool in service.pools),
    )


def desired_children(view: ReconcileInput, validation: Validation) -> list[DesiredChild]:
    """Every child in the order of creation; none if an unmanaged Deployment serves."""
    service, resolved = validation.service, validation.resolved
    if service is None or resolved is None or resolved.runtime.workload:
        return []
    children = [workers_service(resolved), disruption_budget(resolved)]
    for index, pool in enumerate(resolved.pools):
        inputs = inputs_of(service, resolved, index)
        live = view.children.get(_place(view, pool.name))
        template = rendered_before(live, inputs) or render(
            resolved, pool, view.settings, (view.profiles or {}).get(pool.accelerator)
        )
        children.append(deployment(resolved, pool, template, inputs))
    return children


def _plan_children(
    view: ReconcileInput, service: ResolvedService, facts: ServiceFacts, children: list[DesiredChild]
) -> _Work:
    coming = {pool.name: first_replicas(view.service, pool) for pool in service.pools}
    first = {_place(view, name): replicas for name, replicas in coming.items()}
    shared = missing(view.shared, view.settings)
    actions: list[Action] = []
    waits: list[str] = []
    unmanaged = list(unmanaged_shared(view.shared))
    for child in children:
        live = view.children.get(child.place)
        if live is not None and not owned(live, service.uid):
            if live.owner is not None and (live.owner.kind, live.owner.name) == (INFERENCE_SERVICE, service.name):
                waits.append(f"{_name(child)} of the deleted object of the same name goes first")
            else:
                unmanaged.append(_name(child))
            continue
        found = _updates(child, live, first.get(child.place))
        if found and shared and child.kind == "Deployment":
            waits.append(f"{_name(child)} needs {', '.join(shared)} of the namespace")
        else:
            actions += found
    removals, serving = _removals(view, service, {child.place for child in children})
    wait_s = SHARED_WAIT_S if shared and waits else OLDER_WAIT_S if waits else None
    return _Work(facts, (*actions, *removals), tuple(coming.items()), (*waits, *serving), tuple(unmanaged), wait_s)


def _place(view: ReconcileInput, pool: str) -> tuple[str, ObjectKey]:
    metadata = view.service["metadata"]
    return ("Deployment", ObjectKey(metadata["namespace"], deployment_name(metadata["name"], pool)))


def first_replicas(manifest: Manifest, pool: ResolvedPool) -> int:
    """A Deployment's initial replicas: what the autoscaler last wanted, even 0, else the minimum, but at least 1."""
    scaling = (manifest.get("status") or {}).get("scaling") or {}
    known = {entry.get("name"): entry.get("desired", 0) for entry in scaling.get("pools") or ()}
    return min(int(known.get(pool.name, max(pool.min, 1))), pool.max)


def _updates(child: DesiredChild, live: ObservedChild | None, replicas: int | None) -> list[Action]:
    if live is None:
        return [Apply(child, force=False, replicas=replicas, reason=f"{_name(child)} does not exist")]
    if not differs(child, live):
        return []
    counts = live.replicas
    if counts and not counts.shared:
        return [HandOver(live.key, live.uid, counts.desired, "an apply without replicas would reset them")]
    return [Apply(child, force=True, uid=live.uid, reason=f"{_name(child)} is not as desired")]


def _removals(
    view: ReconcileInput, service: ResolvedService, desired: set[tuple[str, ObjectKey]]
) -> tuple[list[Delete], list[str]]:
    """Pools that the spec no longer has. One that serves stays until another does, so a rename interrupts no client."""
    own = [live for live in view.children.values() if live.kind == "Deployment" and owned(live, service.uid)]
    surplus = sorted((live for live in own if live.place not in desired), key=lambda live: live.key)
    successors = [live.replicas for live in own if live.place in desired and live.replicas]
    served = any(counts.ready for counts in successors)
    expected = len(successors) < len(service.pools) or any(counts.desired for counts in successors)
    serving = [live for live in surplus if live.replicas and live.replicas.ready and expected and not served]
    removed = [
        Delete(live.kind, live.key, live.uid, f"the spec has no pool {live.pool or live.key.name}")
        for live in surplus
        if live not in serving
    ]
    return removed, [f"pool {live.pool} serves until another one is ready" for live in serving]


def _name(child: DesiredChild) -> str:
    return f"{child.kind} {child.key.name}"
