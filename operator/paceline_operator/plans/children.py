"""The children of one service: a headless Service, a PodDisruptionBudget, a Deployment for each pool.

A Deployment records the source of its pods (`paceline.dev/inputs`, a hash of what the user wrote) and the resulting
template (`paceline.dev/rendered`). While the inputs are the same, that template stays desired: an upgrade of paceline
does not roll out pods again. Accelerator profiles are not inputs: one that is gone or unreadable changes nothing.

A live object matches if every leaf that we state is so; fields that others add may stay. Selectors and a policy's rules
must match as a whole: one more key selects other pods. The API server treats them as atomic, so that an apply removes
such a key; it leaves what others add to any other map. Lists of maps are matched by their merge key as the API server
matches them; all other lists are atomic: of equal length, item by item. An empty value that the server drops equals an
absent one.
Invariant: what the server stores of a body that we applied never differs from it. For this, bodies hold quantities,
numbers and enums in the server's own form.
Hole: a field that we no longer state is not detected here; a change that drops one must change a leaf beside it (a
Deployment's `paceline.dev/rendered` does).

Additions by other managers to a Deployment are fields that we do not state, so that an apply leaves them. They are read
from managedFields, which name every field that a manager set. Replicas, status and Kubernetes' own marks belong to
their own writers and do not count; a field that we set too is not an addition.
Hole: a field that one manager set and another removed again is in no entry, and neither is what the server defaulted.
"""

import hashlib
from collections.abc import Iterator, Mapping
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
from paceline_operator.plans.labels import INPUTS, MANAGED_BY, PORT, PORT_NAME, RENDERED, WORKER_NAME, owner_reference
from paceline_operator.plans.pod import BINDING, pod_template
from paceline_operator.plans.types import MANAGER, REPLICAS_MANAGER, SCALER, DesiredChild, ObservedChild, Settings

PULL_S: Final = 300
"""Seconds for scheduling and fetching an image, before a Deployment without progress counts as stuck."""
_HISTORY: Final = 2


def workers_service(service: ResolvedService) -> DesiredChild:
    spec = {
        "clusterIP": "None",
        "selector": {LABEL_SERVICE: service.name},
        "ports": [{"name": PORT_NAME, "port": PORT, "protocol": "TCP", "targetPort": PORT_NAME}],
    }
    return _child("Service", "v1", workers_service_name(service.name), service, spec)


def disruption_budget(service: ResolvedService) -> DesiredChild:
    """At most one ready worker of a service is evicted at a time; one that is not ready never blocks an eviction."""
    spec = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": {LABEL_SERVICE: service.name}},
    }
    return _child("PodDisruptionBudget", "policy/v1", workers_service_name(service.name), service, spec)


def deployment(service: ResolvedService, pool: ResolvedPool, template: Manifest, inputs: str) -> DesiredChild:
    selector = selector_labels(service.name, pool.name)
    # surge: a new replica first; inPlace: an old one leaves first, if no GPU is spare
    surge = service.rollout.gpus == "surge"
    steps = {"maxSurge": "25%" if surge else 0, "maxUnavailable": 0 if surge else 1}
    probe = template["spec"]["containers"][0]["startupProbe"]
    spec = {
        "selector": {"matchLabels": selector},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": steps},
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
    launch = build(service, pool, STABLE, BINDING, service.runtime.image or settings.image)
    spec = {} if service.emulated else (profile or {}).get("spec") or {}
    if launch.resources.gpus and (name := spec.get("resourceName")):
        launch = replace(launch, resources=replace(launch.resources, gpu_resource=name))
    return pod_template(launch, pool, settings, spec.get("nodeSelector") or {})


def rendered_before(live: ObservedChild | None, inputs: str) -> Manifest | None:
    """The template that was rendered from the same inputs, if it can be read."""
    if live is None or live.inputs != inputs:
        return None
    try:
        template = orjson.loads(orjson.loads(live.content)["metadata"]["annotations"][RENDERED])
        template["spec"]["containers"][0]["startupProbe"]["failureThreshold"]
    except (KeyError, IndexError, TypeError, orjson.JSONDecodeError):
        return None
    return dict(template)


def inputs_of(service: InferenceService, resolved: ResolvedService, index: int) -> str:
    """A hash of everything that the user wrote and that affects the pods of this pool; never code, never an image tag.

    A value that equals the schema's default counts as not written, because a server may have filled it in.
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
            "labels": {LABEL_SERVICE: service.name, **dict((WORKER_NAME, MANAGED_BY))},
            "ownerReferences": [owner_reference(service.name, service.uid)],
        },
        "spec": spec,
    }
    return DesiredChild(kind, ObjectKey(service.namespace, name), body)


_MERGE_KEYS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "ownerReferences": (("uid",),),
    "containers": (("name",),),
    "volumes": (("name",),),
    "env": (("name",),),
    "volumeMounts": (("mountPath",),),
    "imagePullSecrets": (("name",),),
    "ports": (("containerPort", "protocol"), ("port", "protocol")),
}
_WHOLE: Final = frozenset(("selector", "podSelector", "nodeSelector", "ingress"))


def differs(desired: DesiredChild, live: ObservedChild) -> bool:
    """Whether an apply of `desired` would change `live`."""
    body = desired.body
    metadata = {name: part for name, part in body["metadata"].items() if name not in ("name", "namespace")}
    rest = {name: part for name, part in body.items() if name not in ("apiVersion", "kind", "metadata")}
    return not _holds({"metadata": metadata, **rest}, orjson.loads(live.content), "")


def _holds(desired: Any, found: Any, name: str) -> bool:
    if desired == found:
        return True
    if isinstance(desired, dict):
        if not isinstance(found, dict):
            return False
        return all(
            (part == found[key] if key in _WHOLE else _holds(part, found[key], key))
            if key in found
            else part in ({}, [], "")
            for key, part in desired.items()
        )
    if isinstance(desired, list):
        return isinstance(found, list) and _list_holds(desired, found, name)
    return False


def _list_holds(desired: list[Any], found: list[Any], name: str) -> bool:
    first = desired[0] if desired and isinstance(desired[0], dict) else {}
    if keys := next((keys for keys in _MERGE_KEYS.get(name, ()) if keys[0] in first), None):
        by_key = {tuple(item.get(key) for key in keys): item for item in found}
        return all(_holds(item, by_key.get(tuple(item.get(key) for key in keys)), "") for item in desired)
    return len(desired) == len(found) and all(
        _holds(one, other, name) for one, other in zip(desired, found, strict=True)
    )


SHOWN: Final = 4
"""How many fields are named for each manager."""
_OURS: Final = frozenset((MANAGER, REPLICAS_MANAGER, SCALER))
_SYSTEM: Final = "kube-controller-manager"

Fields = Mapping[str, Any]


def added_fields(metadata: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """For each manager the fields below `spec` that it added, as written in a manifest; the first few of each."""
    entries = [one for one in metadata.get("managedFields") or () if not one.get("subresource")]
    ours = [_spec(one) for one in entries if one.get("manager") in _OURS]
    found: dict[str, list[str]] = {}
    for one in entries:
        manager = str(one.get("manager", ""))
        if manager not in _OURS and manager != _SYSTEM:
            found.setdefault(manager, []).extend(_added(_spec(one), ours, "spec"))
    named = []
    for manager, paths in sorted(found.items()):
        more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
        if paths:
            named.append((manager, f"{', '.join(sorted(paths)[:SHOWN])}{more}"))
    return tuple(named)


def _spec(entry: Mapping[str, Any]) -> Fields:
    spec = (entry.get("fieldsV1") or {}).get("f:spec")
    fields = spec if isinstance(spec, dict) else {}
    return {name: part for name, part in fields.items() if name != "f:replicas"}


def _added(theirs: Fields, ours: list[Fields], path: str) -> Iterator[str]:
    for name, part in theirs.items():
        if name == ".":
            continue
        held = [fields[name] for fields in ours if isinstance(fields.get(name), dict)]
        place = _place(path, name)
        if not held:
            yield place
        elif isinstance(part, dict):
            yield from _added(part, held, place)


def _place(path: str, name: str) -> str:
    """`f:nodeName` is a field, `k:{"name":"worker"}` an item of a list by its keys, `v:` one of a set by its value."""
    kind, _, rest = name.partition(":")
    if kind == "f":
        return f"{path}[{rest}]" if "." in rest or "/" in rest else f"{path}.{rest}"
    try:
        keys = orjson.loads(rest)
    except orjson.JSONDecodeError:
        keys = rest
    return f"{path}[{','.join(map(str, keys.values())) if isinstance(keys, dict) else keys}]"
