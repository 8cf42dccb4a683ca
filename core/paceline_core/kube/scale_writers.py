"""Who set a Deployment's replicas last, by its managedFields, and which autoscaler acts for Kubernetes' own controller.

An update gives the field to its manager and takes it from the others; with server-side apply several may own it at one
value. So the newest entry that owns `spec.replicas` is the last writer, whether it wrote the Deployment or its scale.
Hole: times have a resolution of one second.
"""

from collections.abc import Iterable
from typing import Any, Final

from paceline_core.kube.cluster import Manifest

HPA_MANAGER: Final = "kube-controller-manager"
"""Who writes for every HorizontalPodAutoscaler, and sets the replicas of Deployments for no other reason."""
KEDA_LABEL: Final = "scaledobject.keda.sh/name"
KEDA_PREFIX: Final = "keda-hpa-"


def replicas_writer(deployment: Manifest) -> str:
    """The field manager that set `spec.replicas` last; empty if there is none."""
    owners = [entry for entry in deployment["metadata"].get("managedFields") or () if _owns_replicas(entry)]
    newest: Manifest = max(owners, key=lambda entry: str(entry.get("time", "")), default={})
    return str(newest.get("manager", ""))


def autoscaler_of(deployment: str, autoscalers: Iterable[Manifest]) -> str:
    """The HorizontalPodAutoscaler whose target is this Deployment of its namespace, or the KEDA object behind it."""
    for found in autoscalers:
        target: Manifest = (found.get("spec") or {}).get("scaleTargetRef") or {}
        if (target.get("kind"), target.get("name")) == ("Deployment", deployment):
            return _named(found["metadata"])
    return "a HorizontalPodAutoscaler"


def _owns_replicas(entry: dict[str, Any]) -> bool:
    return "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})


def _named(metadata: dict[str, Any]) -> str:
    name = str(metadata["name"])
    scaled_object = (metadata.get("labels") or {}).get(KEDA_LABEL, "")
    if not scaled_object and name.startswith(KEDA_PREFIX):
        scaled_object = name.removeprefix(KEDA_PREFIX)
    return f"KEDA ScaledObject {scaled_object}" if scaled_object else f"HorizontalPodAutoscaler {name}"
