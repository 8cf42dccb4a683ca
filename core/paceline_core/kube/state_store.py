"""State that the autoscaler stores for services: one ConfigMap each, in paceline's own namespace.

An owner reference cannot cross namespaces, so nothing here goes with its service by itself: each ConfigMap carries its
service's namespace, name and uid as labels, and the autoscaler deletes those whose uid is gone. A namespace holds no
dot, so the names of two services never meet; the longest one has 121 characters.
"""

from collections.abc import Mapping
from typing import Final

from paceline_core.errors import NotFound
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Manifest, Namespaces, ObjectKey, ServiceRef
from paceline_core.objects.naming import LABEL_SERVICE

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
        """Store, in place of what stood there for another uid."""
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
        found = await self._api.snapshot(_CONFIG, self._namespace, selector=LABEL_UID, trim=_without_data)
        stored = [_service(item) for item in found.items]
        return tuple(each for each in stored if not self._watched or each.key.namespace in self._watched)

    async def delete(self, service: ServiceRef) -> None:
        """Remove what is stored for this uid; what another uid stored since stays."""
        found = await self._found(service)
        if found is not None:
            await self._api.delete(_CONFIG, self._place(service), found["metadata"]["uid"])

    async def _found(self, service: ServiceRef) -> Manifest | None:
        try:
            found = await self._api.get(_CONFIG, self._place(service))
        except NotFound:
            return None
        return found if _service(found) == service else None

    def _place(self, service: ServiceRef) -> ObjectKey:
        return ObjectKey(self._namespace, state_name(service.key))


def state_name(service: ObjectKey) -> str:
    return f"{PREFIX}{service.namespace}.{service.name}"


def _service(item: Manifest) -> ServiceRef:
    labels = item["metadata"].get("labels") or {}
    key = ObjectKey(labels.get(LABEL_NAMESPACE, ""), labels.get(LABEL_SERVICE, ""))
    return ServiceRef(key, labels.get(LABEL_UID, ""))


def _without_data(item: Manifest) -> Manifest:
    return {"metadata": item["metadata"]}
