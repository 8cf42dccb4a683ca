"""What a watch reported so far, by key: the one place that applies lists, changes and ends.

A list replaces everything. Where entries have versions, an entry never goes back to an older one, so that answers to
own requests and a late watch event can both be taken, in any order. Every method returns what it changed.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from paceline_core.kube.cluster import Deleted, Listed, Manifest, ObjectKey, Upserted, WatchEvent

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class StoreChange(Generic[K, V]):
    """What one entry was and is; None: there is none."""

    key: K
    before: V | None
    after: V | None


class ResourceStore(dict[K, V]):
    """Entries by key. `version_of` an entry: its resourceVersion, where late reports must be dropped."""

    def __init__(self, version_of: Callable[[V], int] | None = None) -> None:
        super().__init__()
        self._version_of = version_of

    def apply(
        self, event: WatchEvent[T], key: Callable[[T], K], read: Callable[[T], V | None]
    ) -> list[StoreChange[K, V]]:
        """Take one event of a watch. An item that `read` gives None for has no entry."""
        match event:
            case Listed(items):
                found = {key(item): read(item) for item in items}
                return self.replace({name: entry for name, entry in found.items() if entry is not None})
            case Upserted(item):
                entry = read(item)
                change = self.remove(key(item)) if entry is None else self.put(key(item), entry)
            case Deleted(item):
                change = self.remove(key(item))
            case _:
                change = None
        return [] if change is None else [change]

    def knows(self, key: K, version: int) -> bool:
        """Whether an entry of this version, or a younger one, is here."""
        known = self.get(key)
        return known is not None and self._version_of is not None and version <= self._version_of(known)

    def put(self, key: K, entry: V) -> StoreChange[K, V] | None:
        """Take an entry; None when it is no younger than the known one."""
        if self._version_of is not None and self.knows(key, self._version_of(entry)):
            return None
        before = self.get(key)
        self[key] = entry
        return StoreChange(key, before, entry)

    def remove(self, key: K, version: int | None = None) -> StoreChange[K, V] | None:
        """Take an entry's end, in the last `version` that it had; None when a younger one is here, or none at all."""
        known = self.get(key)
        if known is None or (
            version is not None and self._version_of is not None and self._version_of(known) > version
        ):
            return None
        return StoreChange(key, self.pop(key), None)

    def replace(self, entries: Mapping[K, V], stays: Callable[[V], bool] = lambda _: False) -> list[StoreChange[K, V]]:
        """Take a whole list: what it lacks is gone, except what `stays`."""
        changes = [change for key, entry in entries.items() if (change := self.put(key, entry))]
        absent = [key for key, known in self.items() if key not in entries and not stays(known)]
        return [*changes, *(StoreChange(key, self.pop(key), None) for key in absent)]


def namespaced_key(manifest: Manifest) -> ObjectKey:
    """An object's place; a manifest that was read from a file may leave the default namespace out."""
    metadata = manifest.get("metadata", {})
    return ObjectKey(metadata.get("namespace") or "default", metadata.get("name", ""))
