"""The children as last seen: what plans compare, not the objects; by kind and place, and by the service they serve.

Fed by watches and by the answers to our own writes, so that a plan never acts on a state that is older than what this
process wrote itself: what is older than what is known is dropped. A list replaces a kind, save for what we wrote while
the watch was lost: whether that is in the list's time or after it cannot be told, so such places are named as doubtful
and asked for one by one.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import key_of
from paceline_core.kube.cluster import Manifest
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
_SIGHT = "sight"
ENDED = 4096
"""How many objects deleted by us are remembered."""


@dataclass(frozen=True, slots=True)
class CachedChild:
    """A child as it was seen, its version, whose it is, and whether an answer to our own write told us."""

    live: ObservedChild
    version: int
    item: ReconcileKey
    told_by_answer: bool = False


@dataclass(frozen=True, slots=True)
class Requeue:
    """Who is to look, and how urgently."""

    item: ReconcileKey
    urgency: Priority


class ChildCache:
    """All children. Invariant: a place's version never goes back while its object lives."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[ObjectKey, CachedChild]] = {kind: {} for kind in CHILD_KINDS}
        self._groups: dict[ReconcileKey, dict[ObjectRef, ObservedChild]] = defaultdict(dict)
        self._lost: set[str] = set()
        self._ended: OrderedDict[str, None] = OrderedDict()

    @property
    def lost(self) -> frozenset[str]:
        """Kinds whose watch is lost: what is known of them ages."""
        return frozenset(self._lost)

    def get(self, kind: str, key: ObjectKey) -> ObservedChild | None:
        """What stands at a place."""
        known = self._kinds[kind].get(key)
        return known.live if known else None

    def group(self, item: ReconcileKey) -> dict[ObjectRef, ObservedChild]:
        """What a service owns or is labelled with, or what a namespace's services share."""
        return dict(self._groups.get(item, {}))

    def shared(self, namespace: str) -> dict[str, ObservedChild]:
        """What stands where a namespace's services share things, by kind."""
        found = {kind: self.get(kind, ObjectKey(namespace, name)) for kind, name in SHARED}
        return {kind: live for kind, live in found.items() if live is not None}

    def groups(self) -> list[ReconcileKey]:
        """Everybody who has children."""
        return list(self._groups)

    def put(self, manifest: Manifest, *, answer: bool = False) -> Requeue | None:
        """Take a child as it was seen, or as our write was answered; who is to look at it."""
        if self._known(manifest["kind"], key_of(manifest), version_of(manifest)):
            return None
        return self._put(sight(manifest, answer=answer))

    def _known(self, kind: str, key: ObjectKey, version: int) -> bool:
        """Whether this, or something younger, was taken: mostly the watch's echo of our own write."""
        known = self._kinds[kind].get(key)
        return known is not None and version <= known.version

    def _put(self, seen: CachedChild) -> Requeue | None:
        live = seen.live
        known = self._kinds[live.kind].get(live.key)
        if live.uid in self._ended and not seen.told_by_answer:
            return None
        if known is not None and known.item != seen.item:
            self._forget(known)
        self._kinds[live.kind][live.key] = seen
        self._groups[seen.item][live.place] = live
        return _wake(seen.item, known.live if known else None, live)

    def remove(self, manifest: Manifest) -> Requeue | None:
        """Take a child's end as it was seen."""
        known = self._kinds[manifest["kind"]].get(key_of(manifest))
        if known is None or known.version > version_of(manifest):
            return None
        return self._drop(known)

    def absent(self, kind: str, key: ObjectKey) -> Requeue | None:
        """Take the answer that there is nothing at a place."""
        known = self._kinds[kind].get(key)
        return self._drop(known) if known else None

    def ended(self, kind: str, key: ObjectKey, uid: str) -> None:
        """Take the answer that our delete was accepted: late news of that object are dropped."""
        self._ended[uid] = None
        if len(self._ended) > ENDED:
            self._ended.popitem(last=False)
        known = self._kinds[kind].get(key)
        if known is not None and known.live.uid == uid:
            self._drop(known)

    def lose(self, kind: str) -> None:
        """The watch of a kind broke."""
        self._lost.add(kind)
        self._kinds[kind] = {key: replace(known, told_by_answer=False) for key, known in self._kinds[kind].items()}

    def listed(self, kind: str, manifests: Iterable[Manifest]) -> tuple[list[Requeue], list[ObjectKey]]:
        """Take a whole list of `trimmed` objects: who is to look, and the doubtful places."""
        self._lost.discard(kind)
        wakes, seen = [], set()
        for manifest in manifests:
            found: CachedChild = manifest[_SIGHT]
            seen.add(found.live.key)
            if not self._known(kind, found.live.key, found.version):
                wakes.append(self._put(found))
        missing = [known for key, known in self._kinds[kind].items() if key not in seen]
        doubtful = [known.live.key for known in missing if known.told_by_answer]
        wakes += [self._drop(known) for known in missing if not known.told_by_answer]
        return [wake for wake in wakes if wake is not None], doubtful

    def _drop(self, known: CachedChild) -> Requeue:
        del self._kinds[known.live.kind][known.live.key]
        self._forget(known)
        return Requeue(known.item, Priority.EDIT)

    def _forget(self, known: CachedChild) -> None:
        group = self._groups[known.item]
        group.pop(known.live.place, None)
        if not group:
            del self._groups[known.item]


def sight(manifest: Manifest, *, answer: bool = False) -> CachedChild:
    """Digest a whole object."""
    live = observe_child(manifest)
    live = replace(live, content=exact(live.content))
    return CachedChild(live, version_of(manifest), _whose(live, manifest), answer)


def trimmed(manifest: Manifest) -> Manifest:
    """What is kept of an object of a list while the list is read: a thousand whole ones would double the process."""
    return {_SIGHT: sight(manifest)}


def _whose(live: ObservedChild, manifest: Manifest) -> ReconcileKey:
    """The service that owns it, or that its label names; else what its namespace's services share."""
    if live.owner is not None and live.owner.kind == INFERENCE_SERVICE:
        return ReconcileKey(INFERENCE_SERVICE, ObjectKey(live.key.namespace, live.owner.name))
    service = (manifest["metadata"].get("labels") or {}).get(LABEL_SERVICE)
    return (
        ReconcileKey(INFERENCE_SERVICE, ObjectKey(live.key.namespace, service))
        if service
        else ReconcileKey(NAMESPACE, ObjectKey("", live.key.namespace))
    )


def _wake(item: ReconcileKey, before: ObservedChild | None, after: ObservedChild) -> Requeue | None:
    """A change of what we made is an edit; a change of scale comes first; counts are a status; the rest is noise."""
    if before is None or (before.uid, before.owner, before.fingerprint) != (after.uid, after.owner, after.fingerprint):
        return Requeue(item, Priority.EDIT)
    if before.replicas == after.replicas:
        return None
    scaled = before.replicas and after.replicas and before.replicas.desired != after.replicas.desired
    return Requeue(item, Priority.DELETE if scaled else Priority.STATUS)
