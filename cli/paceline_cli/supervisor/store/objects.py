"""The objects of one run by kind and key, with the versions that a real API server would give them."""

from collections.abc import Mapping
from typing import Any

from paceline_cli.supervisor.store import status as statuses
from paceline_cli.supervisor.store.feed import Topics
from paceline_core.errors import Conflict, NotFound
from paceline_core.kube.cluster import Manifest, ObjectKey
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_ROUTE, INFERENCE_SERVICE, TENANT

KINDS = (INFERENCE_SERVICE, TENANT, INFERENCE_ROUTE, ACCELERATOR_PROFILE, "Secret")


class Objects:
    """Manifests; every change gets the next version and goes to the kind's watchers."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._specs: dict[str, dict[ObjectKey, Manifest]] = {kind: {} for kind in KINDS}
        self._parts: dict[tuple[str, ObjectKey], dict[str, Any]] = {}
        self._version = 0

    def list(self, kind: str) -> list[Manifest]:
        """All objects of a kind; raises NotFound for a kind that nobody serves."""
        return list(self._kind(kind).values())

    def get(self, kind: str, key: ObjectKey) -> Manifest:
        """One object; raises NotFound."""
        try:
            return self._kind(kind)[key]
        except KeyError:
            raise NotFound(f"{kind} {key} does not exist") from None

    def put(self, manifest: Manifest) -> None:
        """Create or replace; the status stays."""
        key = key_of(manifest)
        self._change(manifest["kind"], key, {**manifest, "status": self._status(manifest["kind"], key)})

    def remove(self, kind: str, key: ObjectKey) -> None:
        """Delete; raises NotFound."""
        last = self.get(kind, key)
        del self._specs[kind][key]
        self._parts.pop((kind, key), None)
        self._topics.publish(kind, {"type": "GONE", "item": last})

    def patch_status(
        self, kind: str, key: ObjectKey, status: Mapping[str, Any], manager: str, version: str = ""
    ) -> None:
        """Apply a partial status; nothing is published when nothing changed. Conflict unless at that version."""
        current = self.get(kind, key)
        found = current["metadata"].get("resourceVersion", "")
        if version and version != found:
            raise Conflict(f"{kind} {key} is at version {found}, not {version}")
        parts = statuses.apply(self._parts.get((kind, key), {}), status, manager)
        self._parts[kind, key] = parts
        whole = statuses.merged(parts)
        if whole != current["status"]:
            self._change(kind, key, {**current, "status": whole})

    def _kind(self, kind: str) -> dict[ObjectKey, Manifest]:
        if kind not in self._specs:
            raise NotFound(f"no objects of kind {kind!r} are served here; the kinds are {', '.join(KINDS)}")
        return self._specs[kind]

    def _status(self, kind: str, key: ObjectKey) -> dict[str, Any]:
        return statuses.merged(self._parts.get((kind, key), {}))

    def _change(self, kind: str, key: ObjectKey, manifest: Manifest) -> None:
        self._version += 1
        metadata = {**manifest["metadata"], "resourceVersion": str(self._version)}
        item = {**manifest, "metadata": metadata}
        self._kind(kind)[key] = item
        self._topics.publish(kind, {"type": "CHANGED", "item": item})


def key_of(manifest: Manifest) -> ObjectKey:
    """Where an object stands."""
    metadata = manifest["metadata"]
    return ObjectKey(metadata.get("namespace", ""), metadata["name"])
