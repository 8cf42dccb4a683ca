"""The services of a run: a thousand alike in ten namespaces, emulated, two replicas each."""

from collections.abc import Iterator

from paceline_core.kube.cluster import Manifest

NAMESPACES = 10
REPLICAS = 2
LABEL = "app.kubernetes.io/managed-by=paceline"


def namespaces() -> tuple[str, ...]:
    """Where the services live."""
    return tuple(f"bench-{number}" for number in range(NAMESPACES))


def services(count: int) -> Iterator[Manifest]:
    """So many InferenceServices, spread over the namespaces."""
    spread = namespaces()
    for number in range(count):
        yield service(f"s{number:04}", spread[number % len(spread)])


def service(name: str, namespace: str) -> Manifest:
    """One of them."""
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"source": "builtin://demo", "servedName": f"{namespace}-{name}"},
            "engine": {"emulate": {"accelerator": "h100", "model": "llama-3.1-8b", "coldStart": "1s"}},
            "classes": {"interactive": {"slo": {"ttft": {"p95": "1s"}, "tpot": {"p95": "100ms"}}}},
            "pools": [
                {"name": "main", "accelerator": "cpu", "gpusPerReplica": 0, "replicas": {"min": REPLICAS, "max": 8}}
            ],
        },
    }
