"""The pod adapter of `paceline_core.launch`: the pod template of a WorkerLaunch, within the restricted pod standard.

The worker's file is an annotation of the template and reaches the container through the downward API, so that pod and
file change in one write. A variable's value is literal as in local mode: `$` is doubled, and the kubelet undoes that.
Only the user's own `valueFrom` and the install's pull secrets refer to Secrets; the service account's token is never
mounted. Placement and resources combine what the user wrote with what paceline needs. Quantities are written in the API
server's own form, so that what it stores never differs from what is stated.

Also looks up the accelerators of a service's pools in AcceleratorProfiles: which are unknown, and what they cost.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from paceline_core.config import LEVEL_VARIABLE
from paceline_core.errors import PacelineError
from paceline_core.kube.cluster import Manifest
from paceline_core.launch import Binding, Probe, Resources, WorkerLaunch
from paceline_core.objects import AcceleratorProfile, read
from paceline_core.objects.fields import ApiModel
from paceline_core.objects.naming import LABEL_SERVICE, selector_labels
from paceline_core.objects.pods import ResourceRequirements, Volume
from paceline_core.objects.resolved import PodSettings, ResolvedPool
from paceline_core.objects.service import Toleration
from paceline_core.units import cores as read_cores
from paceline_core.units import quantity
from paceline_operator.plans.labels import (
    ACCOUNT,
    METRICS_PORT,
    METRICS_PORT_NAME,
    PORT,
    PORT_NAME,
    TRUST,
    TRUST_FILE,
    WORKER,
)
from paceline_operator.plans.types import Settings
from paceline_planner.accelerators import CATALOGUE
from paceline_planner.hardware import Accelerator, from_profile

CONTAINER: Final = "worker"
USER: Final = 65532
_CONFIG_DIR: Final = "/etc/paceline/worker"
_TRUST_DIR: Final = "/etc/paceline/trust"
BINDING: Final = Binding(
    name="",
    host="0.0.0.0",  # noqa: S104 - a pod has no other address that both kubelet and gateway reach
    port=PORT,
    config_dir=_CONFIG_DIR,
    trust_bundle_path=f"{_TRUST_DIR}/{TRUST_FILE}",
    page_dir="/pages",
    metrics_port=METRICS_PORT,
)
"""A template does not know the pod's name; the worker uses its host's name."""

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
_BYTES: Final = ("memory", "ephemeral-storage")
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def pod_template(launch: WorkerLaunch, pool: ResolvedPool, settings: Settings, nodes: Mapping[str, str]) -> Manifest:
    """The template of one pool's Deployment; `nodes` are the labels that the accelerator's profile requires."""
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
        "containers": [_container(launch, pool.pod, settings)],
        "volumes": [*_volumes(file.path.rpartition("/")[2], launch.resources), *map(own_volume, pool.pod.volumes)],
        "imagePullSecrets": [{"name": name} for name in settings.pull_secrets],
        **placement(pool, nodes, selector_labels(launch.labels[LABEL_SERVICE], pool.name)),
    }
    return {
        "metadata": {
            "labels": {**pool.pod.labels, **launch.labels},
            "annotations": {**pool.pod.annotations, WORKER: file.content},
        },
        "spec": {name: part for name, part in spec.items() if part not in ([], {})},
    }


def _container(launch: WorkerLaunch, pod: PodSettings, settings: Settings) -> Manifest:
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
        "resources": overridden(_resources(launch.resources), pod.resources),
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
            for name, path in (_MOUNTS | ({_PAGES: BINDING.page_dir} if launch.resources.disk else {})).items()
        ]
        + [own_mount(volume) for volume in pod.volumes],
    }


def _env(launch: WorkerLaunch, settings: Settings) -> list[Manifest]:
    literal = {**launch.env, LEVEL_VARIABLE: settings.log_level}
    given = [  # nothing for an empty text, because the server stores it so
        {"name": name, **({"value": text.replace("$", "$$")} if text else {})} for name, text in literal.items()
    ]
    bound = [
        {"name": name, "valueFrom": source.model_dump(by_alias=True, exclude_none=True)}
        for name, source in launch.env_from.items()
        if name not in literal
    ]
    return given + bound


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


def _volumes(file_name: str, resources: Resources) -> list[Manifest]:
    """`pages` is on the node's disk, of whatever type; it is deleted with the pod and outlives its container."""
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


def placement(pool: ResolvedPool, nodes: Mapping[str, str], selector: Mapping[str, str]) -> Manifest:
    """Node labels, tolerations, affinity, spread and priority; `selector` are the labels of the pool's own pods."""
    tolerations = [_stated(toleration) for toleration in pool.tolerations]
    affinity = _stated(pool.pod.affinity) if pool.pod.affinity else {}
    if pool.spot:
        tolerations += [{"key": taint, "operator": "Exists", "effect": "NoSchedule"} for taint in _SPOT_TAINTS]
        affinity = _spot_first(affinity)
    return {
        "nodeSelector": {**nodes, **pool.node_selector},
        "tolerations": tolerations,
        "affinity": affinity,
        "topologySpreadConstraints": [
            _stated(one) if one.label_selector else {**_stated(one), "labelSelector": {"matchLabels": dict(selector)}}
            for one in pool.pod.spread
        ],
        **({"priorityClassName": pool.pod.priority_class} if pool.pod.priority_class else {}),
    }


def overridden(computed: Manifest, written: ResourceRequirements) -> Manifest:
    """A container's resources: each amount that the user wrote replaces the computed one.

    A computed request above a written limit is lowered to it, and a computed limit below a written request is raised to
    it: otherwise no pod could start.
    """
    own: dict[str, dict[str, str]] = {}
    for part, amounts in (("requests", written.requests), ("limits", written.limits)):
        sizes = {"memory": amounts.memory, "ephemeral-storage": amounts.ephemeral_storage}
        own[part] = {name: binary_size(quantity(text)) for name, text in sizes.items() if text}
        own[part] |= {"cpu": cores(read_cores(amounts.cpu))} if amounts.cpu else {}
    found: dict[str, dict[str, str]] = {part: {**computed.get(part, {}), **own[part]} for part in own}
    for name in found["requests"].keys() & found["limits"].keys():
        asked, limit = found["requests"][name], found["limits"][name]
        if name in own["limits"] and _size(name, asked) > _size(name, limit):
            found["requests"][name] = limit
        elif _size(name, asked) > _size(name, limit):
            found["limits"][name] = asked
    return {part: kept for part, kept in found.items() if kept}


def own_volume(volume: Volume) -> Manifest:
    if volume.persistent_volume_claim:
        source: Manifest = {"persistentVolumeClaim": {"claimName": volume.persistent_volume_claim.claim_name}}
    elif volume.config_map:
        optional = {"optional": True} if volume.config_map.optional else {}
        source = {"configMap": {"name": volume.config_map.name, **optional}}
    elif volume.secret:
        optional = {"optional": True} if volume.secret.optional else {}
        source = {"secret": {"secretName": volume.secret.name, **optional}}
    else:
        empty = volume.empty_dir
        given: Manifest = {}
        if empty and empty.medium:
            given["medium"] = empty.medium
        if empty and empty.size_limit:
            given["sizeLimit"] = binary_size(quantity(empty.size_limit))
        source = {"emptyDir": given}
    return {"name": volume.name, **source}


def own_mount(volume: Volume) -> Manifest:
    return {
        "name": volume.name,
        "mountPath": volume.mount_path,
        **({"readOnly": True} if volume.read_only else {}),
    }


def cores(count: float) -> str:
    """`2` or `500m`, as the API server writes it."""
    milli = round(count * 1000)
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def binary_size(size: int) -> str:
    """`512Mi`, `4Gi`, `3350G`: the largest unit that divides, as the API server writes it."""
    for unit, shift in (("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    for unit, power in (("T", 12), ("G", 9), ("M", 6), ("k", 3)):
        if size and size % 10**power == 0:
            return f"{size // 10**power}{unit}"
    return str(size)


def _size(name: str, text: str) -> float:
    return read_cores(text) if name == "cpu" else quantity(text) if name in _BYTES else float(text)


def _stated(part: ApiModel | Toleration) -> Manifest:
    """The written fields, without empty ones, which the server would not store. An empty selector means: all."""
    return dict(_without_empty(part.model_dump(mode="json", by_alias=True, exclude_none=True)))


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        cleaned = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in cleaned.items() if item not in ({}, [], "") or key == "labelSelector"}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def _spot_first(affinity: Manifest) -> Manifest:
    """Spot nodes are preferred, not required: no label for them is universal, so a requirement might match none."""
    terms = [
        {"weight": 100, "preference": {"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]}}
        for label, value in _SPOT_LABELS.items()
    ]
    nodes = affinity.get("nodeAffinity", {})
    return {**affinity, "nodeAffinity": {**nodes, _PREFERRED: [*nodes.get(_PREFERRED, []), *terms]}}


Profiles = Mapping[str, Manifest] | None
"""By name; None if they may not be read, so that only built-in accelerators are known."""


def find_device(profiles: Profiles) -> Callable[[str], Accelerator | None]:
    """Accelerators by name: the profile's if there is one, with all its fields, else the built-in one."""

    def find(name: str) -> Accelerator | None:
        manifest = (profiles or {}).get(name)
        if manifest is None:
            return CATALOGUE.get(name)
        try:
            profile = read(AcceleratorProfile, manifest)
            return from_profile(name, profile.spec)
        except (PacelineError, ValueError):
            return None

    return find


def device_marks(service: Manifest, profiles: Profiles) -> tuple[object, ...]:
    """Marks that change when the validation of a service's accelerators is outdated; cheap for built-in ones."""
    if profiles is None:
        return ()
    spec = _map(service.get("spec"))
    priced = _map(_map(spec.get("scaling")).get("budget")).get("dollarsPerHour") is not None
    pools = spec.get("pools")
    names = [_map(pool).get("accelerator") for pool in (pools if isinstance(pools, list) else ())]
    names.append(_map(_map(spec.get("engine")).get("emulate")).get("accelerator"))  # it has a price too
    marks: list[object] = []
    for name in names:
        if isinstance(name, str) and (priced or name not in CATALOGUE):
            manifest = profiles.get(name)
            marks.append((name, manifest and manifest["metadata"].get("generation", 0)))
    return tuple(marks)


def _map(part: object) -> Mapping[str, Any]:
    return part if isinstance(part, dict) else {}
