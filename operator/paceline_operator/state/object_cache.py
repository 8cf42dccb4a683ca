"""The four kinds that people write, as last seen: each object as JSON bytes, by kind and place.

Fed by kopf's events and by lists of our own (kopf tells nobody that its list is complete, nor what a relist no longer
holds). Versions decide: what is older than what is known is dropped, and what a newer list lacks is gone. A change that
leaves generation, labels, annotations and deletion alone is a status, ours or the autoscaler's, and wakes nobody.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import orjson

from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import key_of
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_ROUTE, INFERENCE_SERVICE, TENANT
from paceline_operator.state.workqueue import Priority, ReconcileKey

KINDS = (INFERENCE_SERVICE, TENANT, INFERENCE_ROUTE, ACCELERATOR_PROFILE)
_SEEN = "seen"


@dataclass(frozen=True, slots=True)
class CachedObject:
    """One object. `essence` is what a person can change, as bytes to compare."""

    version: int
    uid: str
    essence: int
    going: bool
    data: bytes

    def manifest(self) -> Manifest:
        """A copy of its own for whoever asks."""
        found: Manifest = orjson.loads(self.data)
        return found


@dataclass(frozen=True, slots=True)
class Change:
    """An object came, changed (`came` False) or went (`urgency` DELETE and no longer known)."""

    item: ReconcileKey
    urgency: Priority
    came: bool = False
    went: bool = False


class ObjectCache:
    """All objects of the four kinds. Invariant: an object's version never goes back."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[ObjectKey, CachedObject]] = {kind: {} for kind in KINDS}
        self._counts: Counter[tuple[str, str]] = Counter()

    def get(self, item: ReconcileKey) -> Manifest | None:
        """The object, or None when there is none or it goes away."""
        stored = self._kinds[item.kind].get(item.key)
        return stored.manifest() if stored is not None and not stored.going else None

    def uid(self, item: ReconcileKey) -> str:
        """The object's uid, or nothing."""
        stored = self._kinds[item.kind].get(item.key)
        return stored.uid if stored else ""

    def keys(self, kind: str) -> list[ObjectKey]:
        """Where the kind's objects are."""
        return list(self._kinds[kind])

    def manifests(self, kind: str) -> Iterator[Manifest]:
        """Every object of a kind that stays."""
        return (stored.manifest() for stored in self._kinds[kind].values() if not stored.going)

    def count(self, kind: str, namespace: str) -> int:
        """Objects of a kind in a namespace; those that go away still count."""
        return self._counts[kind, namespace]

    def put(self, manifest: Manifest) -> Change | None:
        """Take an object as it was seen; what is to be done about it, if anything."""
        item = _item(manifest)
        return None if self._known(item, version_of(manifest)) else self._put(item, _stored(manifest))

    def _known(self, item: ReconcileKey, version: int) -> bool:
        """Whether this, or something younger, was taken: mostly the watch's echo of our own status."""
        known = self._kinds[item.kind].get(item.key)
        return known is not None and version <= known.version

    def _put(self, item: ReconcileKey, new: CachedObject) -> Change | None:
        known = self._kinds[item.kind].get(item.key)
        self._kinds[item.kind][item.key] = new
        self._counts[item.kind, item.key.namespace] += known is None
        if new.going:
            return Change(item, Priority.DELETE)
        if known is None or known.uid != new.uid:
            return Change(item, Priority.CREATE if known is None else Priority.EDIT, came=True)
        return Change(item, Priority.EDIT) if known.essence != new.essence else None

    def remove(self, manifest: Manifest) -> Change | None:
        """Take an object's end as it was seen."""
        item, version = _item(manifest), version_of(manifest)
        known = self._kinds[item.kind].get(item.key)
        if known is None or known.version > version:
            return None
        return self._drop(item)

    def listed(self, kind: str, manifests: Iterable[Manifest], version: int, namespace: str = "") -> list[Change]:
        """Take a whole list of `seen` objects, of one namespace or of all, that was complete at `version`."""
        changes = []
        found: set[ObjectKey] = set()
        for manifest in manifests:
            item, new = manifest[_SEEN]
            found.add(item.key)
            if not self._known(item, new.version):
                changes.append(self._put(item, new))
        absent = [
            key
            for key, known in self._kinds[kind].items()
            if key not in found and known.version <= version and namespace in ("", key.namespace)
        ]
        changes += [self._drop(ReconcileKey(kind, key)) for key in absent]
        return [change for change in changes if change is not None]

    def _drop(self, item: ReconcileKey) -> Change:
        del self._kinds[item.kind][item.key]
        self._counts[item.kind, item.key.namespace] -= 1
        return Change(item, Priority.DELETE, went=True)


class CacheView(Mapping[str, Manifest]):
    """The objects of a kind that has no namespaces, by name; each is read when it is asked for."""

    def __init__(self, objects: ObjectCache, kind: str) -> None:
        self._objects = objects
        self._kind = kind

    def __getitem__(self, name: str) -> Manifest:
        found = self._objects.get(ReconcileKey(self._kind, ObjectKey("", name)))
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (key.name for key in self._objects.keys(self._kind))

    def __len__(self) -> int:
        return len(self._objects.keys(self._kind))


def seen(manifest: Manifest) -> Manifest:
    """What is kept of an object of a list while the list is read."""
    return {_SEEN: (_item(manifest), _stored(manifest))}


def version_of(manifest: Manifest) -> int:
    """The resourceVersion, which API servers let clients compare as numbers since 1.35, and always made so."""
    return int(manifest["metadata"]["resourceVersion"])


def exact(data: bytes) -> bytes:
    """The same bytes in memory of their size: orjson's buffers are up to four times as large."""
    return bytes(memoryview(data))


def _item(manifest: Manifest) -> ReconcileKey:
    return ReconcileKey(manifest["kind"], key_of(manifest))


def _stored(manifest: Manifest) -> CachedObject:
    metadata = manifest["metadata"]
    kept = {name: value for name, value in metadata.items() if name != "managedFields"}
    essence = (metadata.get("generation"), metadata.get("labels") or {}, metadata.get("annotations") or {})
    return CachedObject(
        version_of(manifest),
        metadata["uid"],
        hash(orjson.dumps(essence, option=orjson.OPT_SORT_KEYS)),
        "deletionTimestamp" in metadata,
        exact(orjson.dumps({**manifest, "metadata": kept})),
    )
