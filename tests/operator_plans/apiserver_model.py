"""An API server in memory, for plans: server-side apply with owners per field, uids, conflicts, preconditions.

What it models: leaf ownership, lists merged by key, atomic maps, force, removal of fields that nobody owns any more,
defaults that a real server adds to Deployments, Services and pods, and Deployment controllers that settle. It was held
against a real API server by tests/cluster; here it only has to be strict where plans could be wrong.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from itertools import count
from typing import Any

from paceline_core.kube.cluster import ObjectKey
from paceline_operator.plans.observe import observe_child
from paceline_operator.plans.types import MANAGER, REPLICAS_MANAGER, Action, Apply, Delete, HandOver, ObservedChild

KEYED: Mapping[str, tuple[str, ...]] = {
    "ownerReferences": ("uid",),
    "containers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
}
ATOMIC = frozenset(("selector", "podSelector", "namespaceSelector", "nodeSelector"))
Path = tuple[Any, ...]
Place = tuple[str, ObjectKey]
PROBE = {"successThreshold": 1}


class Conflicted(Exception):
    """409."""


class Crash(Exception):
    """The operator died right after a write."""


def leaves(value: Any, path: Path = (), name: str = "") -> dict[Path, Any]:
    if isinstance(value, dict) and value and name not in ATOMIC:
        return {p: v for key, part in value.items() for p, v in leaves(part, (*path, key), key).items()}
    if isinstance(value, list) and value and name in KEYED:
        found: dict[Path, Any] = {}
        for item in value:
            mark = ("item", *(item[key] for key in KEYED[name]))
            found |= leaves(item, (*path, mark))
        return found
    return {path: json.dumps(value, sort_keys=True)}


def grown(flat: Mapping[Path, Any]) -> Any:
    whole: dict[Any, Any] = {}
    for path, text in flat.items():
        node = whole
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node[path[-1]] = _Leaf(json.loads(text))
    return _plain(whole)


class _Leaf:
    def __init__(self, value: Any) -> None:
        self.value = value


def _plain(node: Any) -> Any:
    if isinstance(node, _Leaf):
        return node.value
    if node and all(isinstance(key, tuple) for key in node):
        return [_plain(node[key]) for key in node]
    return {key: _plain(part) for key, part in node.items()}


class Stored:
    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.values: dict[Path, Any] = {}
        self.owners: dict[Path, set[str]] = {}
        self.generation = 1
        self.version = 1
        self.status: dict[str, Any] = {}


class ModelServer:
    """Objects by kind and key. `writes` counts what changed something; `die_after` kills the operator at that write."""

    def __init__(self, die_after: int | None = None) -> None:
        self.stored: dict[Place, Stored] = {}
        self.writes = 0
        self.calls = 0
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.die_after = die_after
        self._uids = count(1)

    def apply(self, body: dict[str, Any], manager: str, *, force: bool) -> None:
        place = self._place(body)
        body, uid, version = _split(body)
        flat = leaves(body)
        stored = self.stored.get(place)
        if stored is None and (uid or version):
            raise Conflicted("no such object")
        if stored is not None and ((uid and uid != stored.uid) or (version and version != str(stored.version))):
            raise Conflicted("another object")
        if stored is None:
            stored = self.stored[place] = Stored(f"uid-{next(self._uids)}")
            self.created.append(f"{place[0]} {place[1]}")
        before = dict(stored.values)
        self._merge(stored, flat, manager, force=force)
        if before != stored.values:
            spec = {p: v for p, v in stored.values.items() if p[0] == "spec"}
            stored.generation += before != {} and spec != {p: v for p, v in before.items() if p[0] == "spec"}
            stored.version += 1
        self._wrote()

    def _merge(self, stored: Stored, flat: dict[Path, Any], manager: str, *, force: bool) -> None:
        for path, value in flat.items():
            others = stored.owners.get(path, set()) - {manager}
            if others and stored.values[path] != value:
                if not force:
                    raise Conflicted(f"{path} belongs to {others}")
                stored.owners[path] = set()
        for path in [p for p, who in stored.owners.items() if manager in who and p not in flat]:
            stored.owners[path].discard(manager)
            if not stored.owners[path]:
                del stored.owners[path], stored.values[path]
        for path, value in flat.items():
            stored.values[path] = value
            stored.owners.setdefault(path, set()).add(manager)

    def delete(self, place: Place, uid: str) -> None:
        if place in self.stored and self.stored[place].uid != uid:
            raise Conflicted("another object")
        if self.stored.pop(place, None):
            self.deleted.append(f"{place[0]} {place[1]}")
        self._wrote()

    def change(self, place: Place, path: Path, value: Any, manager: str = "somebody") -> None:
        """A patch of somebody else, who asks nobody."""
        stored = self.stored[place]
        stored.values[path] = json.dumps(value, sort_keys=True)
        stored.owners[path] = {manager}
        stored.generation += path[0] == "spec"
        stored.version += 1

    def scale(self, name: str, replicas: int, manager: str = "paceline-autoscaler") -> None:
        stored = next(s for (kind, key), s in self.stored.items() if kind == "Deployment" and key.name == name)
        stored.values[("spec", "replicas")] = json.dumps(replicas)
        stored.owners[("spec", "replicas")] = {manager}
        stored.generation += 1

    def carry_out(self, action: Action) -> None:
        """As the shell does: a conflict of a create or a hand-over is swallowed, the next look tells."""
        try:
            if isinstance(action, Apply):
                self.apply(action.manifest(), MANAGER, force=action.force)
            elif isinstance(action, HandOver):
                self.apply(action.manifest(), REPLICAS_MANAGER, force=False)
            else:
                self.delete((action.kind, action.key), action.uid)
        except Conflicted:
            if isinstance(action, Delete):
                raise

    def settle(self) -> None:
        """Deployment controllers and kubelets did their work."""
        for (kind, _), stored in self.stored.items():
            if kind == "Deployment":
                replicas = json.loads(stored.values.get(("spec", "replicas"), "1"))
                names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
                stored.status = dict.fromkeys(names, replicas) | {"observedGeneration": stored.generation}

    def manifest(self, place: Place) -> dict[str, Any]:
        kind, key = place
        stored = self.stored[place]
        body = defaulted(kind, grown(stored.values))
        fields = [
            {"manager": who, "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
            for who in sorted(stored.owners.get(("spec", "replicas"), set()))
        ]
        metadata = body.get("metadata", {}) | {
            "name": key.name,
            "namespace": key.namespace,
            "uid": stored.uid,
            "resourceVersion": str(stored.version),
            "generation": stored.generation,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": fields,
        }
        return {**body, "kind": kind, "metadata": metadata, "status": deepcopy(stored.status)}

    def seen(self) -> dict[Place, ObservedChild]:
        return {place: observe_child(self.manifest(place)) for place in self.stored}

    def picture(self) -> dict[str, Any]:
        """Everything that a user could tell apart, uids and the order of keyed lists left out."""
        return {
            f"{kind} {key}": grown(dict(sorted(stored.values.items(), key=str)))
            for (kind, key), stored in sorted(self.stored.items())
        }

    def _wrote(self) -> None:
        self.calls += 1
        if self.die_after is not None and self.calls == self.die_after:
            raise Crash

    @staticmethod
    def _place(body: Mapping[str, Any]) -> Place:
        return (body["kind"], ObjectKey(body["metadata"]["namespace"], body["metadata"]["name"]))


def _split(body: dict[str, Any]) -> tuple[dict[str, Any], str, str]:
    metadata = dict(body["metadata"])
    uid, version = metadata.pop("uid", ""), metadata.pop("resourceVersion", "")
    for name in ("name", "namespace"):
        metadata.pop(name)
    rest = {name: part for name, part in body.items() if name not in ("apiVersion", "kind", "metadata")}
    return ({"metadata": metadata, **rest} if metadata else rest), uid, version


def defaulted(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """What a server adds when it stores an object; taken from a real one (Kubernetes 1.36)."""
    if kind == "Deployment":
        spec = body["spec"]
        spec.setdefault("replicas", 1)
        pod = spec["template"]["spec"]
        pod |= {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
        pod["serviceAccount"] = pod["serviceAccountName"]
        spec["template"]["metadata"]["creationTimestamp"] = None
        for container in pod["containers"]:
            container["terminationMessagePath"] = "/dev/termination-log"
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                container[probe] |= PROBE
        for volume in pod["volumes"]:
            for source in ("downwardAPI", "configMap"):
                if source in volume:
                    volume[source]["defaultMode"] = 420
    if kind == "Service":
        body["spec"] |= {"type": "ClusterIP", "sessionAffinity": "None", "clusterIPs": ["None"], "ipFamilies": ["IPv4"]}
    return body
