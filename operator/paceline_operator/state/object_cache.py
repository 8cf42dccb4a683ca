"""The four kinds that people write, as last observed: each object as JSON bytes, by kind and place.

Watches and the answers to our own status writes update it. Versions decide: older versions than the known one are
dropped. A change that leaves generation, labels, annotations and deletion alone is a status, ours or the autoscaler's,
and reconciles nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import orjson

from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import key_of
from paceline_core.kube.cluster import Manifest, ResourceStore, StoreChange
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_ROUTE, INFERENCE_SERVICE, TENANT
from paceline_operator.state.workqueue import Priority, ReconcileKey

KINDS = (INFERENCE_SERVICE, TENANT, INFERENCE_ROUTE, ACCELERATOR_PROFILE)
_ENTRY = "entry"


@dataclass(frozen=True, slots=True)
class CachedObject:
    """One object. `essence` is what a person can change, as bytes to compare."""

    version: int
    uid: str
    essence: int
    deleting: bool
    data: bytes

    def manifest(self) -> Manifest:
        """A separate copy for each caller."""
        found: Manifest = orjson.loads(self.data)
        return found


@dataclass(frozen=True, slots=True)
class Change:
    """An object was created, changed (`came` False) or deleted (`urgency` DELETE and no longer known)."""

    item: ReconcileKey
    priority: Priority
    came: bool = False
    went: bool = False


class ObjectCache:
    """All objects of the four kinds. Invariant: an object's version never goes back."""

    def __init__(self) -> None:
        self._stores: dict[str, ResourceStore[ObjectKey, CachedObject]] = {
            kind: ResourceStore(lambda cached: cached.version) for kind in KINDS
        }
        self._counts: Counter[tuple[str, str]] = Counter()

    def get(self, item: ReconcileKey) -> Manifest | None:
        cached = self._stores[item.kind].get(item.key)
        return cached.manifest() if cached is not None and not cached.deleting else None

    def uid(self, item: ReconcileKey) -> str:
        cached = self._stores[item.kind].get(item.key)
        return cached.uid if cached else ""

    def keys(self, kind: str) -> list[ObjectKey]:
        return list(self._stores[kind])

    def count(self, kind: str, namespace: str) -> int:
        """Objects of a kind in a namespace, including those that are being deleted."""
        return self._counts[kind, namespace]

    def put(self, manifest: Manifest) -> Change | None:
        """Store an object from a watch; returns the change, if it matters."""
        kind, key = manifest["kind"], key_of(manifest)
        if self._stores[kind].knows(key, version_of(manifest)):
            return None  # mostly the watch's echo of our own status
        return self._change(kind, self._stores[kind].put(key, _cached(manifest)))

    def answered(self, manifest: Manifest) -> Change | None:
        """Store the answer to our own write. Does not restore an object whose deletion a watch has reported."""
        item = ReconcileKey(manifest["kind"], key_of(manifest))
        return self.put(manifest) if self.uid(item) == manifest["metadata"]["uid"] else None

    def remove(self, manifest: Manifest) -> Change | None:
        kind = manifest["kind"]
        return self._change(kind, self._stores[kind].remove(key_of(manifest), version_of(manifest)))

    def listed(self, kind: str, manifests: Iterable[Manifest]) -> list[Change]:
        changes = self._stores[kind].replace(dict(manifest[_ENTRY] for manifest in manifests))
        return [found for change in changes if (found := self._change(kind, change))]

    def _change(self, kind: str, change: StoreChange[ObjectKey, CachedObject] | None) -> Change | None:
        if change is None:
            return None
        item, before, after = ReconcileKey(kind, change.key), change.before, change.after
        self._counts[kind, change.key.namespace] += (after is not None) - (before is not None)
        if after is None or after.deleting:
            return Change(item, Priority.DELETE, went=after is None)
        if before is None or before.uid != after.uid:
            return Change(item, Priority.CREATE if before is None else Priority.EDIT, came=True)
        return Change(item, Priority.EDIT) if before.essence != after.essence else None


class CacheView(Mapping[str, Manifest]):
    """The objects of a kind without namespaces, by name; each is parsed on access."""

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


def trimmed_object(manifest: Manifest) -> Manifest:
    return {_ENTRY: (key_of(manifest), _cached(manifest))}


def version_of(manifest: Manifest) -> int:
    """The resourceVersion, which API servers let clients compare as numbers since 1.35, and always made so."""
    return int(manifest["metadata"]["resourceVersion"])


def exact(data: bytes) -> bytes:
    """The same bytes in memory of their size: orjson's buffers are up to four times as large."""
    return bytes(memoryview(data))


def _cached(manifest: Manifest) -> CachedObject:
    metadata = manifest["metadata"]
    stored = {name: value for name, value in metadata.items() if name != "managedFields"}
    essence = (metadata.get("generation"), metadata.get("labels") or {}, metadata.get("annotations") or {})
    return CachedObject(
        version_of(manifest),
        metadata["uid"],
        hash(orjson.dumps(essence, option=orjson.OPT_SORT_KEYS)),
        "deletionTimestamp" in metadata,
        exact(orjson.dumps({**manifest, "metadata": stored})),
    )
