"""Objects for the gateway's tests."""

from typing import Any

from paceline_core.auth import new_key
from paceline_core.kube.cluster import Manifest, key_namespace_of

NAMESPACE = "paceline-system"
API = "paceline.dev/v1alpha1"


def service(
    name: str = "chat",
    namespace: str = "default",
    *,
    created: str = "2026-01-01T00:00:00Z",
    served_name: str | None = None,
    classes: dict[str, Any] | None = None,
    **spec: Any,
) -> Manifest:
    """An InferenceService on one CPU pool."""
    model = {"source": "builtin://demo"} | ({"servedName": served_name} if served_name else {})
    return {
        "apiVersion": API,
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": created},
        "spec": {"model": model, "classes": classes or {}, "pools": [{"name": "main", "accelerator": "cpu"}]} | spec,
    }


def tenant(name: str = "team", **spec: Any) -> Manifest:
    """A Tenant that may use everything unless told otherwise."""
    return {
        "apiVersion": API,
        "kind": "Tenant",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"services": ["*"]} | spec,
    }


def route(model: str, *backends: dict[str, Any], namespace: str = "default", **spec: Any) -> Manifest:
    """An InferenceRoute."""
    return {
        "apiVersion": API,
        "kind": "InferenceRoute",
        "metadata": {
            "name": f"to-{model}".replace("/", "-"),
            "namespace": namespace,
            "creationTimestamp": "2026-01-02T00:00:00Z",
        },
        "spec": {"model": model, "backends": list(backends)} | spec,
    }


def key(tenant_name: str = "team") -> tuple[Manifest, str]:
    """A key's Secret and the key itself."""
    record, text = new_key(tenant_name)
    return record.manifest(key_namespace_of(NAMESPACE)), text
