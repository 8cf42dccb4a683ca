"""Workers of every service from a watch of EndpointSlices or of Pods: pure, one entry for each object that tells.

A service's workers are spread over several slices, and for a moment a worker stands in two, or once for each address
family: by name, the ready one wins, then the first address. `take` turns one event of the watch into what it changes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from paceline_core.kube.cluster import (
    Changed,
    Endpoint,
    Gone,
    Key,
    Listed,
    Lost,
    Manifest,
    ServiceEndpoints,
    WatchEvent,
)
from paceline_core.kube.podname import pool_and_track
from paceline_core.objects.naming import LABEL_POOL, LABEL_REVISION, LABEL_SERVICE, LABEL_TRACK, STABLE

PORT_NAME: Final = "http"
PORT: Final = 8000
Workers = tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """What one object tells: some workers of one service."""

    service: Key
    name: str
    workers: Workers


class Roster:
    """The last word of each object; `read` is `read_slice` or `read_pod`."""

    def __init__(self, read: Callable[[Manifest], Entry | None]) -> None:
        self._read = read
        self._entries: dict[Key, dict[str, Workers]] = {}
        self._told: dict[Key, ServiceEndpoints] = {}

    def take(self, event: WatchEvent[Manifest]) -> Iterator[WatchEvent[ServiceEndpoints]]:
        """The events that readers of endpoints see for one event of the watch; none when nothing changes for them."""
        match event:
            case Listed(items):
                yield self._list(items)
            case Changed(item):
                yield from self._change(item, gone=False)
            case Gone(item):
                yield from self._change(item, gone=True)
            case Lost():
                yield event

    def _list(self, items: tuple[Manifest, ...]) -> Listed[ServiceEndpoints]:
        self._entries = {}
        for entry in filter(None, map(self._read, items)):
            self._entries.setdefault(entry.service, {})[entry.name] = entry.workers
        self._told = {service: self._made(service) for service in self._entries}
        return Listed(tuple(self._told.values()))

    def _change(self, item: Manifest, *, gone: bool) -> Iterator[WatchEvent[ServiceEndpoints]]:
        entry = self._read(item)
        if entry is None:
            return
        entries = self._entries.setdefault(entry.service, {})
        if gone:
            entries.pop(entry.name, None)
        else:
            entries[entry.name] = entry.workers
        yield from self._news(entry.service)

    def _news(self, service: Key) -> Iterator[WatchEvent[ServiceEndpoints]]:
        before = self._told.get(service)
        if not self._entries[service]:
            del self._entries[service]
            if before is not None:
                yield Gone(self._told.pop(service))
            return
        now = self._made(service)
        if now != before:
            self._told[service] = now
            yield Changed(now)

    def _made(self, service: Key) -> ServiceEndpoints:
        best: dict[str, Endpoint] = {}
        for _, workers in sorted(self._entries[service].items()):
            for worker in workers:
                if worker.name not in best or (worker.ready and not best[worker.name].ready):
                    best[worker.name] = worker
        return ServiceEndpoints(service, tuple(best[name] for name in sorted(best)))


def read_slice(manifest: Manifest) -> Entry | None:
    """The workers of an EndpointSlice; None for one that belongs to no service of ours."""
    metadata = manifest["metadata"]
    service = (metadata.get("labels") or {}).get(LABEL_SERVICE)
    if not service:
        return None
    port = _slice_port(manifest)
    endpoints = manifest.get("endpoints") or () if port and manifest.get("addressType") != "FQDN" else ()
    workers = tuple(_from_slice(service, item, port) for item in endpoints if _names_a_pod(item))
    return Entry(Key(metadata["namespace"], service), metadata["name"], workers)


def read_pod(manifest: Manifest) -> Entry | None:
    """A Pod as a worker; one that has ended tells of none, and one without an address has an empty host."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    labels = metadata.get("labels") or {}
    service = labels.get(LABEL_SERVICE)
    if not service:
        return None
    ended = status.get("phase") in {"Failed", "Succeeded"}
    workers = () if ended else (_from_pod(manifest, labels, status),)
    return Entry(Key(metadata["namespace"], service), metadata["name"], workers)


def _from_slice(service: str, item: Mapping[str, Any], port: int) -> Endpoint:
    conditions = item.get("conditions") or {}
    terminating = bool(conditions.get("terminating"))
    ready = conditions.get("ready") is not False and not terminating  # unknown means ready, says the API
    name = item["targetRef"]["name"]
    pool, track = pool_and_track(service, name)
    return Endpoint(name, pool, track, "", item["addresses"][0], port, ready, terminating)


def _names_a_pod(item: Mapping[str, Any]) -> bool:
    return (item.get("targetRef") or {}).get("kind") == "Pod" and bool(item.get("addresses"))


def _slice_port(manifest: Manifest) -> int:
    """The port called http, else the first one with a number, else 0."""
    ports = [port for port in manifest.get("ports") or () if port.get("port")]
    named = [port for port in ports if port.get("name") == PORT_NAME]
    return int((named or ports)[0]["port"]) if ports else 0


def _from_pod(manifest: Manifest, labels: Mapping[str, str], status: Mapping[str, Any]) -> Endpoint:
    metadata = manifest["metadata"]
    terminating = "deletionTimestamp" in metadata
    conditions = status.get("conditions") or ()
    ready = any(found.get("type") == "Ready" and found.get("status") == "True" for found in conditions)
    return Endpoint(
        name=metadata["name"],
        pool=labels.get(LABEL_POOL, ""),
        track=labels.get(LABEL_TRACK, STABLE),
        revision=labels.get(LABEL_REVISION, ""),
        host=status.get("podIP") or "",
        port=_pod_port(manifest),
        ready=ready and not terminating,
        terminating=terminating,
        created=metadata.get("creationTimestamp"),
    )


def _pod_port(manifest: Manifest) -> int:
    for container in (manifest.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == PORT_NAME:
                return int(port["containerPort"])
    return PORT
