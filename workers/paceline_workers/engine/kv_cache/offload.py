"""The tiers behind the device: the host store, page files behind it, the cost rule, and the list of copies to make.

A page that is overwritten on the device goes to host memory if copying it back is cheaper than computing it again, by
the time of a copy and the step-time model; one that loses its slot there goes to disk by the same rule. Copies are
listed in the order of the decisions, so a page or a slot may be reused within a step.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from paceline_workers.engine.kv_cache import prefix_keys


class CopyKind(StrEnum):
    """The source and the target of a copy."""

    DEVICE = "device"
    OUT = "out"
    IN = "in"
    SAVE = "save"
    LOAD = "load"
    ERASE = "erase"


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of one whole page: page to page (DEVICE), page to host slot (OUT), host slot to page (IN).

    With files: host slot to file (SAVE), data read from a file to host slot (LOAD), removal of a file (ERASE, of
    `source`); a file is named by its digest as a number. Order matters: one copy may read a page or slot that a later
    one of the same step overwrites.
    """

    kind: CopyKind
    source: int
    target: int


class HostStore:
    """Maps digests to slots of host memory, 0 to total - 1.

    `leaving`, if set, is called with a digest and its slot just before the slot is reused for another one.

    Content never changes under a digest, so a page that was copied back also stays here and leaves the device next time
    without a copy. When all slots are taken, the least recently used digest loses its slot. A slot that is about to be
    read is pinned until the copy that reads it is in the list: content that is added in between must not overwrite it.
    """

    def __init__(self, total: int) -> None:
        if total < 1:
            raise ValueError("a host store needs at least one slot")
        self.total = total
        self._slot: OrderedDict[bytes, int] = OrderedDict()
        self._digest: list[bytes | None] = [None] * total
        self._free = list(reversed(range(total)))
        self._pinned: frozenset[int] = frozenset()
        self.leaving: Callable[[bytes, int], None] | None = None

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._slot

    def __len__(self) -> int:
        return len(self._slot)

    def pin(self, digests: Iterable[bytes]) -> list[int]:
        """The slots of known digests, now the most recently used; none is overwritten before `unpin`."""
        slots = []
        for digest in digests:
            self._slot.move_to_end(digest)
            slots.append(self._slot[digest])
        self._pinned = frozenset(slots)
        return slots

    def unpin(self) -> None:
        """Allow all pinned slots to be overwritten again."""
        self._pinned = frozenset()

    def put(self, digest: bytes) -> int | None:
        """The slot to copy this content into; None if it is already known, or if every slot is pinned."""
        if digest in self._slot:
            self._slot.move_to_end(digest)
            return None
        if self._free:
            slot = self._free.pop()
        else:
            oldest, slot = next(iter(self._slot.items()))
            if slot in self._pinned:  # pinned ones are the most recently used, so all are pinned
                return None
            del self._slot[oldest]
            if self.leaving:
                self.leaving(oldest, slot)
        self._slot[digest] = slot
        self._digest[slot] = digest
        return slot

    def forget(self, slot: int) -> bytes | None:
        """The content of this slot is invalid; returns the digest that it should have had."""
        digest = self._digest[slot]
        if digest is not None:
            del self._slot[digest]
            self._digest[slot] = None
            self._free.append(slot)
        return digest

    def check(self) -> None:
        """Raise RuntimeError if the books are inconsistent. For tests: O(total)."""
        named = {digest: slot for slot, digest in enumerate(self._digest) if digest is not None}
        if named != dict(self._slot):
            raise RuntimeError("a digest names the wrong slot")
        if sorted([*named.values(), *self._free]) != list(range(self.total)):
            raise RuntimeError("used + free slots are not all slots")


class DiskIndex:
    """The digests that have a file, least recently used first: at most `limit`; `known` ones exist at the start.

    Pages move here from full host memory, and back before a request that needs them is queued (`kv_cache.prefetch`). A
    known file may be missing or broken: then reading it fails, and the page is computed.
    """

    def __init__(self, limit: int, known: Iterable[bytes] = ()) -> None:
        if limit < 1:
            raise ValueError("a disk index needs room for a page")
        self.limit = limit
        self._digests = dict.fromkeys(known)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._digests

    def __len__(self) -> int:
        return len(self._digests)

    def put(self, digest: bytes) -> tuple[bool, bytes | None]:
        """Whether this content must be written, and whose file must be erased for it."""
        new = digest not in self._digests
        self._digests.pop(digest, None)
        self._digests[digest] = None
        if len(self._digests) <= self.limit:
            return new, None
        oldest = next(iter(self._digests))
        del self._digests[oldest]
        return new, oldest

    def use(self, digest: bytes) -> None:
        if digest in self._digests:
            del self._digests[digest]
            self._digests[digest] = None

    def forget(self, digest: bytes) -> None:
        self._digests.pop(digest, None)


class Offload:
    """Both tiers; calls `touch` with every digest that may have become available or unavailable.

    `copy_seconds`: to copy one page of `page_tokens` back from host memory. The caller keeps up to date
    `prefill_seconds` (of one token, by the step-time model) and `read_seconds` (of one page, from disk).
    """

    def __init__(
        self,
        page_tokens: int,
        host: HostStore | None,
        disk: DiskIndex | None,
        copy_seconds: float,
        touch: Callable[[bytes], None],
    ) -> None:
        self.prefill_seconds = math.inf
        self.read_seconds = 0.0
        self.restored_tokens = 0
        self.pages_out = 0
        self.pages_in = 0
        self.disk_out = 0
        self.disk_in = 0
        self.copies: list[Copy] = []
        self._page_tokens = page_tokens
        self._host = host
        self._disk = None if host is None else disk
        self.copy_seconds = copy_seconds
        self._touch = touch
        if host is not None:
            host.leaving = self._leaving

    @property
    def slots(self) -> int:
        """How many pages host memory can hold."""
        return 0 if self._host is None else self._host.total

    @property
    def host_used(self) -> int:
        return 0 if self._host is None else len(self._host)

    @property
    def disk_used(self) -> int:
        """How many pages have a file."""
        return 0 if self._disk is None else len(self._disk)

    @property
    def restores(self) -> bool:
        """Copying a page back is cheaper than computing it again."""
        return self._host is not None and self.copy_seconds < self._page_tokens * self.prefill_seconds

    @property
    def reads(self) -> bool:
        """Reading a page from disk and copying it back is cheaper."""
        seconds = self.read_seconds + self.copy_seconds
        return self._disk is not None and seconds < self._page_tokens * self.prefill_seconds

    def near(self, digest: bytes) -> bool:
        """Whether it is in host memory, and worth copying back."""
        return self._host is not None and digest in self._host and self.restores

    def far(self, digest: bytes) -> bool:
        return self._disk is not None and digest in self._disk

    # --- between device and host memory

    def evicting(self, page: int, digest: bytes) -> None:
        """A page of the device is about to be overwritten."""
        self._touch(digest)
        if self._host is not None and self.restores and (slot := self._host.put(digest)) is not None:
            self.copies.append(Copy(CopyKind.OUT, page, slot))
            self.pages_out += 1

    def bring(self, digests: Sequence[bytes], take: Callable[[bytes], int]) -> list[int]:
        """A device page for each of these; `take` returns a page with its digest: it is filled before it is read."""
        assert self._host is not None
        pages = []
        for digest, slot in zip(digests, self._host.pin(digests), strict=True):
            pages.append(take(digest))
            self.copies.append(Copy(CopyKind.IN, slot, pages[-1]))
        self._host.unpin()
        self.pages_in += len(digests)
        self.restored_tokens += len(digests) * self._page_tokens
        return pages

    # --- between host memory and disk

    def arrived(self, digest: bytes, *, good: bool) -> bool:
        """A file was read: move its content into the host store. False if it is bad, or not needed there."""
        if self._host is None or self._disk is None:
            return False
        if not good:
            self._disk.forget(digest)
            self._touch(digest)
            return False
        self._disk.use(digest)
        slot = self._host.put(digest)
        if slot is not None:
            self.copies.append(Copy(CopyKind.LOAD, number_of(digest), slot))
            self.disk_in += 1
        return slot is not None

    def _leaving(self, digest: bytes, slot: int) -> None:
        self._touch(digest)
        if self._disk is None or not self.reads:
            return
        new, erased = self._disk.put(digest)
        if new:
            self.copies.append(Copy(CopyKind.SAVE, slot, number_of(digest)))
            self.disk_out += 1
        if erased is not None:
            self._touch(erased)
            self.copies.append(Copy(CopyKind.ERASE, number_of(erased), 0))

    # --- after a failure

    def invalidate(self, copy: Copy) -> None:
        """This copy may have failed: forget what it should have brought, and erase what it should have saved."""
        forgotten = None
        if copy.kind in (CopyKind.OUT, CopyKind.LOAD) and self._host is not None:
            forgotten = self._host.forget(copy.target)
        elif copy.kind is CopyKind.SAVE and self._disk is not None:
            forgotten = digest_of(copy.target)
            self._disk.forget(forgotten)
        elif copy.kind is CopyKind.ERASE:
            self.copies.append(copy)
        if forgotten is not None:
            self._touch(forgotten)

    def check(self) -> None:
        """Raise RuntimeError if the books are inconsistent. For tests: O(total)."""
        if self._host is not None:
            self._host.check()


def number_of(digest: bytes) -> int:
    """A digest as the number in a copy."""
    return int.from_bytes(digest, "big")


def digest_of(number: int) -> bytes:
    return number.to_bytes(prefix_keys.SIZE, "big")
