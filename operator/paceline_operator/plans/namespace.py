"""What the services of one namespace share: an account without rights, the public keys of signers, a network policy.

These belong to no service, have the label `app.kubernetes.io/managed-by: paceline`, and are deleted with the last
service there. An object of such a name without that label is unmanaged: it is neither changed nor deleted. Unknown
public keys never empty a trust file that has keys.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from paceline_core.kube.cluster import Manifest, ObjectKey
from paceline_operator.plans.children import differs
from paceline_operator.plans.labels import (
    ACCOUNT,
    ASKERS,
    MANAGED_BY,
    METRICS_PORT,
    POLICY,
    PORT,
    TRUST,
    TRUST_FILE,
    WORKER_NAME,
)
from paceline_operator.plans.types import (
    Action,
    Apply,
    Delete,
    DesiredChild,
    NamespaceView,
    ObservedChild,
    ReconcilePlan,
    Settings,
)

_NAMES: Final = {"ServiceAccount": ACCOUNT, "ConfigMap": TRUST, "NetworkPolicy": POLICY}
_VERSIONS: Final = {"ServiceAccount": "v1", "ConfigMap": "v1", "NetworkPolicy": "networking.k8s.io/v1"}


def missing(shared: Mapping[str, ObservedChild], settings: Settings) -> tuple[str, ...]:
    """What a Deployment must wait for: pods are refused without their account, and never run without their policy."""
    needed = ("ServiceAccount", "NetworkPolicy") if settings.network_policy else ("ServiceAccount",)
    return tuple(f"{kind} {_NAMES[kind]}" for kind in needed if kind not in shared)


def unmanaged_shared(shared: Mapping[str, ObservedChild]) -> tuple[str, ...]:
    """Unmanaged objects with a shared name: each service of the namespace reports them, because it depends on them."""
    return tuple(f"{kind} {live.key.name}" for kind, live in sorted(shared.items()) if not live.managed)


def plan_namespace(view: NamespaceView) -> ReconcilePlan:
    """Create and repair what is needed, remove what is not; nothing in a namespace that is being terminated."""
    if view.terminating:
        return ReconcilePlan()
    keeps_trust = view.services > 0 or view.namespace == view.settings.namespace
    contents: dict[str, Mapping[str, Any]] = {}
    if view.services:
        contents["ServiceAccount"] = {"automountServiceAccountToken": False}
        if view.settings.network_policy:
            contents["NetworkPolicy"] = {"spec": policy(view.settings)}
    if view.trust is not None and keeps_trust:
        text = orjson.dumps(dict(view.trust), option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2).decode()
        contents["ConfigMap"] = {"data": {TRUST_FILE: text}}
    desired = {kind: _child(view, kind, content) for kind, content in contents.items()}
    actions: list[Action] = []
    for kind, child in desired.items():
        name, live = f"{child.kind} {child.key.name}", view.shared.get(kind)
        if live is None:
            actions.append(Apply(child, force=False, reason=f"{name} does not exist"))
        elif live.managed and differs(child, live):
            actions.append(Apply(child, force=True, uid=live.uid, reason=f"{name} is not as desired"))
    for kind, live in sorted(view.shared.items()):
        unknown = kind == "ConfigMap" and view.trust is None and keeps_trust
        if kind not in desired and live.managed and not unknown:
            actions.append(Delete(kind, live.key, live.uid, f"no service of {view.namespace} needs it"))
    return ReconcilePlan(actions=tuple(actions))


def _child(view: NamespaceView, kind: str, content: Mapping[str, Any]) -> DesiredChild:
    key = ObjectKey(view.namespace, _NAMES[kind])
    metadata = {"name": key.name, "namespace": key.namespace, "labels": dict((MANAGED_BY,))}
    return DesiredChild(kind, key, {"apiVersion": _VERSIONS[kind], "kind": kind, "metadata": metadata, **content})


def policy(settings: Settings) -> Manifest:
    """Gateways and autoscalers may reach workers; paceline's own namespace and scrapers may read their metrics."""
    names = dict.fromkeys((settings.namespace, *settings.metrics_namespaces))
    asking = {"matchExpressions": [{"key": WORKER_NAME[0], "operator": "In", "values": list(ASKERS)}]}
    askers = [{**_within(settings.namespace), "podSelector": asking}]
    return {
        "podSelector": {"matchLabels": dict((WORKER_NAME,))},
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": askers, "ports": [{"port": PORT, "protocol": "TCP"}]},
            {"from": [_within(name) for name in names], "ports": [{"port": METRICS_PORT, "protocol": "TCP"}]},
        ],
    }


def _within(namespace: str) -> Manifest:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
