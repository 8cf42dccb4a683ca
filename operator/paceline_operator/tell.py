"""Events, counted like every other write. They pass no budget of ours: the recorder has one for each object."""

from typing import cast

from paceline_core.clock import Clock
from paceline_core.kube import ObjectKey
from paceline_core.kube.api.resource import Resource
from paceline_core.kube.api.server import KubeClient
from paceline_core.kube.cluster import Manifest
from paceline_core.kube.events import EventRecorder, UidOf
from paceline_core.telemetry import Metrics


class _CountingApi:
    """The part of an API server that a recorder uses."""

    def __init__(self, api: KubeClient, metrics: Metrics) -> None:
        self._api = api
        self._metrics = metrics
        self.sparse = api.sparse

    async def get(self, resource: Resource, key: ObjectKey) -> Manifest:
        return await self._api.get(resource, key)

    async def create(self, resource: Resource, namespace: str, body: Manifest) -> Manifest:
        self._count("create", resource)
        return await self._api.create(resource, namespace, body)

    async def merge(self, resource: Resource, key: ObjectKey, patch: Manifest) -> Manifest:
        self._count("merge", resource)
        return await self._api.merge(resource, key, patch)

    def _count(self, verb: str, resource: Resource) -> None:
        self._metrics.counter("paceline_operator_writes_total", verb, resource.kind).inc()


def event_recorder(api: KubeClient, clock: Clock, uid_of: UidOf, metrics: Metrics) -> EventRecorder:
    """The operator's recorder."""
    return EventRecorder(cast("KubeClient", _CountingApi(api, metrics)), "paceline-operator", clock, uid_of)
