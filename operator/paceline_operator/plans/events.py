"""What `kubectl describe` tells of a service: made, rolled out, removed, refused, in trouble; only when it changes.

What a condition tells becomes an event when the status that holds it is written; so a restart tells nothing twice. A
first start tells nothing: its status says it all.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paceline_core.kube.cluster import Event, Key, Manifest
from paceline_operator.nouns import Action, Apply, Delete
from paceline_operator.plans.status import rolls

Status = Mapping[str, Any]


def events(service: Manifest, before: Status, written: Status | None, actions: Sequence[Action]) -> tuple[Event, ...]:
    """At most one for all that is made, one for each removal, one for each condition that turned."""
    metadata = service["metadata"]
    key = Key(metadata.get("namespace", ""), metadata["name"])
    told = [*_done(actions, before), *(_turned(before, written) if written else ())]
    return tuple(Event("InferenceService", key, kind, reason, said) for kind, reason, said in told)


def _done(actions: Sequence[Action], before: Status) -> Iterator[tuple[str, str, str]]:
    """What a new service gets is in its status: an event for each of a thousand would be a sixth of all writes."""
    known = "observedGeneration" in before
    made = [f"{a.child.kind} {a.child.key.name}" for a in actions if isinstance(a, Apply) and a.uid is None]
    if made and known:
        yield ("Normal", "Created", f"Created {', '.join(made)}.")
    for action in actions:
        if isinstance(action, Delete):
            yield ("Normal", "PoolRemoved", f"Deleted {action.kind} {action.key.name}: {action.reason}.")


def _turned(before: Status, after: Status) -> Iterator[tuple[str, str, str]]:
    old = {one["type"]: one for one in before.get("conditions") or ()}
    new = {one["type"]: one for one in after["conditions"]}
    for kind, bad in (("Accepted", "False"), ("Degraded", "True")):
        said, now = old.get(kind, {}), new[kind]
        if now["status"] == bad and (said.get("status"), said.get("reason")) != (bad, now["reason"]):
            yield ("Warning", now["reason"], now["message"])
    if rolls(before) and new["Progressing"]["reason"] in ("Draining", "Settled"):
        yield ("Normal", "RolledOut", f"Revision {after['workload']['revision']}: {new['Progressing']['message']}")
