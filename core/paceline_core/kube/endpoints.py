"""The workers of every service, from a watch of EndpointSlices or of Pods: pure, one entry for each object.

A service's workers are spread over several slices. For a moment a worker may be in two, or once for each address
family: for each name the ready one counts, then the first address. An EndpointSlice shows pool and track only in its
pods' names.

A Deployment's pods are called `<service>-<pool>[-canary]-<hash>-<5 characters>`, but the part before the last five is
cut to 58 characters (names.SimpleNameGenerator), within the hash or within `-canary`. A pool is never cut: service and
pool have at most 40 and 15 characters. The hash has no vowels, so `-ca` only begins `-canary`.
Known hole: of the longest names (56 characters before the hash) one character remains; if it is a `c`, the name could
be a canary's or have a hash that begins with `c`, and counts as stable.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from paceline_core.kube.cluster import (
    Deleted,
    Endpoint,
    Listed,
    Manifest,
    ObjectKey,
    ResourceStore,
    ServiceEndpoints,
    StartStage,
    StoreChange,
    Upserted,
    WatchEvent,
    WatchLost,
    namespaced_key,
)
from paceline_core.launch.build import termination_reason
from paceline_core.objects.naming import CANARY, LABEL_POOL, LABEL_REVISION, LABEL_SERVICE, LABEL_TRACK, STABLE

_POOL: Final = re.compile(r"[a-z][a-z0-9]{0,14}(?=-)")
_RANDOM: Final = 5


def pool_and_track(service: str, pod: str) -> tuple[str, str]:
    """The pool and the track; an empty pool if the pod belongs to no pool of this service."""
    if not pod.startswith(f"{service}-"):
        return "", STABLE
    rest = pod[len(service) + 1 : -_RANDOM]
    found = _POOL.match(rest)
    if found is None:
        return "", STABLE
    return found[0], CANARY if rest[found.end() :].startswith("-ca") else STABLE


PORT_NAME: Final = "http"
PORT: Final = 8000
WORDS_LIMIT: Final = 300
"""The most characters of a termination reason."""
Workers = tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class EndpointEntry:
    """The contents of one object: workers of one service, and those of them that ended permanently."""

    service: ObjectKey
    name: str
    workers: Workers
    failed: Workers = ()


class EndpointTracker:
    """Workers by service from one watch; `read` is `read_slice` or `read_pod`."""

    def __init__(self, read: Callable[[Manifest], EndpointEntry | None]) -> None:
        self._read = read
        self._objects: ResourceStore[ObjectKey, EndpointEntry] = ResourceStore()
        self._entries: dict[ObjectKey, dict[str, EndpointEntry]] = {}
        self._reported: dict[ObjectKey, ServiceEndpoints] = {}

    def take(self, event: WatchEvent[Manifest]) -> Iterator[WatchEvent[ServiceEndpoints]]:
        """The endpoint events for one event of the watch; none when nothing changes for their readers."""
        if isinstance(event, WatchLost):
            yield event
            return
        changed = self._index(self._objects.apply(event, namespaced_key, self._read))
        if isinstance(event, Listed):
            self._reported = {service: self._made(service) for service in self._entries}
            yield Listed(tuple(self._reported.values()))
            return
        for service in changed:
            yield from self._changes(service)

    def _index(self, changes: list[StoreChange[ObjectKey, EndpointEntry]]) -> list[ObjectKey]:
        """Store the entries of each service; returns the services that changed."""
        concerned: dict[ObjectKey, None] = {}
        for change in changes:
            if change.before is not None:
                entries = self._entries[change.before.service]
                del entries[change.before.name]
                if not entries:
                    del self._entries[change.before.service]
                concerned[change.before.service] = None
            if change.after is not None:
                self._entries.setdefault(change.after.service, {})[change.after.name] = change.after
                concerned[change.after.service] = None
        return list(concerned)

    def _changes(self, service: ObjectKey) -> Iterator[WatchEvent[ServiceEndpoints]]:
        before = self._reported.get(service)
        if service not in self._entries:
            if before is not None:
                yield Deleted(self._reported.pop(service))
            return
        now = self._made(service)
        if now != before:
            self._reported[service] = now
            yield Upserted(now)

    def _made(self, service: ObjectKey) -> ServiceEndpoints:
        best: dict[str, Endpoint] = {}
        entries = [entry for _, entry in sorted(self._entries[service].items())]
        for worker in (worker for entry in entries for worker in entry.workers):
            if worker.name not in best or (worker.ready and not best[worker.name].ready):
                best[worker.name] = worker
        failed = tuple(worker for entry in entries for worker in entry.failed)
        return ServiceEndpoints(service, tuple(best[name] for name in sorted(best)), failed)


def read_slice(manifest: Manifest) -> EndpointEntry | None:
    """The workers of an EndpointSlice; None if it belongs to no service of ours."""
    metadata = manifest["metadata"]
    service = (metadata.get("labels") or {}).get(LABEL_SERVICE)
    if not service:
        return None
    ports = [port for port in manifest.get("ports") or () if port.get("port")]
    named = [port for port in ports if port.get("name") == PORT_NAME]
    port = int((named or ports)[0]["port"]) if ports else 0  # the port named http, else the first with a number
    endpoints = manifest.get("endpoints") or () if port and manifest.get("addressType") != "FQDN" else ()
    workers = tuple(
        _from_slice(service, item, port)
        for item in endpoints
        if (item.get("targetRef") or {}).get("kind") == "Pod" and item.get("addresses")
    )
    return EndpointEntry(ObjectKey(metadata["namespace"], service), metadata["name"], workers)


def read_pod(manifest: Manifest) -> EndpointEntry | None:
    """A Pod as a worker; one that has ended is not a worker any more, and one without an address has an empty host."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    labels = metadata.get("labels") or {}
    service = labels.get(LABEL_SERVICE)
    if not service:
        return None
    phase, worker = status.get("phase"), _from_pod(manifest, labels, status)
    return EndpointEntry(
        ObjectKey(metadata["namespace"], service),
        metadata["name"],
        () if phase in {"Failed", "Succeeded"} else (worker,),
        (worker,) if phase == "Failed" else (),
    )


def _from_slice(service: str, item: Mapping[str, Any], port: int) -> Endpoint:
    conditions = item.get("conditions") or {}
    terminating = bool(conditions.get("terminating"))
    ready = conditions.get("ready") is not False and not terminating  # the API defines unknown as ready
    name = item["targetRef"]["name"]
    pool, track = pool_and_track(service, name)
    return Endpoint(name, pool, track, "", item["addresses"][0], port, ready, terminating)


def _from_pod(manifest: Manifest, labels: Mapping[str, str], status: Mapping[str, Any]) -> Endpoint:
    metadata = manifest["metadata"]
    terminating = "deletionTimestamp" in metadata
    conditions = status.get("conditions") or ()
    true = {found.get("type"): found for found in reversed(conditions) if found.get("status") == "True"}
    # `DeletionByTaintManager: ...` if Kubernetes removes the pod, `Evicted: ...` if its node does
    taken = true.get("DisruptionTarget")
    spec = manifest.get("spec") or {}
    containers = spec.get("containers") or ()
    ports = (port for container in containers for port in container.get("ports") or ())
    ready = "Ready" in true and not terminating
    return Endpoint(
        name=metadata["name"],
        pool=labels.get(LABEL_POOL, ""),
        track=labels.get(LABEL_TRACK, STABLE),
        revision=labels.get(LABEL_REVISION, ""),
        host=status.get("podIP") or "",
        port=next((int(port["containerPort"]) for port in ports if port.get("name") == PORT_NAME), PORT),
        ready=ready,
        terminating=terminating,
        created=metadata.get("creationTimestamp"),
        restarts=sum(container.get("restartCount", 0) for container in status.get("containerStatuses") or ()),
        ended=_ended(status),
        disruption=_words(taken or status) if taken or status.get("phase") == "Failed" else "",
        force_deleted=terminating and metadata.get("deletionGracePeriodSeconds") == 0,
        node=spec.get("nodeName") or "",
        stage=None if ready or terminating else _stage(spec, status),
    )


def _stage(spec: Mapping[str, Any], status: Mapping[str, Any]) -> StartStage:
    """A container that has ended, and waits to be started again, has been created."""
    if not spec.get("nodeName"):
        return StartStage.SCHEDULE
    containers = status.get("containerStatuses") or ()
    created = [
        container.get("lastState") or "waiting" not in (container.get("state") or {}) for container in containers
    ]
    return StartStage.LOAD if created and all(created) else StartStage.PULL


def _ended(status: Mapping[str, Any]) -> str:
    """The reason of the latest container end."""
    states = [
        found
        for container in status.get("containerStatuses") or ()
        for state in ("state", "lastState")
        if (found := (container.get(state) or {}).get("terminated"))
    ]
    last = max(states, key=lambda found: found.get("finishedAt") or "", default=None)
    return "" if last is None else termination_reason(last)[:WORDS_LIMIT]


def _words(found: Mapping[str, Any]) -> str:
    return ": ".join(part for part in (found.get("reason"), found.get("message")) if part)[:WORDS_LIMIT]
