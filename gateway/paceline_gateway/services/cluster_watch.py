"""Watches the cluster's objects and endpoints, and keeps the immutable snapshot that requests are checked against.

One task per watch; each event replaces the snapshot, so a request sees either the old one or the new one, complete. The
first snapshot is made when everything has been listed: a partial one would refuse valid keys. A lost watch changes
nothing: the last state stays valid until the next list, however long that takes. An object that cannot be parsed is
left out and named in the log, but keeps its names; the other objects stay.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from paceline_core.auth import ApiKeyRecord
from paceline_core.auth.api_keys import TENANT_LABEL
from paceline_core.errors import PacelineError
from paceline_core.kube import (
    Cluster,
    Deleted,
    Endpoint,
    Listed,
    Namespaces,
    ObjectKey,
    Upserted,
    WatchLost,
)
from paceline_core.kube.cluster import Manifest, ResourceStore, WatchEvent, namespaced_key
from paceline_core.objects.accelerator import AcceleratorProfile
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_ROUTE, INFERENCE_SERVICE, TENANT, Object
from paceline_core.objects.model_names import claimed
from paceline_core.objects.route import InferenceRoute
from paceline_core.objects.service import InferenceService
from paceline_core.objects.tenant import Tenant
from paceline_core.objects.validate import read
from paceline_core.process import cancel, ended
from paceline_core.telemetry import FaultLog, Metrics, get_logger
from paceline_gateway.routing.config_snapshot import ConfigSnapshot, Unread, directory
from paceline_planner.hardware import Accelerator, from_profile

O = TypeVar("O", bound=Object)  # noqa: E741 - an object's type
Read = Callable[[Manifest], Any]
WORKERS = "EndpointSlice"
_log = get_logger(__name__)


class ClusterWatcher:
    """Keeps the snapshot. `on_snapshot` gets each new one, `on_workers` a service's endpoints, `on_tenants` the valid
    Tenants with their statuses, before the snapshot that has them.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespaces: Namespaces,
        on_snapshot: Callable[[ConfigSnapshot], None],
        on_workers: Callable[[str, tuple[Endpoint, ...]], None],
        metrics: Metrics,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespaces.own
        self._key_namespace = namespaces.keys
        self._on_snapshot = on_snapshot
        self._on_workers = on_workers
        self._services: ResourceStore[ObjectKey, InferenceService | Unread] = ResourceStore()
        self._routes: ResourceStore[ObjectKey, InferenceRoute | Unread] = ResourceStore()
        self._tenants: ResourceStore[ObjectKey, Tenant] = ResourceStore()
        self._keys: ResourceStore[ObjectKey, ApiKeyRecord] = ResourceStore()
        self._accelerators: ResourceStore[ObjectKey, Accelerator] = ResourceStore()
        self._workers: ResourceStore[str, tuple[Endpoint, ...]] = ResourceStore()
        self.on_tenants: Callable[[Listed[Tenant] | Upserted[Tenant]], None] = lambda _: None
        self._listed: set[str] = set()
        self._metrics = metrics
        self._complaints = FaultLog(_log)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def unlisted(self) -> str:
        """What has not been listed yet, and the reason if known; empty when everything has been listed."""
        missing = [kind for kind in (*self._stores, WORKERS) if kind not in self._listed]
        reasons = {kind: self._complaints.standing.get(_lost(kind)) for kind in missing}
        return "; ".join(f"{kind} is not listed yet{f': {why}' if why else ''}" for kind, why in reasons.items())

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._watch(kind, *store)) for kind, store in self._stores.items()]
        self._tasks.append(asyncio.create_task(self._watch_endpoints()))

    async def wait(self) -> None:
        """Never return; raise what a watch raised: a snapshot that no longer follows the cluster must not be used."""
        await ended(*self._tasks)  # a draining gateway still needs the watches: waiting must not cancel them

    async def close(self) -> None:
        await cancel(*self._tasks)

    @property
    def _stores(self) -> dict[str, tuple[ResourceStore[ObjectKey, Any], Read]]:
        """The store of each kind, and the function that parses its objects, which returns None to leave one out."""
        return {
            INFERENCE_SERVICE: (self._services, lambda item: _read_named(InferenceService, item)),
            INFERENCE_ROUTE: (self._routes, lambda item: _read_named(InferenceRoute, item)),
            TENANT: (self._tenants, lambda item: _read_object(Tenant, item)),
            "Secret": (self._keys, self._read_key),
            ACCELERATOR_PROFILE: (self._accelerators, _read_profile),
        }

    def _note(self, kind: str, event: WatchEvent[Any]) -> None:
        """Record whether a watch is current; log a lasting fault once."""
        match event:
            case Listed():
                self._listed.add(kind)
                self._complaints.end(_lost(kind))
            case WatchLost(reason):
                self._complaints.begin(_lost(kind), reason)
        current = kind in self._listed and _lost(kind) not in self._complaints.standing
        self._metrics.gauge("paceline_gateway_watch_synced", kind).set(current)

    async def _watch(self, kind: str, store: ResourceStore[ObjectKey, Any], read_item: Read) -> None:
        async for event in self._cluster.watch(kind):
            self._note(kind, event)
            changes = store.apply(event, namespaced_key, read_item)
            matters = any(_judged_by(change.before) != _judged_by(change.after) for change in changes)
            match event:
                case Upserted(item) if kind == TENANT:
                    tenant = self._tenants.get(namespaced_key(item))
                    if tenant is not None and tenant.namespace == self._namespace:
                        self.on_tenants(Upserted(tenant))
                case Listed() | Deleted() if kind == TENANT:
                    honoured = (tenant for tenant in self._tenants.values() if tenant.namespace == self._namespace)
                    self.on_tenants(Listed(tuple(honoured)))
            if (matters or isinstance(event, Listed)) and self._listed.issuperset(self._stores):
                objects = (self._services.values(), self._routes.values(), self._tenants.values(), self._keys.values())
                self._on_snapshot(directory(*objects, self._namespace, self._accelerators.values()))

    async def _watch_endpoints(self) -> None:
        async for event in self._cluster.watch_endpoints():
            self._note(WORKERS, event)
            for change in self._workers.apply(event, lambda item: str(item.service), lambda item: item.endpoints):
                self._on_workers(change.key, change.after or ())

    def _read_key(self, item: Manifest) -> ApiKeyRecord | None:
        metadata = item.get("metadata", {})
        if metadata.get("namespace") != self._key_namespace or TENANT_LABEL not in (metadata.get("labels") or {}):
            return None
        try:
            record = ApiKeyRecord.from_manifest(item)
            bytes.fromhex(record.salt)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            _log.warning(
                "a key Secret cannot be read", extra={"object": str(namespaced_key(item)), "reason": repr(error)}
            )
            return None
        return record


def _read_object(kind: type[O], item: Manifest) -> O | None:
    try:
        return read(kind, item)
    except PacelineError as error:
        fields = {"kind": kind.__name__, "object": str(namespaced_key(item)), "why": str(error)}
        _log.warning("an object cannot be read", extra=fields)
        return None


def _read_named(kind: type[O], item: Manifest) -> O | Unread:
    found = _read_object(kind, item)
    return Unread(*claimed(item)) if found is None else found


def _read_profile(item: Manifest) -> Accelerator | None:
    profile = _read_object(AcceleratorProfile, item)
    return None if profile is None else from_profile(profile.name, profile.spec)


def _judged_by(item: object) -> object:
    """All of an object except its status and what changes with the status."""
    if not isinstance(item, Object):
        return item
    metadata = item.metadata
    return (getattr(item, "spec", None), metadata.uid, metadata.annotations, metadata.creation_timestamp)


def _lost(kind: str) -> str:
    return f"the watch of {kind} is lost; what is known goes on"
