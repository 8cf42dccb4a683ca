"""An API server in memory: scales with versions, leases, statuses, events, states, watches that the test feeds."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline_core.errors import Conflict, NotFound
from paceline_core.kube import Event, ObjectKey, Scale, ScaleTarget, ServiceEndpoints, ServiceRef
from paceline_core.kube.cluster import Manifest, WatchEvent


class FakeLeases(dict[str, str]):
    """Leases by name; each is taken for good, until it is released. `fail` raises where a call is to break."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        super().__init__()
        self._fail = fail

    async def acquire(self, name: str, holder: str, ttl_s: float) -> bool:
        self._fail("lease")
        return self.setdefault(name, holder) == holder

    async def holder(self, name: str) -> str:
        return self.get(name, "")

    async def release(self, name: str, holder: str) -> None:
        self._fail("release")
        if self.get(name) == holder:
            del self[name]


@dataclass
class FakeCluster:
    """`broken` by call name raises that error; `statuses` and `events` keep all that was written.

    `calls` counts the requests by name; `writers` says who set a scale last.
    """

    scales: dict[ScaleTarget, Scale] = field(default_factory=dict)
    states: dict[ServiceRef, dict[str, str]] = field(default_factory=dict)
    statuses: list[tuple[ObjectKey, dict[str, Any]]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    written: list[tuple[ScaleTarget, int]] = field(default_factory=list)
    leases: FakeLeases = field(init=False)
    calls: Counter[str] = field(default_factory=Counter)
    writers: dict[ScaleTarget, str] = field(default_factory=dict)
    broken: dict[str, Exception] = field(default_factory=dict)
    objects: dict[str, asyncio.Queue[WatchEvent[Manifest]]] = field(default_factory=dict)
    workers: asyncio.Queue[WatchEvent[ServiceEndpoints]] = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        self.leases = FakeLeases(self._break)

    def queue(self, kind: str) -> asyncio.Queue[WatchEvent[Manifest]]:
        return self.objects.setdefault(kind, asyncio.Queue())

    def move(self, target: ScaleTarget, replicas: int, writer: str = "") -> None:
        """Somebody else sets the scale."""
        old = self.scales.get(target, Scale(0, "0"))
        self.scales[target] = Scale(replicas, str(int(old.version) + 1))
        self.writers[target] = writer

    async def watch(self, kind: str) -> AsyncIterator[WatchEvent[Manifest]]:
        while True:
            yield await self.queue(kind).get()

    async def watch_endpoints(self) -> AsyncIterator[WatchEvent[ServiceEndpoints]]:
        while True:
            yield await self.workers.get()

    async def get_scale(self, target: ScaleTarget) -> Scale:
        self._break(f"get_scale {target.service}")
        if target not in self.scales:
            raise NotFound(f"{target} does not exist")
        return self.scales[target]

    async def set_scale(self, target: ScaleTarget, replicas: int, version: str) -> Scale:
        self._break("set_scale")
        if self.scales[target].version != version:
            raise Conflict("the scale has moved")
        self.move(target, replicas, "paceline-autoscaler")
        self.written.append((target, replicas))
        return self.scales[target]

    async def scale_writer(self, target: ScaleTarget) -> str:
        self._break("scale_writer")
        return self.writers[target]

    async def patch_status(
        self, kind: str, key: ObjectKey, status: Mapping[str, Any], manager: str, version: str = ""
    ) -> None:
        self._break("patch_status")
        self.statuses.append((key, dict(status)))

    async def get_state(self, service: ServiceRef) -> Mapping[str, str] | None:
        self._break("get_state")
        return self.states.get(service)

    async def put_state(self, service: ServiceRef, data: Mapping[str, str]) -> None:
        self._break("put_state")
        self.states[service] = dict(data)

    async def list_states(self) -> tuple[ServiceRef, ...]:
        self._break("list_states")
        return tuple(self.states)

    async def delete_state(self, service: ServiceRef) -> None:
        self._break("delete_state")
        self.states.pop(service, None)

    async def event(self, event: Event) -> None:
        self.events.append(event)

    def _break(self, call: str) -> None:
        self.calls[call.partition(" ")[0]] += 1
        for name, error in self.broken.items():
            if call.startswith(name):
                raise error
