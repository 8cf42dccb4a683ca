"""What `kubectl describe` tells of a service: made, repaired, rolled out, removed, refused, in trouble; if it changes.

What a condition tells becomes an event when the status that holds it is written; so a restart tells nothing twice. A
first start tells nothing: its status says it all.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paceline_core.kube.cluster import Event, Key
from paceline_operator.nouns import Action, Apply, Delete, Live, Place, View
from paceline_operator.plans.status import rolls

CREATED, REPAIRED = "Created", "Repaired"
Status = Mapping[str, Any]


def events(
    view: View, before: Status, written: Status | None, actions: Sequence[Action], *, repairs: bool
) -> tuple[Event, ...]:
    """At most one for all that is made, one for each repair, removal and condition that turned."""
    metadata = view.service["metadata"]
    key = Key(metadata.get("namespace", ""), metadata["name"])
    repaired = _repaired(actions, view.children) if repairs else ()
    told = [*_done(actions, before), *repaired, *(_turned(before, written) if written else ())]
    return tuple(Event("InferenceService", key, kind, reason, said) for kind, reason, said in told)


def _done(actions: Sequence[Action], before: Status) -> Iterator[tuple[str, str, str]]:
    """What a new service gets is in its status: an event for each of a thousand would be a sixth of all writes."""
    known = "observedGeneration" in before
    made = [f"{a.child.kind} {a.child.key.name}" for a in actions if isinstance(a, Apply) and a.uid is None]
    if made and known:
        yield ("Normal", CREATED, f"Created {', '.join(made)}.")
    for action in actions:
        if isinstance(action, Delete):
            yield ("Normal", "PoolRemoved", f"Deleted {action.kind} {action.key.name}: {action.reason}.")


def _repaired(actions: Sequence[Action], children: Mapping[Place, Live]) -> Iterator[tuple[str, str, str]]:
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
    if rolls(before) and new["Progressing"]["reason"] in ("Draining", "Settled"):
        yield ("Normal", "RolledOut", f"Revision {after['workload']['revision']}: {new['Progressing']['message']}")
