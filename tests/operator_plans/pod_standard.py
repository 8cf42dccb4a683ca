"""The restricted pod security standard, checked by its own text and independent of the code that makes pods."""

from collections.abc import Iterator, Mapping
from typing import Any

VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
HOST = ("hostNetwork", "hostPID", "hostIPC")


def violations(pod: Mapping[str, Any]) -> Iterator[str]:
    """Every rule that a pod's spec breaks."""
    yield from (name for name in HOST if pod.get(name))
    for volume in pod.get("volumes", ()):
        yield from (f"volume {name}" for name in set(volume) - VOLUMES - {"name"})
    whole = pod.get("securityContext", {})
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        own = container.get("securityContext", {})
        if own.get("privileged") or own.get("allowPrivilegeEscalation") is not False:
            yield "privilege escalation"
        if "ALL" not in own.get("capabilities", {}).get("drop", ()):
            yield "capabilities not dropped"
        if set(own.get("capabilities", {}).get("add", ())) - {"NET_BIND_SERVICE"}:
            yield "capabilities added"
        if own.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True:
            yield "may run as root"
        if 0 in (own.get("runAsUser"), whole.get("runAsUser")):
            yield "runs as root"
        profile = own.get("seccompProfile", whole.get("seccompProfile", {}))
        if profile.get("type") not in ("RuntimeDefault", "Localhost"):
            yield "no seccomp profile"
        yield from (f"host port {port['hostPort']}" for port in container.get("ports", ()) if port.get("hostPort"))
