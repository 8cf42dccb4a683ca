"""The Cluster seam over a Kubernetes API server, for gateway and autoscaler.

Services and routes are watched in the watched namespaces, Tenants only in paceline's own, key Secrets only in theirs,
profiles cluster-wide, or not at all without permission to read them (then the built-in ones apply). Workers come from
EndpointSlices (`slices`: for the gateway, which may not read Pods; the revision is unknown) or from Pods.
Writes are server-side apply under the given manager; replicas are set through the scale subresource, guarded by the
version that was read. Known hole: Events have the service uid that this process watched last; the object may have been
recreated since.

The autoscaler's stored state is one ConfigMap for each service, in paceline's own namespace. An owner reference cannot
cross namespaces, so the ConfigMap has its service's namespace, name and uid as labels, and the autoscaler deletes those
whose uid is gone. A namespace has no dot, so names of two services never collide; the longest has 121 characters.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Literal

from paceline_core.clock import Clock, SystemClock
from paceline_core.errors import Conflict, Forbidden, NotFound, PacelineError
from paceline_core.kube.client.client import KubeClient, key_of
from paceline_core.kube.client.resource import RESOURCES, Resource
from paceline_core.kube.client.watch import WatchLiveness, WatchOptions, watch_all
from paceline_core.kube.cluster import (
    Deleted,
    Event,
    Listed,
    Manifest,
    Namespaces,
    ObjectKey,
    Scale,
    ScaleTarget,
    ServiceEndpoints,
    ServiceRef,
    Upserted,
    WatchEvent,
)
from paceline_core.kube.endpoints import EndpointTracker, read_pod, read_slice
from paceline_core.kube.events import EventRecorder
from paceline_core.kube.leader_election import LeaseClient
from paceline_core.kube.scale_writers import HPA_MANAGER, autoscaler_of, replicas_writer
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_SERVICE, TENANT
from paceline_core.objects.naming import LABEL_SERVICE, LABEL_TENANT, deployment_name
from paceline_core.telemetry import get_logger

PREFIX: Final = "paceline-scaling."
LABEL_NAMESPACE: Final = "paceline.dev/service-namespace"
LABEL_UID: Final = "paceline.dev/service-uid"
_CONFIG: Final = RESOURCES["ConfigMap"]


class ConfigMapStateStore:
    def __init__(self, api: KubeClient, namespaces: Namespaces, manager: str) -> None:
        self._api = api
        self._namespace = namespaces.own
        self._watched = namespaces.watched
        self._manager = manager

    async def get(self, service: ServiceRef) -> Mapping[str, str] | None:
        found = await self._found(service)
        data: Mapping[str, str] | None = None if found is None else found.get("data") or {}
        return data

    async def put(self, service: ServiceRef, data: Mapping[str, str]) -> None:
        """Store data in place of any that has another uid."""
        labels = {
            LABEL_NAMESPACE: service.key.namespace,
            LABEL_SERVICE: service.key.name,
            LABEL_UID: service.uid,
            "app.kubernetes.io/part-of": "paceline",
        }
        metadata = {"namespace": self._namespace, "name": state_name(service.key), "labels": labels}
        body = {"apiVersion": _CONFIG.api_version, "kind": _CONFIG.kind, "metadata": metadata, "data": dict(data)}
        await self._api.apply(_CONFIG, body, self._manager)

    async def list(self) -> tuple[ServiceRef, ...]:
        found = await self._api.snapshot(
            _CONFIG, self._namespace, selector=LABEL_UID, trim=lambda item: {"metadata": item["metadata"]}
        )
        stored = [_service(item) for item in found.items]
        return tuple(each for each in stored if not self._watched or each.key.namespace in self._watched)

    async def delete(self, service: ServiceRef) -> None:
        """Remove the data stored for this uid; data of another uid stays."""
        found = await self._found(service)
        if found is not None:
            await self._api.delete(
                _CONFIG, ObjectKey(self._namespace, state_name(service.key)), found["metadata"]["uid"]
            )

    async def _found(self, service: ServiceRef) -> Manifest | None:
        try:
            found = await self._api.get(_CONFIG, ObjectKey(self._namespace, state_name(service.key)))
        except NotFound:
            return None
        return found if _service(found) == service else None


def state_name(service: ObjectKey) -> str:
    return f"{PREFIX}{service.namespace}.{service.name}"


def _service(item: Manifest) -> ServiceRef:
    labels = item["metadata"].get("labels") or {}
    key = ObjectKey(labels.get(LABEL_NAMESPACE, ""), labels.get(LABEL_SERVICE, ""))
    return ServiceRef(key, labels.get(LABEL_UID, ""))


Events = AsyncGenerator[WatchEvent[Manifest], None]
Workers = Literal["slices", "pods"]
SCALER: Final = "paceline-autoscaler"
REPORTERS: Final = {"slices": "paceline-gateway", "pods": SCALER}
ASK_AGAIN_S: Final = 10.0
SCALE_TRIES: Final = 3
_log = get_logger(__name__)


class KubernetesCluster:
    """`pulses` hold the liveness of the watches. `close` also closes the api."""

    def __init__(
        self,
        api: KubeClient,
        namespaces: Namespaces,
        workers: Workers = "slices",
        clock: Clock | None = None,
    ) -> None:
        self._api = api
        self._namespaces = namespaces
        self._workers: Workers = workers
        self._clock = clock or SystemClock()
        self.leases = LeaseClient(api, namespaces.own, self._clock)
        self._events = EventRecorder(api, REPORTERS[workers], self._clock, self._uid)
        self._states = ConfigMapStateStore(api, namespaces, SCALER)
        self._uids: dict[ObjectKey, str] = {}
        self.pulses: list[WatchLiveness] = []

    async def close(self) -> None:
        await self._events.close()
        await self._api.close()

    def watch(self, kind: str) -> AsyncIterator[WatchEvent[Manifest]]:
        if kind == ACCELERATOR_PROFILE:
            return self._profiles()
        if kind == TENANT:
            return self._watch(RESOURCES[kind], (self._namespaces.own,))
        if kind == "Secret":
            return self._watch(RESOURCES[kind], (self._namespaces.keys,), LABEL_TENANT)
        events = self._watch(RESOURCES[kind], self._namespaces.watched)
        return self._knowing_uids(events) if kind == INFERENCE_SERVICE else events

    def watch_endpoints(self) -> AsyncIterator[WatchEvent[ServiceEndpoints]]:
        if self._workers == "pods":
            return self._endpoints("Pod", EndpointTracker(read_pod))
        return self._endpoints("EndpointSlice", EndpointTracker(read_slice))

    async def get_scale(self, target: ScaleTarget) -> Scale:
        return _scale(await self._api.get(RESOURCES["Deployment"], _deployment(target), "scale"))

    async def set_scale(self, target: ScaleTarget, replicas: int, version: str) -> Scale:
        """Set desired replicas against a version; Conflict only if the replicas themselves have changed.

        The Deployment's version also changes with every write of its status, most of all while it scales.
        """
        key = _deployment(target)
        seen = _Version.parse(version)
        for _ in range(SCALE_TRIES - 1):
            try:
                return await self._put_scale(key, replicas, seen)
            except Conflict:
                now = _Version.parse((await self.get_scale(target)).version)
                if (now.uid, now.replicas) != (seen.uid, seen.replicas):
                    raise
                seen = now
        return await self._put_scale(key, replicas, seen)

    async def scale_writer(self, target: ScaleTarget) -> str:
        """By the Deployment's managedFields; for a HorizontalPodAutoscaler the cluster's own controller writes."""
        key = _deployment(target)
        writer = replicas_writer(await self._api.get(RESOURCES["Deployment"], key))
        if writer != HPA_MANAGER:
            return writer
        try:
            autoscalers = await self._api.list(RESOURCES["HorizontalPodAutoscaler"], key.namespace)
        except (Forbidden, NotFound):
            autoscalers = []
        return autoscaler_of(key.name, autoscalers)

    async def _put_scale(self, key: ObjectKey, replicas: int, seen: "_Version") -> Scale:
        place = {"namespace": key.namespace, "name": key.name}
        metadata = {**place, "uid": seen.uid, "resourceVersion": seen.resource_version}
        body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}}
        return _scale(await self._api.replace(RESOURCES["Deployment"], key, body, "scale", SCALER))

    async def patch_status(
        self, kind: str, key: ObjectKey, status: Mapping[str, Any], manager: str, version: str = ""
    ) -> None:
        resource = RESOURCES[kind]
        metadata = {"namespace": key.namespace, "name": key.name} if resource.namespaced else {"name": key.name}
        if version:
            metadata["resourceVersion"] = version
        body = {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata, "status": dict(status)}
        await self._api.apply(resource, body, manager, subresource="status")

    async def get_state(self, service: ServiceRef) -> Mapping[str, str] | None:
        return await self._states.get(service)

    async def put_state(self, service: ServiceRef, data: Mapping[str, str]) -> None:
        await self._states.put(service, data)

    async def list_states(self) -> tuple[ServiceRef, ...]:
        return await self._states.list()

    async def delete_state(self, service: ServiceRef) -> None:
        await self._states.delete(service)

    async def event(self, event: Event) -> None:
        self._events.record(event)

    def _watch(self, resource: Resource, namespaces: tuple[str, ...], selector: str = "") -> Events:
        pulse = WatchLiveness(resource.kind, self._clock)
        self.pulses.append(pulse)
        return watch_all(self._api, WatchOptions(resource, namespaces, selector), pulse)

    async def _endpoints(
        self, kind: str, roster: EndpointTracker
    ) -> AsyncGenerator[WatchEvent[ServiceEndpoints], None]:
        async with aclosing(self._watch(RESOURCES[kind], self._namespaces.watched, LABEL_SERVICE)) as events:
            async for event in events:
                for change in roster.take(event):
                    yield change

    async def _knowing_uids(self, watch: Events) -> Events:
        async with aclosing(watch) as events:
            async for event in events:
                match event:
                    case Listed(items):
                        self._uids = {key_of(item): item["metadata"]["uid"] for item in items}
                    case Upserted(item):
                        self._uids[key_of(item)] = item["metadata"]["uid"]
                    case Deleted(item):
                        self._uids.pop(key_of(item), None)
                yield event

    async def _profiles(self) -> Events:
        warned = False
        while not await self._readable(RESOURCES[ACCELERATOR_PROFILE], quiet=warned):
            if not warned:
                yield Listed(())
            warned = True
            await self._clock.sleep(ASK_AGAIN_S)
        async with aclosing(self._watch(RESOURCES[ACCELERATOR_PROFILE], ())) as events:
            async for event in events:
                yield event

    async def _readable(self, resource: Resource, *, quiet: bool) -> bool:
        """Whether to begin a watch; also true while the server is unreachable, since a watch waits for it."""
        try:
            await self._api.list(resource)
        except (Forbidden, NotFound) as error:
            if not quiet:
                fields = {"kind": resource.kind, "reason": str(error)}
                _log.info("this kind cannot be read here; built-in ones serve", extra=fields)
            return False
        except PacelineError:
            return True
        return True

    async def _uid(self, kind: str, key: ObjectKey) -> str:
        if kind == INFERENCE_SERVICE and key in self._uids:
            return self._uids[key]
        resource = RESOURCES.get(kind)
        return str((await self._api.get(resource, key))["metadata"]["uid"]) if resource else ""


def _deployment(target: ScaleTarget) -> ObjectKey:
    return ObjectKey(target.service.namespace, deployment_name(target.service.name, target.pool, target.track))


@dataclass(frozen=True, slots=True)
class _Version:
    """What a reader of a scale saw: the object, its replicas, and the version of the whole object."""

    uid: str
    replicas: int
    resource_version: str

    def __str__(self) -> str:
        return f"{self.uid}/{self.replicas}/{self.resource_version}"

    @classmethod
    def parse(cls, text: str) -> "_Version":
        try:
            uid, replicas, resource_version = text.split("/")
            return cls(uid, int(replicas), resource_version)
        except ValueError:
            raise Conflict(f"{text!r} is no version of a scale; read the scale first") from None


def _scale(found: Manifest) -> Scale:
    metadata, replicas = found["metadata"], int((found.get("spec") or {}).get("replicas") or 0)
    return Scale(replicas, str(_Version(metadata["uid"], replicas, metadata["resourceVersion"])))
