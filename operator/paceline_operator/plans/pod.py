"""The pod adapter of `paceline_core.launch`: a pod template of a WorkerLaunch, within the restricted pod standard.

The worker's file travels as an annotation of the template and reaches the container through the downward API, so that
pod and file change in one write. A variable's value is literal as in local mode: `$` is doubled, which the kubelet
undoes. Nothing here names a Secret but what the user's own `valueFrom` and the install's pull secrets do; the service
account's token is never mounted.

Accelerators of a service's pools by AcceleratorProfiles: which are unknown, and what they cost.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from paceline_core.config import LEVEL_VARIABLE
from paceline_core.errors import PacelineError
from paceline_core.kube.cluster import Manifest
from paceline_core.launch import Binding, Probe, Resources, WorkerLaunch
from paceline_core.objects import AcceleratorProfile, read
from paceline_core.objects.naming import LABEL_SERVICE, selector_labels
from paceline_core.objects.resolved import PodSettings, ResolvedPool
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
from paceline_operator.plans.pod_overrides import binary_size, cores, overridden, own_mount, own_volume, placement
from paceline_operator.plans.types import Settings
from paceline_planner.hardware import CATALOGUE, Accelerator, from_profile

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
"""A template knows no pod's name; the worker calls itself by its host's."""

_MOUNTS: Final = {"worker": _CONFIG_DIR, "trust": _TRUST_DIR, "tmp": "/tmp", "cache": "/cache"}  # noqa: S108
_PAGES: Final = "pages"
_TMP_LIMIT: Final = "1Gi"
_CACHE_LIMIT: Final = "16Gi"


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
            for name, path in _mounts(launch.resources).items()
        ]
        + [own_mount(volume) for volume in pod.volumes],
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


Profiles = Mapping[str, Manifest] | None
"""By name; None where they may not be read, so that nothing can be said of what is not built in."""


def find_device(profiles: Profiles) -> Callable[[str], Accelerator | None]:
    """Accelerators by name: the profile's if there is one, all of it, else the built-in one."""

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
    """Marks that change where a judgement of a service's accelerators holds no more; cheap for built-in ones."""
    if profiles is None:
        return ()
    spec = _map(service.get("spec"))
    priced = _map(_map(spec.get("scaling")).get("budget")).get("dollarsPerHour") is not None
    marks: list[object] = []
    for name in _named(spec):
        if priced or name not in CATALOGUE:
            manifest = profiles.get(name)
            marks.append((name, manifest and manifest["metadata"].get("generation", 0)))
    return tuple(marks)


def _named(spec: Mapping[str, Any]) -> Iterator[str]:
    """Accelerators of pools, and the emulated one, which has a price too."""
    pools = spec.get("pools")
    for pool in pools if isinstance(pools, list) else ():
        if isinstance(name := _map(pool).get("accelerator"), str):
            yield name
    if isinstance(name := _map(_map(spec.get("engine")).get("emulate")).get("accelerator"), str):
        yield name


def _map(part: object) -> Mapping[str, Any]:
    return part if isinstance(part, dict) else {}
