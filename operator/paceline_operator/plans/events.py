"""What `kubectl describe` tells of a service: made, repaired, scaled by hand, rolled out, removed, refused, in trouble.

What a condition tells becomes an event when the status that holds it is written; so a restart tells it no second time.
What was created first is told unless many services start at once, whose statuses say it all. What others add to a
Deployment stays there and is told once by each operator; what they change of ours is restored and told.
Hole: a scale by hand that the autoscaler moves before this process looks is not named.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paceline_core.kube.cluster import Event, ObjectKey
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_operator.nouns import Action, Apply, Delete, ObjectRef, ObservedChild, ReconcileInput
from paceline_operator.plans.status import owned, rolls

CREATED, REPAIRED, REMOVED = "Created", "Repaired", "PoolRemoved"
SCALED, KEPT = "ManuallyScaled", "ForeignFieldsKept"
OF_ACTIONS = frozenset((CREATED, REPAIRED, REMOVED))
"""Reasons that tell what was done; no later plan tells it again."""
HPA = "kube-controller-manager"
"""The manager of a HorizontalPodAutoscaler, which tells its own Events."""
Status = Mapping[str, Any]
Seen = Mapping[ObjectRef, tuple[str, int, tuple[tuple[str, str], ...]]]


def events(
    view: ReconcileInput, before: Status, written: Status | None, actions: Sequence[Action], *, repairs: bool
) -> tuple[Event, ...]:
    """At most one for all that is made, one for each repair, removal, scale, addition and condition that turned."""
    metadata = view.service["metadata"]
    key = ObjectKey(metadata.get("namespace", ""), metadata["name"])
    repaired = _repaired(actions, view.children) if repairs else ()
    done = _done(actions, before, crowded=view.crowd > 0)
    turned = _turned(before, written) if written else ()
    told = [*done, *repaired, *_by_others(view), *turned]
    return tuple(Event(INFERENCE_SERVICE, key, kind, reason, said) for kind, reason, said in told)


def seen_of(view: ReconcileInput) -> Seen:
    """What a later plan compares with: of each own Deployment its uid, its desired replicas and the additions."""
    uid = view.service["metadata"]["uid"]
    return {
        place: (live.uid, live.replicas.desired, live.additions)
        for place, live in view.children.items()
        if live.replicas is not None and owned(live, uid)
    }


def _by_others(view: ReconcileInput) -> Iterator[tuple[str, str, str]]:
    """Scales by hand, and fields of others that stay."""
    known = view.memo.seen if view.memo else None
    for place, (uid, desired, added) in sorted(seen_of(view).items()):
        live = view.children[place]
        told = (known or {}).get(place, (uid, desired, ()))
        if told[0] != uid:
            told = (uid, desired, ())
        by = live.replicas.scaled_by if live.replicas else ""
        if by and by != HPA and desired != told[1]:
            said = f"{live.kind} {live.key.name} was scaled from {told[1]} to {desired} by {by}; {_next(view)}."
            yield ("Normal", SCALED, said)
        for manager, fields in added:
            if (manager, fields) not in told[2]:
                yield ("Normal", KEPT, f"{live.kind} {live.key.name} has {fields} from {manager}; paceline keeps it.")


def _next(view: ReconcileInput) -> str:
    scaling = view.service.get("spec", {}).get("scaling")
    policy = scaling.get("policy") if isinstance(scaling, dict) else None
    if policy in {"external", "advise"}:
        return f"policy {policy} leaves it so"
    return "the autoscaler decides on from there"


def _done(actions: Sequence[Action], before: Status, *, crowded: bool) -> Iterator[tuple[str, str, str]]:
    """In a crowd a new service's status says what it got: an event for each of a thousand is a sixth of all writes."""
    known = "observedGeneration" in before
    made = [f"{a.child.kind} {a.child.key.name}" for a in actions if isinstance(a, Apply) and a.uid is None]
    if made and (known or not crowded):
        yield ("Normal", CREATED, f"Created {', '.join(made)}.")
    for action in actions:
        if isinstance(action, Delete):
            yield ("Normal", REMOVED, f"Deleted {action.kind} {action.key.name}: {action.reason}.")


def _repaired(actions: Sequence[Action], children: Mapping[ObjectRef, ObservedChild]) -> Iterator[tuple[str, str, str]]:
    for action in actions:
        if isinstance(action, Apply) and (live := children.get(action.child.place)) is not None:
            by = f" by {live.changed_by}" if live.changed_by else ""
            yield ("Normal", REPAIRED, f"{live.kind} {live.key.name} was changed{by}; restored.")


def _turned(before: Status, after: Status) -> Iterator[tuple[str, str, str]]:
    old = {one["type"]: one for one in before.get("conditions") or ()}
    new = {one["type"]: one for one in after["conditions"]}
    for kind, bad in (("Accepted", "False"), ("Degraded", "True")):
        said, now = old.get(kind, {}), new[kind]
        if now["status"] == bad and (said.get("status"), said.get("reason")) != (bad, now["reason"]):
            yield ("Warning", now["reason"], now["message"])
    answered = new["Ready"]["status"] == "True"
    if rolls(before) and answered and new["Progressing"]["reason"] in ("Draining", "Settled"):
        yield ("Normal", "RolledOut", f"Revision {after['workload']['revision']}: {new['Progressing']['message']}")
