"""The pod adapter of `paceline_core.launch`: a pod template of a WorkerLaunch, within the restricted pod standard.

The worker's file travels as an annotation of the template and reaches the container through the downward API, so that
pod and file change in one write. A variable's value is literal as in local mode: `$` is doubled, which the kubelet
undoes. Nothing here names a Secret but what the user's own `valueFrom` and the install's pull secrets do; the service
account's token is never mounted.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from paceline_core.config import LEVEL_VARIABLE
from paceline_core.kube.cluster import Manifest
from paceline_core.launch import Binding, Probe, Resources, WorkerLaunch
from paceline_core.objects.pools import Toleration
from paceline_core.objects.resolved import ResolvedPool
from paceline_operator.nouns import Settings
from paceline_operator.plans.marks import (
    ACCOUNT,
    METRICS_PORT,
    METRICS_PORT_NAME,
    PORT,
    PORT_NAME,
    TRUST,
    TRUST_FILE,
    WORKER,
)

CONTAINER: Final = "worker"
USER: Final = 65532
_CONFIG_DIR: Final = "/etc/paceline/worker"
_TRUST_DIR: Final = "/etc/paceline/trust"
BINDING: Final = Binding(
    name="",
    host="0.0.0.0",  # noqa: S104 - a pod has no other address that both kubelet and gateway reach
    port=PORT,
    config_dir=_CONFIG_DIR,
    trust_path=f"{_TRUST_DIR}/{TRUST_FILE}",
    page_dir="/pages",
    metrics_port=METRICS_PORT,
)
"""A template knows no pod's name; the worker calls itself by its host's."""

_MOUNTS: Final = {"worker": _CONFIG_DIR, "trust": _TRUST_DIR, "tmp": "/tmp", "cache": "/cache"}  # noqa: S108
_PAGES: Final = "pages"
_TMP_LIMIT: Final = "1Gi"
_CACHE_LIMIT: Final = "16Gi"
_SPOT_LABELS: Final = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
_SPOT_TAINTS: Final = ("cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority")


def pod_template(launch: WorkerLaunch, pool: ResolvedPool, settings: Settings, nodes: Mapping[str, str]) -> Manifest:
    """The template of one pool's Deployment; `nodes` are the labels that the accelerator's profile asks for."""
    (file,) = launch.files
    spec = {
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(launch.grace_s),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(launch, settings)],
        "volumes": _volumes(file.path.rpartition("/")[2], launch.resources),
        "imagePullSecrets": [{"name": name} for name in settings.pull_secrets],
        **_placement(pool, nodes),
    }
    return {
        "metadata": {"labels": launch.labels, "annotations": {WORKER: file.content}},
        "spec": {name: part for name, part in spec.items() if part not in ([], {})},
    }


def _container(launch: WorkerLaunch, settings: Settings) -> Manifest:
    return {
        "name": CONTAINER,
        "image": launch.image,
        "imagePullPolicy": settings.pull_policy,
        "command": list(launch.argv),
        "env": _env(launch, settings),
        "ports": [
            {"name": PORT_NAME, "containerPort": launch.port, "protocol": "TCP"},
            {"name": METRICS_PORT_NAME, "containerPort": launch.metrics_port, "protocol": "TCP"},
        ],
        "resources": _resources(launch.resources),
        "startupProbe": _probe(launch.startup),
        "livenessProbe": _probe(launch.liveness),
        "readinessProbe": _probe(launch.readiness),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": name, "mountPath": path, **({"readOnly": True} if path.startswith("/etc") else {})}
            for name, path in _mounts(launch.resources).items()
        ],
    }


def _env(launch: WorkerLaunch, settings: Settings) -> list[Manifest]:
    literal = {**launch.env, LEVEL_VARIABLE: settings.log_level}
    given = [{"name": name, **_value(value)} for name, value in literal.items()]
    bound = [
        {"name": name, "valueFrom": source.model_dump(by_alias=True, exclude_none=True)}
        for name, source in launch.env_from.items()
        if name not in literal
    ]
    return given + bound


def _value(text: str) -> dict[str, str]:
    """Nothing for an empty text, since the server stores it so."""
    return {"value": text.replace("$", "$$")} if text else {}


def _probe(probe: Probe) -> Manifest:
    return {
        "httpGet": {"path": probe.path, "port": METRICS_PORT_NAME, "scheme": "HTTP"},
        "periodSeconds": probe.period_s,
        "timeoutSeconds": probe.timeout_s,
        "failureThreshold": probe.failures,
        **({} if probe.grace_s is None else {"terminationGracePeriodSeconds": probe.grace_s}),
    }


def _resources(resources: Resources) -> Manifest:
    asked = {"cpu": cores(resources.cpu), "memory": binary_size(resources.memory)}
    if resources.disk:
        asked["ephemeral-storage"] = binary_size(resources.disk)
    gpus = {resources.gpu_resource: str(resources.gpus)} if resources.gpus else {}
    limit = {"memory": binary_size(resources.memory_limit)} if resources.memory_limit else {}
    found = {"requests": asked | gpus, "limits": limit | gpus}
    return {name: part for name, part in found.items() if part}


def cores(count: float) -> str:
    """`2` or `500m`, as the API server writes it."""
    milli = round(count * 1000)
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def binary_size(size: int) -> str:
    """`512Mi`, `4Gi`: the largest unit that divides, as the API server writes it."""
    for unit, shift in (("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def _mounts(resources: Resources) -> dict[str, str]:
    return _MOUNTS | ({_PAGES: BINDING.page_dir} if resources.disk else {})


def _volumes(file_name: str, resources: Resources) -> list[Manifest]:
    """`pages` lies on the node's disk, whatever that is; it goes with the pod and outlives its container."""
    field = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{WORKER}']"}
    volumes: list[Manifest] = [
        {"name": "worker", "downwardAPI": {"items": [{"path": file_name, "fieldRef": field}]}},
        {"name": "trust", "configMap": {"name": TRUST, "optional": True}},
        {"name": "tmp", "emptyDir": {"sizeLimit": _TMP_LIMIT}},
        {"name": "cache", "emptyDir": {"sizeLimit": _CACHE_LIMIT}},
    ]
    if resources.disk:
        volumes.append({"name": _PAGES, "emptyDir": {"sizeLimit": binary_size(resources.disk)}})
    return volumes


def _placement(pool: ResolvedPool, nodes: Mapping[str, str]) -> Manifest:
    tolerations = [_toleration(toleration) for toleration in pool.tolerations]
    placed: Manifest = {"nodeSelector": {**nodes, **pool.node_selector}, "tolerations": tolerations}
    if not pool.spot:
        return placed
    taints = [{"key": taint, "operator": "Exists", "effect": "NoSchedule"} for taint in _SPOT_TAINTS]
    return {**placed, "tolerations": tolerations + taints, "affinity": _spot_first()}


def _toleration(toleration: Toleration) -> Manifest:
    written = toleration.model_dump(by_alias=True, exclude_none=True)
    return {name: value for name, value in written.items() if value != ""}


def _spot_first() -> dict[str, Any]:
    """Spot nodes are preferred and not demanded: no label for them is known everywhere, so a demand might fit none."""
    terms = [
        {"weight": 100, "preference": {"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]}}
        for label, value in _SPOT_LABELS.items()
    ]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
