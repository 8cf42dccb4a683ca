"""The pod security standard `restricted`, as far as a pod of ours can break it, and what we ask on top."""

from collections.abc import Iterator
from typing import Any

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
SHARED = ("hostNetwork", "hostPID", "hostIPC")


def violations(spec: dict[str, Any]) -> list[str]:
    """What this pod would be refused for; empty for a good one."""
    return [*_pod(spec), *(fault for container in _containers(spec) for fault in _container(container))]


def _containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("initContainers", []), *spec["containers"]]


def _pod(spec: dict[str, Any]) -> Iterator[str]:
    security = spec.get("securityContext", {})
    yield from (f"{name} is set" for name in SHARED if spec.get(name))
    if security.get("runAsNonRoot") is not True:
        yield "runAsNonRoot is not true"
    if not security.get("runAsUser"):
        yield "runAsUser is root or left to the image"
    if security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "seccompProfile is not RuntimeDefault"
    for volume in spec.get("volumes", []):
        if not (volume.keys() - {"name"}) <= VOLUMES:
            yield f"volume {volume['name']} is of a kind that is not admitted"


def _container(container: dict[str, Any]) -> Iterator[str]:
    security = container.get("securityContext", {})
    if security.get("allowPrivilegeEscalation") is not False:
        yield f"{container['name']}: allowPrivilegeEscalation is not false"
    if security.get("capabilities") != {"drop": ["ALL"]}:
        yield f"{container['name']}: not all capabilities are dropped"
    if security.get("readOnlyRootFilesystem") is not True:
        yield f"{container['name']}: the root file system can be written"
    if security.get("privileged") or security.get("procMount") or security.get("runAsUser") == 0:
        yield f"{container['name']}: asks for privileges"
    if any("hostPort" in port for port in container.get("ports", [])):
        yield f"{container['name']}: takes a port of the node"
