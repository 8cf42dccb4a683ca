"""An API server's memory: server-side apply as far as the operator leans on it, uids, versions, and faults on demand.

Replicas follow the rules that DESIGN 4 is about: an apply that leaves them out resets them to 1 unless another manager
owns them, and an apply without force that says another value than their other owner's is a Conflict.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from paceline_core.errors import Conflict, NotFound, Unreachable
from paceline_core.kube import Deleted, ObjectKey, Upserted
from paceline_core.kube.client.client import ObjectList
from paceline_core.kube.client.resource import RESOURCES, Resource
from paceline_core.kube.cluster import Manifest, WatchEvent

Fault = Callable[[int, str, str], Exception | None]
FOREIGN = "somebody"


class LostAnswer(Unreachable):
    """Carried out, and the answer was lost."""


@dataclass
class FakeApi:
    """Objects by kind and place. `fault(n, verb, kind)` may fail the n-th write, `LostAnswer` after it was done.

    `starts`: pods become ready at once, and never otherwise.
    """

    objects: dict[tuple[str, ObjectKey], Manifest] = field(default_factory=dict)
    events: list[WatchEvent[Manifest]] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    fault: Fault = lambda *_: None
    starts: bool = True
    version: int = 100
    _uids: int = 0

    async def get(self, resource: Resource, key: ObjectKey, subresource: str = "") -> Manifest:
        if (resource.kind, key) not in self.objects:
            raise NotFound(f"{resource.kind} {key}")
        return copy.deepcopy(self.objects[resource.kind, key])

    async def list(
        self, resource: Resource, namespace: str = "", *, selector: str = "", fields: str = ""
    ) -> list[Manifest]:
        return [
            copy.deepcopy(found)
            for (kind, key), found in self.objects.items()
            if kind == resource.kind and namespace in ("", key.namespace) and _matches(found, selector)
        ]

    async def snapshot(self, resource: Resource, namespace: str = "", *, selector: str = "") -> ObjectList:
        return ObjectList(await self.list(resource, namespace, selector=selector), str(self.version))

    async def apply(
        self, resource: Resource, body: Manifest, manager: str, *, force: bool = True, subresource: str = ""
    ) -> Manifest:
        body = copy.deepcopy(body)
        key = ObjectKey(body["metadata"].get("namespace", ""), body["metadata"]["name"])
        lost = self._failed("status" if subresource else "apply", resource.kind, key)
        known = self.objects.get((resource.kind, key))
        self._guard(known, body, subresource)
        if subresource:
            made = {**known, "status": {**(known or {}).get("status", {}), **body["status"]}} if known else body
        elif known is None:
            made = self._created(resource, body)
        else:
            made = _merged(known, body)
        if resource.kind == "Deployment":
            _replicas(made, known, body, manager, force=force)
        elif known is not None and not subresource and not force and known["metadata"].get("manager") == FOREIGN:
            raise Conflict(f"{key}: field is owned by {FOREIGN}")
        answer = self._store(made)
        if lost:
            raise lost
        return answer

    async def apply_new(self, resource: Resource, body: Manifest, manager: str) -> Manifest:
        key = ObjectKey(body["metadata"].get("namespace", ""), body["metadata"]["name"])
        if (resource.kind, key) in self.objects:
            self._failed("apply", resource.kind, key)
            raise Conflict(f"{resource.kind} {key} exists")
        return await self.apply(resource, body, manager, force=False)

    async def delete(self, resource: Resource, key: ObjectKey, uid: str = "") -> None:
        lost = self._failed("delete", resource.kind, key)
        known = self.objects.get((resource.kind, key))
        if known is not None:
            if uid and known["metadata"]["uid"] != uid:
                raise Conflict(f"{key}: uid differs")
            self.remove(resource.kind, key)
        if lost:
            raise lost

    async def get_deployment(self, key: ObjectKey) -> Manifest:
        """One Deployment."""
        return await self.get(RESOURCES["Deployment"], key)

    def put(self, manifest: Manifest, manager: str = "") -> Manifest:
        """Somebody creates or changes an object."""
        resource = RESOURCES[manifest["kind"]]
        made = copy.deepcopy(manifest)
        if "uid" not in made["metadata"]:
            made = self._created(resource, made)
        if manager:
            made["metadata"]["manager"] = manager
        return self._store(made)

    def remove(self, kind: str, key: ObjectKey) -> None:
        """Somebody deletes an object; what it owns goes with it."""
        gone = self.objects.pop((kind, key))
        self.version += 1
        gone["metadata"]["resourceVersion"] = str(self.version)
        self.events.append(Deleted(copy.deepcopy(gone)))
        for (owned, place), found in list(self.objects.items()):
            if any(ref["uid"] == gone["metadata"]["uid"] for ref in found["metadata"].get("ownerReferences", ())):
                self.remove(owned, place)

    def children(self, *kinds: str) -> dict[tuple[str, ObjectKey], Manifest]:
        """What is stored of these kinds."""
        return {place: found for place, found in self.objects.items() if place[0] in kinds}

    def _failed(self, verb: str, kind: str, key: ObjectKey) -> Exception | None:
        self.writes.append(f"{verb} {kind} {key}")
        fault = self.fault(len(self.writes), verb, kind)
        if fault is not None and not isinstance(fault, LostAnswer):
            raise fault
        return fault

    def _guard(self, known: Manifest | None, body: Manifest, subresource: str) -> None:
        uid = body["metadata"].get("uid")
        if known is None and subresource:
            raise NotFound(body["metadata"]["name"])
        if uid and (known is None or known["metadata"]["uid"] != uid):
            raise Conflict(f"{body['metadata']['name']}: uid differs")

    def _created(self, resource: Resource, body: Manifest) -> Manifest:
        self._uids += 1
        metadata = {"generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z", **body["metadata"]}
        return {"apiVersion": resource.api_version, **body, "metadata": {**metadata, "uid": f"uid-{self._uids}"}}

    def _store(self, made: Manifest) -> Manifest:
        place = (made["kind"], ObjectKey(made["metadata"].get("namespace", ""), made["metadata"]["name"]))
        known = self.objects.get(place)
        if known is not None and _same(known, made):
            return copy.deepcopy(known)
        self.version += 1
        made["metadata"] = {**made["metadata"], "resourceVersion": str(self.version)}
        if known is not None and known.get("spec") != made.get("spec"):
            made["metadata"]["generation"] = known["metadata"]["generation"] + 1
        if made["kind"] == "Deployment" and self.starts:
            made["status"] = _ready(made)
        self.objects[place] = made
        self.events.append(Upserted(copy.deepcopy(made)))
        return copy.deepcopy(made)


def _replicas(made: Manifest, known: Manifest | None, body: Manifest, manager: str, *, force: bool) -> None:
    owners = {entry["manager"] for entry in (known or {}).get("metadata", {}).get("managedFields", ())}
    before = (known or {}).get("spec", {}).get("replicas")
    desired = body.get("spec", {}).get("replicas")
    others = owners - {manager}
    if desired is None:
        owners.discard(manager)
        made["spec"]["replicas"] = before if others and before is not None else 1
    elif others and before != desired and not force:
        raise Conflict("conflict with " + ", ".join(sorted(others)) + ": .spec.replicas")
    else:
        owners = (owners if before == desired else set()) | {manager}
        made["spec"]["replicas"] = desired
    fields: Manifest = {"f:spec": {"f:replicas": {}}}
    made["metadata"] = {
        **made["metadata"],
        "managedFields": [{"manager": name, "fieldsV1": fields} for name in sorted(owners)],
    }


def _ready(deployment: Manifest) -> Manifest:
    """Controllers, scheduler and kubelet in no time."""
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    status = dict.fromkeys(counts, deployment["spec"]["replicas"])
    return {**status, "observedGeneration": deployment["metadata"]["generation"]}


def _merged(known: Any, body: Any) -> Any:
    if not isinstance(known, dict) or not isinstance(body, dict):
        return copy.deepcopy(body)
    merged = {name: value if name == "selector" else _merged(known.get(name), value) for name, value in body.items()}
    return {**known, **copy.deepcopy(merged)}


def _same(known: Manifest, made: Manifest) -> bool:
    def bare(found: Manifest) -> Manifest:
        return {**found, "metadata": {k: v for k, v in found["metadata"].items() if k != "resourceVersion"}}

    return bare(known) == bare(made)


def _matches(manifest: Manifest, selector: str) -> bool:
    if not selector:
        return True
    name, _, value = selector.partition("=")
    labels = manifest["metadata"].get("labels") or {}
    return bool(labels.get(name) == value)
