"""What one service owns: a headless Service, a PodDisruptionBudget, a Deployment for each pool.

A Deployment remembers what its pods were rendered from (`paceline.dev/inputs`, a hash of what the user wrote) and the
template that came of it (`paceline.dev/rendered`). While the inputs are the same, that template is wished again: an
upgrade of paceline re-rolls no pod. Accelerator profiles are no input: one that is gone or unreadable moves nothing.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from paceline_core.kube.cluster import Manifest, ObjectKey
from paceline_core.launch import build
from paceline_core.objects.naming import (
    ANNOTATION_UPGRADE,
    LABEL_SERVICE,
    STABLE,
    deployment_name,
    selector_labels,
    workers_service_name,
)
from paceline_core.objects.resolved import ResolvedPool, ResolvedService
from paceline_core.objects.service import InferenceService
from paceline_operator.nouns import DesiredChild, ObservedChild, Settings
from paceline_operator.plans.marks import INPUTS, PORT, PORT_NAME, RENDERED, owner_reference, service_labels
from paceline_operator.plans.pod import BINDING, pod_template

PULL_S: Final = 300
"""Seconds for scheduling and fetching an image, before a Deployment without progress is called stuck."""
_HISTORY: Final = 2


def workers_service(service: ResolvedService) -> DesiredChild:
    """The headless Service whose EndpointSlices name every worker."""
    spec = {
        "clusterIP": "None",
        "selector": {LABEL_SERVICE: service.name},
        "ports": [{"name": PORT_NAME, "port": PORT, "protocol": "TCP", "targetPort": PORT_NAME}],
    }
    return _child("Service", "v1", workers_service_name(service.name), service, spec)


def disruption_budget(service: ResolvedService) -> DesiredChild:
    """At most one ready worker of a service is evicted at a time; one that is not ready never stands in the way."""
    spec = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": {LABEL_SERVICE: service.name}},
    }
    return _child("PodDisruptionBudget", "policy/v1", workers_service_name(service.name), service, spec)


def deployment(service: ResolvedService, pool: ResolvedPool, template: Manifest, inputs: str) -> DesiredChild:
    """A pool's Deployment around a template that was rendered now or long ago."""
    selector = selector_labels(service.name, pool.name)
    probe = template["spec"]["containers"][0]["startupProbe"]
    spec = {
        "selector": {"matchLabels": selector},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": _steps(service)},
        "progressDeadlineSeconds": probe["periodSeconds"] * probe["failureThreshold"] + PULL_S,
        "revisionHistoryLimit": _HISTORY,
        "template": template,
    }
    child = _child("Deployment", "apps/v1", deployment_name(service.name, pool.name), service, spec)
    metadata = child.body["metadata"]
    metadata["labels"].update(selector)
    metadata["annotations"] = {INPUTS: inputs, RENDERED: orjson.dumps(template, option=orjson.OPT_SORT_KEYS).decode()}
    return child


def render(
    service: ResolvedService, pool: ResolvedPool, settings: Settings, profile: Mapping[str, Any] | None
) -> Manifest:
    """The pod template of a pool as this version makes it."""
    launch = build(service, pool, STABLE, BINDING, service.runtime.image or settings.image)
    spec = {} if service.emulated else (profile or {}).get("spec") or {}
    if launch.resources.gpus and (name := spec.get("resourceName")):
        launch = replace(launch, resources=replace(launch.resources, gpu_resource=name))
    return pod_template(launch, pool, settings, spec.get("nodeSelector") or {})


def remembered(live: ObservedChild | None, inputs: str) -> Manifest | None:
    """The template that was rendered of the same inputs, if it can be read."""
    if live is None or live.inputs != inputs:
        return None
    try:
        template = orjson.loads(orjson.loads(live.content)["metadata"]["annotations"][RENDERED])
        template["spec"]["containers"][0]["startupProbe"]["failureThreshold"]
    except (KeyError, IndexError, TypeError, orjson.JSONDecodeError):
        return None
    return dict(template)


def inputs_of(service: InferenceService, resolved: ResolvedService, index: int) -> str:
    """A hash of everything that the user wrote and that shapes the pods of this pool; never code, never an image tag.

    What equals the schema's default counts as not written, since a server may have filled it in.
    """
    spec, pool = service.spec, service.spec.pools[index]
    windows = {name: getattr(spec.classes, name).batch_window for name in ("interactive", "batch", "offline")}
    written: list[Any] = [
        resolved.revision,
        pool.model_dump(mode="json", exclude_defaults=True, exclude={"replicas"}),
        {name: window for name, window in windows.items() if window},
        spec.rollout.drain_timeout,
        service.metadata.annotations.get(ANNOTATION_UPGRADE),
    ]
    shares = {name: getattr(spec.classes, name).reserved_percent for name in windows}
    if any(shares.values()):
        written.append({name: share for name, share in shares.items() if share})
    if spec.filters:
        written.append([one.model_dump(mode="json") for one in spec.filters])
    return hashlib.sha256(orjson.dumps(written, option=orjson.OPT_SORT_KEYS)).hexdigest()[:20]


def _child(kind: str, api_version: str, name: str, service: ResolvedService, spec: Manifest) -> DesiredChild:
    body = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": service.namespace,
            "labels": service_labels(service.name),
            "ownerReferences": [owner_reference(service.name, service.uid)],
        },
        "spec": spec,
    }
    return DesiredChild(kind, ObjectKey(service.namespace, name), body)


def _steps(service: ResolvedService) -> dict[str, str | int]:
    """surge: a new replica first; inPlace: an old one leaves first, where no GPU is spare."""
    if service.rollout.gpus == "surge":
        return {"maxSurge": "25%", "maxUnavailable": 0}
    return {"maxSurge": 0, "maxUnavailable": 1}
