"""Our own client on the harness's API server: as its administrator, and as a pod's account with few rights."""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.cluster.harness.workbench import Workbench

from paceline_core.clock import Clock
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import ClientTimeouts, KubeClient
from paceline_core.kube.client.credentials import Access
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Manifest, WatchEvent

T = TypeVar("T")
NAMESPACE = RESOURCES["Namespace"]
DEPLOYMENT = RESOURCES["Deployment"]
SERVICE = RESOURCES["InferenceService"]
OPERATOR, REPLICAS, SCALER = "paceline-operator", "paceline-replicas", "paceline-autoscaler"
PATIENCE_S = 30.0


@asynccontextmanager
async def administrator(bench: Workbench, clock: Clock | None = None) -> AsyncIterator[KubeClient]:
    """Every right."""
    api = await KubeClient.connect(Access(bench.kubeconfig), clock, ClientTimeouts())
    try:
        yield api
    finally:
        await api.close()


@asynccontextmanager
async def pod_account(bench: Workbench, place: str, folder: Path) -> AsyncIterator[KubeClient]:
    """What a pod of the namespace's `default` account finds, no right given."""
    kubectl = bench.kubectl.within(place)
    kubectl("wait", "--for=create", "serviceaccount/default", f"--timeout={PATIENCE_S:.0f}s")
    (folder / "token").write_text(kubectl("create", "token", "default").strip())
    (folder / "ca.crt").symlink_to(bench.machine.credentials.file("ca.crt"))
    host, _, port = bench.machine.server.removeprefix("https://").partition(":")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    api = await KubeClient.connect(Access(account=folder, environ=environ))
    try:
        yield api
    finally:
        await api.close()


@asynccontextmanager
async def reading(watch: AsyncIterator[WatchEvent[T]]) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
    """A watch that is closed behind its reader, which waits for nothing longer than its patience."""
    assert isinstance(watch, AsyncGenerator)
    async with aclosing(watch):
        yield _patient(watch)


@asynccontextmanager
async def namespace(api: KubeClient) -> AsyncIterator[str]:
    """One of a test's own; nothing is waited for, so no pod may be wanted in it at once."""
    name = f"test-{secrets.token_hex(4)}"
    await api.create(NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    await api.delete(NAMESPACE, ObjectKey("", name))


async def _patient(watch: AsyncIterator[WatchEvent[T]]) -> AsyncIterator[WatchEvent[T]]:
    while True:
        async with asyncio.timeout(PATIENCE_S):
            event = await anext(watch)
        yield event


def config(namespace: str, name: str, **data: str) -> Manifest:
    """A ConfigMap."""
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def deployment(namespace: str, name: str, replicas: int | None = None, image: str = "a:1") -> Manifest:
    """A Deployment whose pods nobody runs."""
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "worker", "image": image}]}}
    spec: dict[str, Any] = {"selector": {"matchLabels": {"app": name}}, "template": template}
    if replicas is not None:
        spec["replicas"] = replicas
    return {**_head("apps/v1", "Deployment", namespace, name), "spec": spec}


def replicas_only(namespace: str, name: str, replicas: int) -> Manifest:
    """What the second field manager applies."""
    return {**_head("apps/v1", "Deployment", namespace, name), "spec": {"replicas": replicas}}


def service(namespace: str, name: str) -> Manifest:
    """The smallest InferenceService."""
    text = """{"model": {"source": "builtin://demo"},
               "pools": [{"name": "main", "accelerator": "cpu", "replicas": {"min": 1, "max": 2}}]}"""
    return {**_head(SERVICE.api_version, "InferenceService", namespace, name), "spec": json.loads(text)}


def owners_of_replicas(found: Manifest) -> set[str]:
    """The managers that managedFields names for `.spec.replicas`."""
    entries = found["metadata"]["managedFields"]
    return {entry["manager"] for entry in entries if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})}


async def version_of(api: KubeClient, key: ObjectKey) -> str:
    """The version of a Deployment that no controller changes any more."""
    before = ""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await api.get(DEPLOYMENT, key)
            version = str(found["metadata"]["resourceVersion"])
            settled = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
            if settled and version == before:
                return version
            before = version
            await asyncio.sleep(0.3)


def _head(version: str, kind: str, namespace: str, name: str) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"namespace": namespace, "name": name}}
