"""What `kubectl describe` shows of a service: made, repaired, scaled by others, rolled out, removed, refused, degraded.

A condition becomes an event when the status with it is written, so a restart does not repeat it. First creations are
reported unless many services start at once, whose statuses report them. What others add to a Deployment stays there and
is reported once by each operator; what they change of ours is restored and reported. Who else sets replicas is reported
here only where the policy leaves them to others; elsewhere the autoscaler knows what it wrote itself, and reports it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paceline_core.kube.cluster import Event, ObjectKey
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_operator.plans.status import owned, rolls
from paceline_operator.plans.types import Action, Apply, Delete, ObjectRef, ReconcileInput

CREATED, REPAIRED, REMOVED = "Created", "Repaired", "PoolRemoved"
SCALED, FOREIGN_FIELDS = "ExternallyScaled", "ForeignFieldsKept"
OF_ACTIONS = frozenset((CREATED, REPAIRED, REMOVED))
"""Reasons of executed actions; no later plan reports these again."""
HPA = "kube-controller-manager"
"""The manager of a HorizontalPodAutoscaler, which writes its own Events."""
ReportedChildren = Mapping[ObjectRef, tuple[str, int, tuple[tuple[str, str], ...]]]


def events(
    view: ReconcileInput,
    before: Mapping[str, Any],
    written: Mapping[str, Any] | None,
    actions: Sequence[Action],
    *,
    repairs: bool,
) -> tuple[Event, ...]:
    """At most one for all that is made, one for each repair, removal, scale, addition and condition that turned."""
    metadata = view.service["metadata"]
    key = ObjectKey(metadata.get("namespace", ""), metadata["name"])
    repaired = []
    for action in actions if repairs else ():
        if isinstance(action, Apply) and (live := view.children.get(action.child.place)) is not None:
            by = f" by {live.changed_by}" if live.changed_by else ""
            repaired.append(("Normal", REPAIRED, f"{live.kind} {live.key.name} was changed{by}; restored."))
    done = []
    made = [f"{a.child.kind} {a.child.key.name}" for a in actions if isinstance(a, Apply) and a.uid is None]
    # in a bulk start statuses report children: an event for each of a thousand would be a sixth of all writes
    if made and ("observedGeneration" in before or not view.bulk_starts):
        done.append(("Normal", CREATED, f"Created {', '.join(made)}."))
    done += [
        ("Normal", REMOVED, f"Deleted {action.kind} {action.key.name}: {action.reason}.")
        for action in actions
        if isinstance(action, Delete)
    ]
    turned = _turned_conditions(before, written) if written else ()
    reported = [*done, *repaired, *_by_others(view), *turned]
    return tuple(Event(INFERENCE_SERVICE, key, kind, reason, message) for kind, reason, message in reported)


def reported_by_events(view: ReconcileInput) -> ReportedChildren:
    """What a later plan compares with: for each own Deployment its uid, its desired replicas and the additions."""
    uid = view.service["metadata"]["uid"]
    return {
        place: (live.uid, live.replicas.desired, live.additions)
        for place, live in view.children.items()
        if live.replicas is not None and owned(live, uid)
    }


def _by_others(view: ReconcileInput) -> Iterator[tuple[str, str, str]]:
    """Replicas that the policy leaves to others, and fields of others that stay."""
    known = view.memo.reported if view.memo else None
    policy = _policy(view.service.get("spec"))
    for place, (uid, desired, added) in sorted(reported_by_events(view).items()):
        live = view.children[place]
        reported = (known or {}).get(place, (uid, desired, ()))
        if reported[0] != uid:
            reported = (uid, desired, ())
        by = live.replicas.scaled_by if live.replicas else ""
        if policy in ("external", "advise") and by and by != HPA and desired != reported[1]:
            message = f"{live.kind} {live.key.name} was scaled from {reported[1]} to {desired} by {by}"
            yield ("Normal", SCALED, f"{message}; policy {policy} leaves it so.")
        for manager, fields in added:
            if (manager, fields) not in reported[2]:
                yield (
                    "Normal",
                    FOREIGN_FIELDS,
                    f"{live.kind} {live.key.name} has {fields} from {manager}; paceline keeps it.",
                )


def _policy(spec: Any) -> Any:
    """The policy of any spec, valid or not."""
    scaling = spec.get("scaling") if isinstance(spec, dict) else None
    return scaling.get("policy") if isinstance(scaling, dict) else None


def _turned_conditions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    old = {one["type"]: one for one in before.get("conditions") or ()}
    new = {one["type"]: one for one in after["conditions"]}
    for kind, bad in (("Accepted", "False"), ("Degraded", "True")):
        last, now = old.get(kind, {}), new[kind]
        if now["status"] == bad and (last.get("status"), last.get("reason")) != (bad, now["reason"]):
            yield ("Warning", now["reason"], now["message"])
    answered = new["Ready"]["status"] == "True"
    if rolls(before) and answered and new["Progressing"]["reason"] in ("Draining", "ReplicasReady"):
        yield ("Normal", "RolledOut", f"Revision {after['workload']['revision']}: {new['Progressing']['message']}")
