"""The children as last seen: what plans compare, not the objects; by kind and place, and by the service they serve.

Watches and the answers to our own writes update it. Older versions than the known one are dropped, so that a plan never
acts on a state older than what this process wrote itself. A list replaces a kind, except what we wrote while the watch
was lost: it cannot be known whether that came before the list or after, so such places are returned as doubtful and
read one by one.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import key_of
from paceline_core.kube.cluster import Manifest, ResourceStore, StoreChange
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_core.objects.naming import LABEL_SERVICE
from paceline_operator.plans.labels import ACCOUNT, POLICY, TRUST
from paceline_operator.plans.observe import observe_child
from paceline_operator.plans.types import ObjectRef, ObservedChild
from paceline_operator.state.object_cache import exact, version_of
from paceline_operator.state.workqueue import Priority, ReconcileKey

NAMESPACE = "Namespace"
CHILD_KINDS = ("ServiceAccount", "ConfigMap", "NetworkPolicy", "Service", "PodDisruptionBudget", "Deployment")
SHARED = (("ServiceAccount", ACCOUNT), ("ConfigMap", TRUST), ("NetworkPolicy", POLICY))
_ENTRY = "entry"
MAX_DELETED = 4096
"""How many objects that we deleted are remembered."""


@dataclass(frozen=True, slots=True)
class CachedChild:
    """A child as observed, the key that reconciles it, and whether it came as the answer to our own write."""

    live: ObservedChild
    version: int
    item: ReconcileKey
    from_answer: bool = False


@dataclass(frozen=True, slots=True)
class Requeue:
    item: ReconcileKey
    priority: Priority


class ChildCache:
    """All children. Invariant: a place's version never goes back while its object lives."""

    def __init__(self) -> None:
        self._stores: dict[str, ResourceStore[ObjectKey, CachedChild]] = {
            kind: ResourceStore(lambda child: child.version) for kind in CHILD_KINDS
        }
        self._groups: dict[ReconcileKey, dict[ObjectRef, ObservedChild]] = defaultdict(dict)
        self._deleted: OrderedDict[str, None] = OrderedDict()

    def get(self, kind: str, key: ObjectKey) -> ObservedChild | None:
        known = self._stores[kind].get(key)
        return known.live if known else None

    def group(self, item: ReconcileKey) -> dict[ObjectRef, ObservedChild]:
        return dict(self._groups.get(item, {}))

    def shared(self, namespace: str) -> dict[str, ObservedChild]:
        """A namespace's shared objects, by kind."""
        found = {kind: self.get(kind, ObjectKey(namespace, name)) for kind, name in SHARED}
        return {kind: live for kind, live in found.items() if live is not None}

    def groups(self) -> list[ReconcileKey]:
        return list(self._groups)

    def put(self, manifest: Manifest, *, answer: bool = False) -> Requeue | None:
        """Store a child from a watch or from the answer to our write; returns the key to reconcile."""
        if self._stores[manifest["kind"]].knows(key_of(manifest), version_of(manifest)):
            return None  # mostly the watch's echo of our own write
        child = cached(manifest, from_answer=answer)
        if child.live.uid in self._deleted and not answer:
            return None
        return self._index(self._stores[child.live.kind].put(child.live.key, child))

    def remove(self, manifest: Manifest) -> Requeue | None:
        return self._index(self._stores[manifest["kind"]].remove(key_of(manifest), version_of(manifest)))

    def absent(self, kind: str, key: ObjectKey) -> Requeue | None:
        """Record that nothing exists at a place."""
        return self._index(self._stores[kind].remove(key))

    def deleted(self, kind: str, key: ObjectKey, uid: str) -> None:
        """Record that our delete was accepted: late events of that object are dropped."""
        self._deleted[uid] = None
        if len(self._deleted) > MAX_DELETED:
            self._deleted.popitem(last=False)
        known = self._stores[kind].get(key)
        if known is not None and known.live.uid == uid:
            self._index(self._stores[kind].remove(key))

    def lose(self, kind: str) -> None:
        """The watch of a kind failed: from now on only answers to our own writes are newer than the next list."""
        store = self._stores[kind]
        store.update({key: replace(known, from_answer=False) for key, known in store.items()})

    def listed(self, kind: str, manifests: Iterable[Manifest]) -> tuple[list[Requeue], list[ObjectKey]]:
        """Store a whole list of `trimmed` objects; returns the keys to reconcile, and the doubtful places."""
        store = self._stores[kind]
        children: list[CachedChild] = [manifest[_ENTRY] for manifest in manifests]
        entries = {child.live.key: child for child in children if child.live.uid not in self._deleted}
        doubtful = [key for key, known in store.items() if key not in entries and known.from_answer]
        changes = store.replace(entries, stays=lambda known: known.from_answer)
        return [wake for change in changes if (wake := self._index(change))], doubtful

    def _index(self, change: StoreChange[ObjectKey, CachedChild] | None) -> Requeue | None:
        if change is None:
            return None
        before, after = change.before, change.after
        if before is not None and (after is None or before.item != after.item):
            group = self._groups[before.item]
            group.pop(before.live.place, None)
            if not group:
                del self._groups[before.item]
        if after is not None:
            self._groups[after.item][after.live.place] = after.live
            return _requeue(after.item, before.live if before else None, after.live)
        return Requeue(before.item, Priority.EDIT) if before is not None else None


def cached(manifest: Manifest, *, from_answer: bool = False) -> CachedChild:
    live = observe_child(manifest)
    live = replace(live, content=exact(live.content))
    return CachedChild(live, version_of(manifest), _reconciled_by(live, manifest), from_answer)


def trimmed(manifest: Manifest) -> Manifest:
    """The part of a listed object to keep while the list is read: a thousand whole ones would double the process."""
    return {_ENTRY: cached(manifest)}


def _reconciled_by(live: ObservedChild, manifest: Manifest) -> ReconcileKey:
    """The service that owns it or that its label names; else the shared objects of its namespace."""
    if live.owner is not None and live.owner.kind == INFERENCE_SERVICE:
        return ReconcileKey(INFERENCE_SERVICE, ObjectKey(live.key.namespace, live.owner.name))
    service = (manifest["metadata"].get("labels") or {}).get(LABEL_SERVICE)
    return (
        ReconcileKey(INFERENCE_SERVICE, ObjectKey(live.key.namespace, service))
        if service
        else ReconcileKey(NAMESPACE, ObjectKey("", live.key.namespace))
    )


def _requeue(item: ReconcileKey, before: ObservedChild | None, after: ObservedChild) -> Requeue | None:
    """A change of what we made is an edit; a change of scale comes first; counts are a status; the rest is ignored."""
    if before is None or (before.uid, before.owner, before.fingerprint) != (after.uid, after.owner, after.fingerprint):
        return Requeue(item, Priority.EDIT)
    if before.replicas == after.replicas:
        return None
    scaled = before.replicas and after.replicas and before.replicas.desired != after.replicas.desired
    return Requeue(item, Priority.DELETE if scaled else Priority.STATUS)
