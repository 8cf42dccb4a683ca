"""The sources of a bundle's pieces: which objects, which pods' logs and metrics. Pure, from the listed objects."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from paceline_cli.kube.session import proxied
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_ROUTE, INFERENCE_SERVICE, TENANT
from paceline_core.objects.naming import LABEL_SERVICE

Manifest = Mapping[str, Any]

OURS: Final = "app.kubernetes.io/part-of=paceline"
WORKERS: Final = LABEL_SERVICE
NAME: Final = "app.kubernetes.io/name"
ADMIN_PORTS: Final = {
    "paceline-operator": 8070,
    "paceline-autoscaler": 8090,
    "paceline-gateway": 8081,
    "paceline-worker": 8001,
}
PODS: Final = 100
LOG_LINES: Final = 2000
_ABOUT: Final = frozenset({INFERENCE_SERVICE, INFERENCE_ROUTE, TENANT, "Deployment", "ReplicaSet", "Pod"})


@dataclass(frozen=True, slots=True)
class Listing:
    kind: str
    namespace: str
    selector: str = ""

    @property
    def path(self) -> str:
        return f"objects/{self.namespace or 'all'}/{self.kind}{'' if self.selector != OURS else '-paceline'}.json"


@dataclass(frozen=True, slots=True)
class Reading:
    """A text that one GET returns."""

    path: str
    url: str
    params: tuple[tuple[str, str], ...] = ()


def listings(namespaces: Sequence[str], system: str) -> Iterator[Listing]:
    """All of our objects, and Events; never Secrets or ConfigMaps."""
    yield Listing(ACCELERATOR_PROFILE, "")
    yield Listing(TENANT, system)
    for namespace in namespaces:
        yield Listing(INFERENCE_SERVICE, namespace)
        yield Listing(INFERENCE_ROUTE, namespace)
        for kind in ("Deployment", "Pod", "Service", "EndpointSlice", "PodDisruptionBudget"):
            yield Listing(kind, namespace, WORKERS)
    for kind in ("Deployment", "Pod", "Service", "PodDisruptionBudget", "NetworkPolicy", "Lease"):
        yield Listing(kind, system, OURS)
    yield from (Listing("Event", namespace) for namespace in dict.fromkeys((*namespaces, system)))


VERSIONS: Final = (
    Reading("versions/kubernetes.json", "/version"),
    Reading("versions/paceline.dev.json", "/apis/paceline.dev"),
)
"""The versions of Kubernetes, and of our kinds that it serves."""


def readings(pods: Sequence[Manifest], services: Sequence[Manifest]) -> Iterator[Reading]:
    """Metrics and logs of our parts' pods, and of workers with our own engine."""
    unmanaged = _unmanaged(services)
    for pod in pods[:PODS]:
        key, labels = _place(pod), pod["metadata"].get("labels") or {}
        if ObjectKey(key.namespace, labels.get(LABEL_SERVICE, "")) in unmanaged:
            continue
        if port := ADMIN_PORTS.get(labels.get(NAME, "")):
            yield Reading(f"metrics/{key}.txt", proxied(key, port, "/metrics"))
        yield from _logs(key, pod)


def left_out(pods: Sequence[Manifest], services: Sequence[Manifest]) -> Iterator[tuple[str, str]]:
    """(path, reason) of each piece that is not requested."""
    for place in sorted(_unmanaged(services)):
        yield f"logs/{place}", "an unmanaged runtime's log and metrics may hold prompts"
    for pod in pods[PODS:]:
        yield f"logs/{_place(pod)}", f"only the first {PODS} pods are read"


def concerned(event: Manifest, system: str, services: Sequence[Manifest]) -> bool:
    """Whether an Event is about us: a service, an object named after it, or paceline's own parts."""
    about = event.get("involvedObject") or {}
    if about.get("kind") not in _ABOUT:
        return False
    if about.get("namespace", event["metadata"].get("namespace")) == system:
        return True
    return any(str(about.get("name", "")).startswith(service["metadata"]["name"]) for service in services)


def _logs(key: ObjectKey, pod: Manifest) -> Iterator[Reading]:
    restarted = {
        status["name"] for status in (pod.get("status") or {}).get("containerStatuses") or () if status["restartCount"]
    }
    for container in (pod.get("spec") or {}).get("containers") or ():
        name = container["name"]
        asked = (("container", name), ("tailLines", str(LOG_LINES)), ("timestamps", "false"))
        url = RESOURCES["Pod"].path(key, "log")
        yield Reading(f"logs/{key}/{name}.log", url, asked)
        if name in restarted:
            yield Reading(f"logs/{key}/{name}.previous.log", url, (*asked, ("previous", "true")))


def _unmanaged(services: Sequence[Manifest]) -> set[ObjectKey]:
    """Services whose workers run another engine than ours."""
    runtimes = {_place(service): (service.get("spec") or {}).get("runtime") or {} for service in services}
    return {place for place, runtime in runtimes.items() if str(runtime.get("name", "paceline")) != "paceline"}


def _place(manifest: Manifest) -> ObjectKey:
    return ObjectKey(manifest["metadata"].get("namespace") or "", manifest["metadata"]["name"])
