"""Fetch every piece within one time limit, clean it, put it into the archive; what fails is a line of the index.

Objects come first, so that every value to be hidden is known before the first text is written.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from paceline_cli.kube.bundle.archive import Archive
from paceline_cli.kube.bundle.redact import Redactor
from paceline_cli.kube.bundle.sources import Listing, Reading, concerned, left_out, listings, readings, versions
from paceline_cli.kube.session import text
from paceline_cli.ui.detail import event_time
from paceline_core.clock import Clock
from paceline_core.errors import PacelineError
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Manifest

AT_ONCE: Final = 6
TEXT_LIMIT: Final = 1 << 20
EVENTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose objects (an empty namespace is all), where paceline runs, and how long collecting may take."""

    namespaces: tuple[str, ...]
    system: str
    within_s: float


class Collector:
    """One run of collecting into one archive."""

    def __init__(self, api: KubeClient, archive: Archive, clock: Clock, scope: Scope) -> None:
        self._api = api
        self._archive = archive
        self._clock = clock
        self._scope = scope
        self._deadline = clock.monotonic() + scope.within_s
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._redactor = Redactor()

    async def collect(self) -> None:
        """Everything; raises nothing that a piece raises."""
        wanted = list(listings(self._scope.namespaces, self._scope.system))
        found = await asyncio.gather(*(self._list(listing) for listing in wanted))
        self._redactor.learn(found)
        services = _of(wanted, found, "InferenceService")
        pods = _of(wanted, found, "Pod")
        for listing, items in zip(wanted, found, strict=True):
            if items is not None:
                self._archive.add(listing.path, self._redactor.objects(self._wanted(listing, items, services)))
        for path, reason in left_out(pods, services):
            self._archive.missing(path, reason)
        await asyncio.gather(*(self._read(reading) for reading in (*versions(), *readings(pods, services))))

    def _wanted(self, listing: Listing, items: list[Manifest], services: Sequence[Manifest]) -> list[Manifest]:
        if listing.kind != "Event":
            return items
        ours = [event for event in items if concerned(event, self._scope.system, services)]
        return sorted(ours, key=event_time)[-EVENTS:]

    async def _list(self, listing: Listing) -> list[Manifest] | None:
        resource = RESOURCES[listing.kind]
        try:
            async with self._slots, asyncio.timeout(self._left()):
                return await self._api.list(resource, listing.namespace, selector=listing.selector)
        except (PacelineError, TimeoutError) as error:
            self._archive.missing(listing.path, self._reason(error))
            return None

    async def _read(self, reading: Reading) -> None:
        try:
            async with self._slots, asyncio.timeout(self._left()):
                found = await text(self._api, reading.url, dict(reading.params), limit=TEXT_LIMIT)
        except (PacelineError, TimeoutError) as error:
            self._archive.missing(reading.path, self._reason(error))
            return
        self._archive.add(reading.path, self._redactor.log(found))

    def _left(self) -> float:
        return max(0.0, self._deadline - self._clock.monotonic())

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"the {self._scope.within_s:g} s for the bundle were over"
        return self._redactor.text(str(error))


def _of(wanted: Sequence[Listing], found: Sequence[list[Manifest] | None], kind: str) -> list[Any]:
    """Every object of a kind, each once."""
    every = [item for listing, items in zip(wanted, found, strict=True) if listing.kind == kind for item in items or ()]
    return list({item["metadata"]["uid"]: item for item in every}.values())
