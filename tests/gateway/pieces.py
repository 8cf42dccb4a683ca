"""Small real things that the pure tests share."""

from typing import Any

from tests.gateway.manifests import NAMESPACE

from paceline_core.auth import ApiKeyRecord
from paceline_core.kube import Endpoint
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.route import InferenceRoute
from paceline_core.objects.service import InferenceService
from paceline_core.objects.tenant import Tenant
from paceline_core.objects.validate import read
from paceline_core.wire import KVLoad, LoadReport, StepTime, WorkerState
from paceline_gateway.routing.config_snapshot import ConfigSnapshot, directory

SERVICE = "default/chat"


def endpoint(name: str = "w0", *, port: int = 1, ready: bool = True, terminating: bool = False) -> Endpoint:
    """A worker as the cluster lists it."""
    return Endpoint(name, "main", "stable", "r1", "127.0.0.1", port, ready=ready, terminating=terminating)


def report(name: str = "w0", **changes: Any) -> LoadReport:
    """A line of a worker's load stream: 4 slots, 1 ms per prompt token."""
    fields: dict[str, Any] = {
        "worker": name,
        "service": SERVICE,
        "revision": "r1",
        "pool": "main",
        "state": WorkerState.READY,
        "slots": 4,
        "kv": KVLoad(page_tokens=16, total=100, free=100),
        "step_time": StepTime(base=0.01, prefill=0.001),
        "max_model_len": 4096,
    }
    return LoadReport(**(fields | changes))


def snapshot(*manifests: Manifest) -> ConfigSnapshot:
    """The directory of these objects."""
    by_kind: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        by_kind.setdefault(manifest["kind"], []).append(manifest)
    return directory(
        [read(InferenceService, item) for item in by_kind.get("InferenceService", [])],
        [read(InferenceRoute, item) for item in by_kind.get("InferenceRoute", [])],
        [read(Tenant, item) for item in by_kind.get("Tenant", [])],
        [ApiKeyRecord.from_manifest(item) for item in by_kind.get("Secret", [])],
        NAMESPACE,
    )
