"""Requests wait here for pages on disk, before they are queued: no step ever waits for a file.

A request waits until its pages have been read, but never longer than computing them would take. At most MAX_WAITING
requests wait; a request that does not wait, or whose wait ended too early, computes the missing pages.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.kv_cache.offload import Copy, CopyKind, digest_of
from paceline_workers.engine.scheduling import Request, SchedulerLimits
from paceline_workers.engine.scheduling.scheduler import invalid

MAX_WAITING = 64


class Files(Protocol):
    """Pages on disk (`engine.page_files`): the `known` ones, oldest first, of at most `limit`."""

    known: list[bytes]
    limit: int
    read_seconds: float

    def fetch(self, digests: Iterable[bytes]) -> set[bytes]:
        """Begin to read; returns those that `arrived` will report."""
        ...

    def arrived(self) -> list[tuple[bytes, bool]]:
        """The pages read since the last call, and whether each is good."""
        ...

    def discard(self, digest: bytes) -> None:
        """Drop a page that has been read."""
        ...


@dataclass(slots=True)
class PendingRequest:
    """A request, the pages that it lacks, and how long it waits for them."""

    request: Request
    lacking: set[bytes]
    until: float


class DiskPrefetchQueue:
    """All requests that wait for files, in `waiting`."""

    def __init__(self, memory: KVCacheManager, files: Files | None, limits: SchedulerLimits) -> None:
        self._memory = memory
        self._files = files
        self._limits = limits
        self.waiting: list[PendingRequest] = []

    def enter(self, request: Request, now: float) -> bool:
        """Whether the request waits here; if not, it can be queued at once."""
        if self._files is None or len(self.waiting) >= MAX_WAITING or invalid(request, self._limits):
            return False
        self._memory.offload.read_seconds = self._files.read_seconds
        lacking = self._files.fetch(self._memory.lacking(request))
        if lacking:
            seconds = len(lacking) * self._memory.page_tokens * self._memory.offload.prefill_seconds
            self.waiting.append(PendingRequest(request, lacking, now + seconds))
        return bool(lacking)

    def leave(self, now: float) -> list[Request]:
        """Requests that need not wait any longer, in order of arrival."""
        for digest, good in self._files.arrived() if self._files else ():
            if not self._memory.offload.arrived(digest, good=good) and good and self._files is not None:
                self._files.discard(digest)
            for pending in self.waiting:
                pending.lacking.discard(digest)
        ready = [pending for pending in self.waiting if not pending.lacking or now >= pending.until]
        self.waiting = [pending for pending in self.waiting if pending not in ready]
        return [pending.request for pending in ready]

    def abort(self, request_id: str) -> None:
        self.waiting = [pending for pending in self.waiting if pending.request.id != request_id]

    def lost(self, copies: Iterable[Copy]) -> None:
        """These copies were not made: drop the data that they should have used."""
        for copy in copies:
            if copy.kind is CopyKind.LOAD and self._files is not None:
                self._files.discard(digest_of(copy.source))
