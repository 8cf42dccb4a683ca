"""The labels and annotations that mark the operator's own objects, and the names shared by a namespace."""

from typing import Final

from paceline_core.objects.metadata import API_VERSION, INFERENCE_SERVICE

OURS: Final = "paceline.dev/"
INPUTS: Final = "paceline.dev/inputs"
RENDERED: Final = "paceline.dev/rendered"
WORKER: Final = "paceline.dev/worker"
ROTATE: Final = "paceline.dev/rotate"
MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "paceline")
WORKER_NAME: Final = ("app.kubernetes.io/name", "paceline-worker")

ACCOUNT: Final = "paceline-worker"
TRUST: Final = "paceline-trust"
TRUST_FILE: Final = "jwks.json"
POLICY: Final = "paceline-workers"
PORT: Final = 8000
PORT_NAME: Final = "http"
METRICS_PORT: Final = 8001
METRICS_PORT_NAME: Final = "metrics"
ASKERS: Final = ("paceline-gateway", "paceline-autoscaler")
"""Components that send requests to workers, by the chart's pod labels."""


def owner_reference(name: str, uid: str) -> dict[str, object]:
    return {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_SERVICE,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
