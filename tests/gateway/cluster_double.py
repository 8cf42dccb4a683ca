"""The Cluster seam in memory: objects and endpoints that a test changes, watched as the real ones are."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Generic, TypeVar

from paceline_core.errors import Conflict
from paceline_core.kube import (
    Deleted,
    Endpoint,
    Event,
    Listed,
    ObjectKey,
    Scale,
    ScaleTarget,
    ServiceEndpoints,
    ServiceRef,
    Upserted,
    WatchLost,
)
from paceline_core.kube.cluster import Manifest, WatchEvent

T = TypeVar("T")


class LeaseDouble(dict[str, str]):
    """Leases by name; each is taken for good, until it is released."""

    async def acquire(self, name: str, holder: str, ttl_s: float) -> bool:
        return self.setdefault(name, holder) == holder

    async def holder(self, name: str) -> str:
        return self.get(name, "")

    async def release(self, name: str, holder: str) -> None:
        if self.get(name) == holder:
            del self[name]


class Board(Generic[T]):
    """Items by key, and everybody who watches them. With a `refusal` a watch begins with that instead of a list."""

    def __init__(self) -> None:
        self.items: dict[str, T] = {}
        self.refusal: WatchLost | None = None
        self._watchers: list[asyncio.Queue[WatchEvent[T]]] = []

    def put(self, key: str, item: T) -> None:
        """Create or change."""
        self.items[key] = item
        self.tell(Upserted(item))

    def drop(self, key: str) -> None:
        """Delete."""
        self.tell(Deleted(self.items.pop(key)))

    def tell(self, event: WatchEvent[T]) -> None:
        """Send an event to everybody."""
        for watcher in self._watchers:
            watcher.put_nowait(event)

    async def watch(self) -> AsyncIterator[WatchEvent[T]]:
        """The list, then every change."""
        queue: asyncio.Queue[WatchEvent[T]] = asyncio.Queue()
        self._watchers.append(queue)
        try:
            yield self.refusal or Listed(tuple(self.items.values()))
            while True:
                yield await queue.get()
        finally:
            self._watchers.remove(queue)


class ClusterDouble:
    """What the gateway uses of the seam works; what it must never call fails the test."""

    def __init__(self) -> None:
        self.boards: dict[str, Board[Manifest]] = {}
        self.leases = LeaseDouble()
        self.endpoints: Board[ServiceEndpoints] = Board()
        self._version = 0

    def board(self, kind: str) -> Board[Manifest]:
        """The objects of a kind."""
        return self.boards.setdefault(kind, Board())

    def put(self, manifest: Manifest) -> None:
        """Create or change an object; it gets a new version."""
        self._version += 1
        metadata = {**manifest["metadata"], "resourceVersion": str(self._version)}
        place = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
        self.board(manifest["kind"]).put(place, {**manifest, "metadata": metadata})

    async def before_write(self) -> None:
        """A test may raise here what a write meets."""

    def drop(self, kind: str, key: str) -> None:
        """Delete an object."""
        self.board(kind).drop(key)

    def serve(self, service: str, *endpoints: Endpoint) -> None:
        """Say which workers a service has."""
        self.endpoints.put(service, ServiceEndpoints(ObjectKey.parse(service), endpoints))

    def lose(self, reason: str = "gone") -> None:
        """Break every watch for a moment; nothing has changed meanwhile."""
        for board in self.boards.values():
            board.tell(WatchLost(reason))
        self.endpoints.tell(WatchLost(reason))

    def watch(self, kind: str) -> AsyncIterator[WatchEvent[Manifest]]:
        """Objects of a kind."""
        return self.board(kind).watch()

    def watch_endpoints(self) -> AsyncIterator[WatchEvent[ServiceEndpoints]]:
        """Workers of every service."""
        return self.endpoints.watch()

    async def get_scale(self, target: ScaleTarget) -> Scale:
        """Not the gateway's."""
        raise AssertionError(f"the gateway asked for {target}")

    async def set_scale(self, target: ScaleTarget, replicas: int, version: str) -> Scale:
        """Not the gateway's."""
        raise AssertionError(f"the gateway scaled {target} to {replicas} at {version}")

    async def scale_writer(self, target: ScaleTarget) -> str:
        """Not the gateway's."""
        raise AssertionError(f"the gateway asked who scales {target}")

    async def patch_status(
        self, kind: str, key: ObjectKey, status: Mapping[str, Any], manager: str, version: str = ""
    ) -> None:
        """A Tenant's usage, guarded by a version, is all that a gateway writes."""
        assert (kind, manager, list(status)) == ("Tenant", "paceline-gateway", ["usage"])
        await self.before_write()
        item = self.board(kind).items[str(key)]
        if item["metadata"]["resourceVersion"] != version:
            raise Conflict(f"{key} is not at {version}")
        self.put({**item, "status": {**item.get("status", {}), **status}})

    async def get_state(self, service: ServiceRef) -> Mapping[str, str] | None:
        """Not the gateway's."""
        raise AssertionError(f"the gateway read the state of {service}")

    async def put_state(self, service: ServiceRef, data: Mapping[str, str]) -> None:
        """Not the gateway's."""
        raise AssertionError(f"the gateway wrote the state of {service}: {data}")

    async def list_states(self) -> tuple[ServiceRef, ...]:
        """Not the gateway's."""
        raise AssertionError("the gateway listed states")

    async def delete_state(self, service: ServiceRef) -> None:
        """Not the gateway's."""
        raise AssertionError(f"the gateway deleted the state of {service}")

    async def event(self, event: Event) -> None:
        """Not the gateway's."""
        raise AssertionError(f"the gateway posted {event}")
