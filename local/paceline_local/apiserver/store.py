"""Stores of one run's API server: objects by kind and key, leases, scales and the autoscaler's state.

Objects and scales have versions as in a real API server. A lease has one holder for a limited time (seconds of a
monotonic clock). The autoscaler's state, on Kubernetes a ConfigMap for each service, lasts until the run ends.

Status is kept by field manager, as server-side apply with force does it: an apply replaces what its manager applied
before. A field belongs to the manager that wrote it last, and is removed when that one no longer sends it. `conditions`
is a list that several managers share, keyed by `type`; every other list belongs to one manager and is replaced as a
whole.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paceline_core.clock import rfc3339
from paceline_core.errors import Conflict, InvalidInput, NotFound
from paceline_core.kube.cluster import Manifest, ObjectKey, Scale, ScaleTarget, ServiceEndpoints, ServiceRef
from paceline_core.kube.local import endpoints_json
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_ROUTE, INFERENCE_SERVICE, TENANT
from paceline_local.apiserver.watch_feed import LIMIT, Topics, WatchFeed


@dataclass(frozen=True, slots=True)
class Lease:
    holder: str
    until: float


class Leases:
    """Leases by name; an expired lease is free."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}

    def take(self, name: str, holder: str, ttl_s: float, now: float) -> None:
        held = self._leases.get(name)
        if held and held.holder != holder and now < held.until:
            raise Conflict(f"lease {name} is held by {held.holder} for another {held.until - now:.1f} s")
        self._leases[name] = Lease(holder, now + ttl_s)

    def holder(self, name: str) -> str:
        """The current or last holder; empty if it is free."""
        held = self._leases.get(name)
        return "" if held is None else held.holder

    def release(self, name: str, holder: str) -> None:
        if (held := self._leases.get(name)) and held.holder == holder:
            del self._leases[name]


KINDS = (INFERENCE_SERVICE, TENANT, INFERENCE_ROUTE, ACCELERATOR_PROFILE, "Secret")


class Objects:
    """Manifests; every change gets the next version and goes to the kind's watchers."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._specs: dict[str, dict[ObjectKey, Manifest]] = {kind: {} for kind in KINDS}
        self._parts: dict[tuple[str, ObjectKey], dict[str, Any]] = {}
        self._version = 0

    def list(self, kind: str) -> list[Manifest]:
        return list(self._kind(kind).values())

    def get(self, kind: str, key: ObjectKey) -> Manifest:
        try:
            return self._kind(kind)[key]
        except KeyError:
            raise NotFound(f"{kind} {key} does not exist") from None

    def put(self, manifest: Manifest) -> None:
        key = key_of(manifest)
        status = merged_status(self._parts.get((manifest["kind"], key), {}))
        self._change(manifest["kind"], key, {**manifest, "status": status})

    def remove(self, kind: str, key: ObjectKey) -> None:
        last = self.get(kind, key)
        del self._specs[kind][key]
        self._parts.pop((kind, key), None)
        self._topics.publish(kind, {"type": "GONE", "item": last})

    def patch_status(
        self, kind: str, key: ObjectKey, status: Mapping[str, Any], manager: str, version: str = ""
    ) -> None:
        """Apply a partial status; publishes nothing if nothing changed. Raises Conflict at any other version."""
        current = self.get(kind, key)
        found = current["metadata"].get("resourceVersion", "")
        if version and version != found:
            raise Conflict(f"{kind} {key} is at version {found}, not {version}")
        parts = self._parts[kind, key] = apply_status(self._parts.get((kind, key), {}), status, manager)
        whole = merged_status(parts)
        if whole != current["status"]:
            self._change(kind, key, {**current, "status": whole})

    def _kind(self, kind: str) -> dict[ObjectKey, Manifest]:
        if kind not in self._specs:
            raise NotFound(f"no objects of kind {kind!r} are served here; the kinds are {', '.join(KINDS)}")
        return self._specs[kind]

    def _change(self, kind: str, key: ObjectKey, manifest: Manifest) -> None:
        self._version += 1
        item = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": str(self._version)}}
        self._kind(kind)[key] = item
        self._topics.publish(kind, {"type": "CHANGED", "item": item})


def key_of(manifest: Manifest) -> ObjectKey:
    metadata = manifest["metadata"]
    return ObjectKey(metadata.get("namespace", ""), metadata["name"])


_KEYED = {"conditions": "type"}


def apply_status(parts: Mapping[str, Any], status: Mapping[str, Any], manager: str) -> dict[str, Any]:
    """The parts by manager after `manager` has applied `status`: the others lose the fields that it took."""
    others = {name: _less(part, status) for name, part in parts.items() if name != manager}
    return {**others, manager: dict(status)}


def merged_status(parts: Mapping[str, Any]) -> dict[str, Any]:
    """All managers' parts together, as readers see them."""
    whole: dict[str, Any] = {}
    for part in parts.values():
        whole = _joined(whole, part)
    return whole


def _joined(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    whole = dict(left)
    for name, value in right.items():
        there = left.get(name)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            whole[name] = _joined(there, value)
        else:
            whole[name] = [*there, *value] if name in _KEYED and isinstance(there, list) else value
    return whole


def _less(part: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
    rest: dict[str, Any] = {}
    for name, value in part.items():
        if name not in taken:
            rest[name] = value
        elif isinstance(value, Mapping) and isinstance(taken[name], Mapping):
            rest[name] = _less(value, taken[name])
        elif key := _KEYED.get(name):
            replaced = {item[key] for item in taken[name]}
            rest[name] = [item for item in value if item[key] not in replaced]
    return {name: value for name, value in rest.items() if value is not None}


class Scales:
    """A Scale per pool. Of two writers only one succeeds: each must name the version that it read."""

    def __init__(self) -> None:
        self._scales: dict[ScaleTarget, Scale] = {}

    def __iter__(self) -> Iterator[ScaleTarget]:
        return iter(self._scales)

    def create(self, target: ScaleTarget, replicas: int) -> None:
        self._scales[target] = Scale(replicas, "1")

    def get(self, target: ScaleTarget) -> Scale:
        try:
            return self._scales[target]
        except KeyError:
            raise NotFound(f"{target.service} has no pool {target.pool!r} on track {target.track!r}") from None

    def set(self, target: ScaleTarget, replicas: int, version: str) -> Scale:
        current = self.get(target)
        if replicas < 0:
            raise InvalidInput("replicas", "cannot be negative")
        if version != current.version:
            raise Conflict(
                f"the scale of {target.service}-{target.pool} is at version {current.version}, not {version}"
            )
        self._scales[target] = Scale(replicas, str(int(current.version) + 1))
        return self._scales[target]


STATE_BYTES = 1 << 20


class InMemoryStateStore:
    """Data by service. A name has what was stored last, for any uid."""

    def __init__(self) -> None:
        self._stored: dict[ObjectKey, tuple[str, dict[str, str]]] = {}

    def get(self, service: ServiceRef) -> Mapping[str, str]:
        uid, data = self._stored.get(service.key, ("", None))
        if data is None or uid != service.uid:
            raise NotFound(f"nothing is stored for {service.key} of uid {service.uid!r}")
        return data

    def put(self, service: ServiceRef, data: Mapping[str, str]) -> None:
        if sum(len(name) + len(value.encode()) for name, value in data.items()) > STATE_BYTES:
            raise InvalidInput("data", f"a ConfigMap holds at most {STATE_BYTES} bytes")
        self._stored[service.key] = (service.uid, dict(data))

    def list(self) -> tuple[ServiceRef, ...]:
        return tuple(ServiceRef(key, uid) for key, (uid, _) in self._stored.items())

    def delete(self, service: ServiceRef) -> None:
        if self._stored.get(service.key, ("", {}))[0] == service.uid:
            self._stored.pop(service.key, None)


ENDPOINTS = "endpoints"
MAX_EVENTS = 256


class ObjectStore:
    def __init__(self, feed_limit: int = LIMIT) -> None:
        self.topics = Topics(feed_limit)
        self.objects = Objects(self.topics)
        self.scales = Scales()
        self.leases = Leases()
        self.events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self.states = InMemoryStateStore()
        self._endpoints: dict[ObjectKey, ServiceEndpoints] = {}

    def watch(self, topic: str) -> tuple[dict[str, Any], WatchFeed]:
        """The first line of a watch, and the feed of the next ones; raises NotFound for an unknown kind."""
        if topic == ENDPOINTS:
            items: list[Any] = [endpoints_json(item) for item in self._endpoints.values()]
        else:
            items = self.objects.list(topic)
        return {"type": "LISTED", "items": items}, self.topics.open(topic)

    def put_endpoints(self, item: ServiceEndpoints) -> None:
        if self._endpoints.get(item.service) != item:
            self._endpoints[item.service] = item
            self.topics.publish(ENDPOINTS, {"type": "CHANGED", "item": endpoints_json(item)})

    def add_event(self, event: Mapping[str, Any], moment: datetime) -> None:
        self.events.append({"time": rfc3339(moment), **event})
