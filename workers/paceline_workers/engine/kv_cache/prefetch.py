"""Where a request waits for pages that lie on disk, before it is queued: no step ever waits for a file.

It waits until they have been read, and never longer than computing them would have taken. Beyond GUESTS nobody is
asked to wait; whoever does not wait, or has waited in vain, computes what is missing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Protocol

from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.kv_cache.offload import Copy, CopyKind, digest_of
from paceline_workers.engine.scheduling import Request, SchedulerLimits
from paceline_workers.engine.scheduling.validation import invalid

GUESTS = 64
GLANCE = 0.001
"""Seconds between two looks at what has arrived."""


class Files(Protocol):
    """Pages on disk (`engine.pagefiles`): `known` ones, oldest first, of at most `limit`."""

    known: list[bytes]
    limit: int
    read_seconds: float

    def fetch(self, digests: Iterable[bytes]) -> set[bytes]:
        """Begin to read; returns those that will be told by `arrived`."""
        ...

    def arrived(self) -> list[tuple[bytes, bool]]:
        """What has been read since the last call, and whether it is good."""
        ...

    def discard(self, digest: bytes) -> None:
        """Nobody will take it."""
        ...


@dataclass(slots=True)
class _PendingRequest:
    request: Request
    lacking: set[bytes]
    until: float


class DiskPrefetchQueue:
    """All who wait; nobody, if there are no files."""

    def __init__(self, memory: KVCacheManager, files: Files | None, limits: SchedulerLimits) -> None:
        self._memory = memory
        self._files = files
        self._limits = limits
        self._guests: list[_PendingRequest] = []

    def __len__(self) -> int:
        return len(self._guests)

    @property
    def glance(self) -> float:
        """Seconds until somebody should look again."""
        return GLANCE if self._guests else inf

    def enter(self, request: Request, now: float) -> bool:
        """Whether it waits here; if not, it can be queued at once."""
        if self._files is None or len(self._guests) >= GUESTS or invalid(request, self._limits):
            return False
        self._memory.offload.read_seconds = self._files.read_seconds
        lacking = self._files.fetch(self._memory.lacking(request))
        if lacking:
            seconds = len(lacking) * self._memory.page_tokens * self._memory.offload.prefill_seconds
            self._guests.append(_PendingRequest(request, lacking, now + seconds))
        return bool(lacking)

    def leave(self, now: float) -> list[Request]:
        """Those who have waited long enough, in the order in which they came."""
        for digest, good in self._files.arrived() if self._files else ():
            self._settle(digest, good=good)
        ready = [guest for guest in self._guests if not guest.lacking or now >= guest.until]
        self._guests = [guest for guest in self._guests if guest not in ready]
        return [guest.request for guest in ready]

    def abort(self, request_id: str) -> None:
        """Nobody waits for it any more."""
        self._guests = [guest for guest in self._guests if guest.request.id != request_id]

    def lost(self, copies: Iterable[Copy]) -> None:
        """These were not made: what they should have taken is of no use."""
        for copy in copies:
            if copy.kind is CopyKind.LOAD and self._files is not None:
                self._files.discard(digest_of(copy.source))

    def _settle(self, digest: bytes, *, good: bool) -> None:
        if not self._memory.offload.arrived(digest, good=good) and good and self._files is not None:
            self._files.discard(digest)
        for guest in self._guests:
            guest.lacking.discard(digest)
