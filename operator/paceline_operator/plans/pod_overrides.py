"""Placement and resources of a pool's pods: what the user wrote, joined with what paceline asks for.

Quantities are written in the API server's own form, so that what it stores never differs from what is stated.
"""

from collections.abc import Mapping
from typing import Any, Final

from paceline_core.kube.cluster import Manifest
from paceline_core.objects.fields import ApiModel
from paceline_core.objects.pods import ResourceAmounts, ResourceRequirements, TopologySpreadConstraint, Volume
from paceline_core.objects.resolved import ResolvedPool
from paceline_core.objects.service import Toleration
from paceline_core.units import cores as read_cores
from paceline_core.units import quantity

_SPOT_LABELS: Final = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
_SPOT_TAINTS: Final = ("cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority")
_BYTES: Final = ("memory", "ephemeral-storage")
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


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
        "topologySpreadConstraints": [_spread(constraint, selector) for constraint in pool.pod.spread],
        **({"priorityClassName": pool.pod.priority_class} if pool.pod.priority_class else {}),
    }


def overridden(computed: Manifest, written: ResourceRequirements) -> Manifest:
    """A container's resources: each amount that the user wrote in the place of the computed one.

    A computed request above a written limit is lowered to it, and a computed limit below a written request raised to
    it: no pod could start otherwise.
    """
    own = {part: _amounts(getattr(written, part)) for part in ("requests", "limits")}
    found: dict[str, dict[str, str]] = {part: {**computed.get(part, {}), **own[part]} for part in own}
    for name in found["requests"].keys() & found["limits"].keys():
        asked, limit = found["requests"][name], found["limits"][name]
        if name in own["limits"] and _size(name, asked) > _size(name, limit):
            found["requests"][name] = limit
        elif _size(name, asked) > _size(name, limit):
            found["limits"][name] = asked
    return {part: amounts for part, amounts in found.items() if amounts}


def own_volume(volume: Volume) -> Manifest:
    if volume.persistent_volume_claim:
        source: Manifest = {"persistentVolumeClaim": {"claimName": volume.persistent_volume_claim.claim_name}}
    elif volume.config_map:
        source = {"configMap": {"name": volume.config_map.name, **_optional(volume.config_map.optional)}}
    elif volume.secret:
        source = {"secret": {"secretName": volume.secret.name, **_optional(volume.secret.optional)}}
    else:
        source = {"emptyDir": _empty(volume)}
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


def _amounts(amounts: ResourceAmounts) -> dict[str, str]:
    sizes = {"memory": amounts.memory, "ephemeral-storage": amounts.ephemeral_storage}
    found = {name: binary_size(quantity(text)) for name, text in sizes.items() if text}
    return found | ({"cpu": cores(read_cores(amounts.cpu))} if amounts.cpu else {})


def _size(name: str, text: str) -> float:
    return read_cores(text) if name == "cpu" else quantity(text) if name in _BYTES else float(text)


def _optional(missing: bool | None) -> Manifest:
    return {"optional": True} if missing else {}


def _empty(volume: Volume) -> Manifest:
    empty = volume.empty_dir
    if empty is None:
        return {}
    limit = {"sizeLimit": binary_size(quantity(empty.size_limit))} if empty.size_limit else {}
    return {**({"medium": empty.medium} if empty.medium else {}), **limit}


def _spread(constraint: TopologySpreadConstraint, selector: Mapping[str, str]) -> Manifest:
    stated = _stated(constraint)
    return stated if constraint.label_selector else {**stated, "labelSelector": {"matchLabels": dict(selector)}}


def _stated(part: ApiModel | Toleration) -> Manifest:
    """Fields that were written, without empty ones, which the server would not store. An empty selector says: all."""
    return dict(_without_empty(part.model_dump(mode="json", by_alias=True, exclude_none=True)))


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        cleaned = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in cleaned.items() if item not in ({}, [], "") or key == "labelSelector"}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def _spot_first(affinity: Manifest) -> Manifest:
    """Spot nodes are preferred and not demanded: no label for them is known everywhere, so a demand might fit none."""
    terms = [
        {"weight": 100, "preference": {"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]}}
        for label, value in _SPOT_LABELS.items()
    ]
    nodes = affinity.get("nodeAffinity", {})
    return {**affinity, "nodeAffinity": {**nodes, _PREFERRED: [*nodes.get(_PREFERRED, []), *terms]}}
