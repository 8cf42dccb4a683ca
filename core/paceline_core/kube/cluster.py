"""The one protocol between components and the API server (or the local supervisor in its place), and its types.

Watches are level-triggered: the first event is `Listed`, and after every lost connection come `WatchLost` and `Listed`
again, so a reader that replaces its state on `Listed` stays correct. A watch ends only when its reader closes it.

`ResourceStore` is the one place that applies a watch's events. A list replaces everything. Where entries have versions,
an entry is never replaced by an older one, so that answers to own requests and late watch events can be applied in any
order. Every method returns what it changed.
"""

from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """An object's namespace and name; `namespace` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @classmethod
    def parse(cls, text: str) -> "ObjectKey":
        """Parse `namespace/name`, or `name` for cluster-scoped objects."""
        namespace, _, name = text.rpartition("/")
        return cls(namespace, name)


@dataclass(frozen=True, slots=True, order=True)
class ServiceRef:
    """One InferenceService; an object created again under its name has another uid."""

    key: ObjectKey
    uid: str


def key_namespace_of(own: str) -> str:
    """The default namespace of tenants' key Secrets."""
    return f"{own}-tenant-keys"


@dataclass(frozen=True, slots=True)
class Namespaces:
    """`own` is paceline's, `watched` are the services' (all when empty), `keys` is that of tenants' key Secrets."""

    own: str
    watched: tuple[str, ...] = ()
    keys: str = ""

    def __post_init__(self) -> None:
        if not self.keys:
            object.__setattr__(self, "keys", key_namespace_of(self.own))


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """All items that exist now; replaces everything that the reader has."""

    items: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Upserted(Generic[T]):
    item: T


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """One item was deleted; this is its last state."""

    item: T


@dataclass(frozen=True, slots=True)
class WatchLost:
    """The connection broke: the reader's state ages until the next `Listed`."""

    reason: str


WatchEvent = Listed[T] | Upserted[T] | Deleted[T] | WatchLost


class StartStage(StrEnum):
    """A worker's start: it has no node yet; its node creates its containers; they run, and it is not ready."""

    SCHEDULE = "schedule"
    PULL = "pull"
    LOAD = "load"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One worker of a service. `ready` is the result of its readiness probe; `created` is RFC 3339 UTC, if known.

    `metrics_port` is known only in local mode: elsewhere Prometheus finds it by its name. `restarts`: how often its
    process was restarted, `ended`: why it ended last; `disruption`: who removes it other than its Deployment, and why.
    `force_deleted`: its pod was deleted without a grace period. `node`: where it is scheduled. `stage` of its start,
    while it is neither ready nor terminating. For workers from EndpointSlices none of the six is known, and in local
    mode there is no node.
    """

    name: str
    pool: str
    track: str
    revision: str
    host: str
    port: int
    ready: bool
    terminating: bool = False
    created: str | None = None
    metrics_port: int = 0
    restarts: int = 0
    ended: str = ""
    disruption: str = ""
    force_deleted: bool = False
    node: str = ""
    stage: StartStage | None = None


@dataclass(frozen=True, slots=True)
class ServiceEndpoints:
    """All workers of one service, ready or not; `failed` are those that ended permanently and whose objects remain."""

    service: ObjectKey
    endpoints: tuple[Endpoint, ...]
    failed: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """A pool of a service: the Deployment `<service>-<pool>`, with `-canary` for the canary track."""

    service: ObjectKey
    pool: str
    track: str = "stable"


@dataclass(frozen=True, slots=True)
class Scale:
    """The desired replicas, and the version to pass when setting them."""

    replicas: int
    version: str


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of `kubectl describe`: `type` is Normal or Warning, `reason` CamelCase, `message` one sentence."""

    kind: str
    key: ObjectKey
    type: str
    reason: str
    message: str
    extra: Mapping[str, str] = field(default_factory=dict)


class LeaseApi(Protocol):
    """Leases of one namespace. Every call raises Unreachable or Forbidden."""

    async def acquire(self, name: str, holder: str, ttl_s: float) -> bool: ...

    async def holder(self, name: str) -> str:
        """The current or last holder; empty if there was never one."""
        ...

    async def release(self, name: str, holder: str) -> None:
        """Release it early; does nothing if it is not ours."""
        ...


class Cluster(Protocol):
    """The seam. Every call has its own time limit and raises Unreachable, NotFound or Conflict."""

    @property
    def leases(self) -> LeaseApi: ...

    def watch(self, kind: str) -> AsyncIterator[WatchEvent[Manifest]]:
        """Objects of a kind (InferenceService, Tenant, InferenceRoute, AcceleratorProfile, Secret)."""
        ...

    def watch_endpoints(self) -> AsyncIterator[WatchEvent[ServiceEndpoints]]: ...

    async def get_scale(self, target: ScaleTarget) -> Scale: ...

    async def set_scale(self, target: ScaleTarget, replicas: int, version: str) -> Scale:
        """Set desired replicas; Conflict when `version` is no longer current."""
        ...

    async def scale_writer(self, target: ScaleTarget) -> str:
        """Who set the desired replicas last: a field manager, or the autoscaler's object; empty if that is unknown."""
        ...

    async def patch_status(
        self, kind: str, key: ObjectKey, status: Mapping[str, Any], manager: str, version: str = ""
    ) -> None:
        """Apply a partial status under a field manager: only the fields given are that manager's.

        With a `version` (the object's resourceVersion) only onto that one; else Conflict.
        """
        ...

    async def get_state(self, service: ServiceRef) -> Mapping[str, str] | None: ...

    async def put_state(self, service: ServiceRef, data: Mapping[str, str]) -> None:
        """Store data for a service. It outlives the service until `delete_state`."""
        ...

    async def list_states(self) -> tuple[ServiceRef, ...]: ...

    async def delete_state(self, service: ServiceRef) -> None:
        """Remove the data stored for a service of this uid, if any."""
        ...

    async def event(self, event: Event) -> None:
        """Record an event for users; never raises, never blocks the caller for long."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class StoreChange(Generic[K, V]):
    """The old and the new state of one entry; None if it did not or does not exist."""

    key: K
    before: V | None
    after: V | None


class ResourceStore(dict[K, V]):
    """Entries by key. `version_of` gives an entry's resourceVersion, where late reports must be dropped."""

    def __init__(self, version_of: Callable[[V], int] | None = None) -> None:
        super().__init__()
        self._version_of = version_of

    def apply(
        self, event: WatchEvent[T], key: Callable[[T], K], read: Callable[[T], V | None]
    ) -> list[StoreChange[K, V]]:
        """Apply one event of a watch. An item for which `read` returns None has no entry."""
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
        """Whether this version of an entry, or a newer one, is stored."""
        known = self.get(key)
        return known is not None and self._version_of is not None and version <= self._version_of(known)

    def put(self, key: K, entry: V) -> StoreChange[K, V] | None:
        """Store an entry; None if it is not newer than the stored one."""
        if self._version_of is not None and self.knows(key, self._version_of(entry)):
            return None
        before = self.get(key)
        self[key] = entry
        return StoreChange(key, before, entry)

    def remove(self, key: K, version: int | None = None) -> StoreChange[K, V] | None:
        """Delete an entry whose last version was `version`; None if a newer one is stored, or none."""
        known = self.get(key)
        if known is None or (
            version is not None and self._version_of is not None and self._version_of(known) > version
        ):
            return None
        return StoreChange(key, self.pop(key), None)

    def replace(self, entries: Mapping[K, V], stays: Callable[[V], bool] = lambda _: False) -> list[StoreChange[K, V]]:
        """Apply a complete list: entries that it lacks are deleted, except those that `stays` keeps."""
        changes = [change for key, entry in entries.items() if (change := self.put(key, entry))]
        absent = [key for key, known in self.items() if key not in entries and not stays(known)]
        return [*changes, *(StoreChange(key, self.pop(key), None) for key in absent)]


def namespaced_key(manifest: Manifest) -> ObjectKey:
    """An object's key; a manifest from a file may omit the default namespace."""
    metadata = manifest.get("metadata", {})
    return ObjectKey(metadata.get("namespace") or "default", metadata.get("name", ""))
