"""The books of pages kept outside the device: which slot of host memory holds the content of which digest.

Content never changes under a digest, so a page that was brought back stays here too and leaves the device next time
without a copy. When all slots are taken, the least recently used digest loses its own. A slot that is about to be read
is pinned until the copy that reads it stands in the list of copies: what is put in between must not overwrite it.

The books of pages kept on disk: which digests have a file, the least recently used first. Pure.

Pages come here from host memory when that is full, and go back to host memory before a request that wants them is
queued (`engine.lobby`). The books may be wrong in one way: a file that they know may be missing or broken. Reading it
says so, and the page is computed instead.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable

Leaving = Callable[[bytes, int], None]
"""Called with a digest and its slot just before the slot is given to another one."""


class HostStore:
    """Slots 0 to total - 1, each the size of a page; `leaving` may be set."""

    def __init__(self, total: int) -> None:
        if total < 1:
            raise ValueError("a host store needs at least one slot")
        self.total = total
        self._slot: OrderedDict[bytes, int] = OrderedDict()
        self._digest: list[bytes | None] = [None] * total
        self._free = list(reversed(range(total)))
        self._pinned: frozenset[int] = frozenset()
        self.leaving: Leaving | None = None

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._slot

    def __len__(self) -> int:
        return len(self._slot)

    def pin(self, digests: Iterable[bytes]) -> list[int]:
        """The slots of known digests, now the most recently used ones; none is overwritten before `unpin`."""
        slots = []
        for digest in digests:
            self._slot.move_to_end(digest)
            slots.append(self._slot[digest])
        self._pinned = frozenset(slots)
        return slots

    def unpin(self) -> None:
        """All pinned slots may be overwritten again."""
        self._pinned = frozenset()

    def put(self, digest: bytes) -> int | None:
        """The slot to copy this content into; None if it is known already, or if every slot is pinned."""
        if digest in self._slot:
            self._slot.move_to_end(digest)
            return None
        slot = self._free.pop() if self._free else self._oldest()
        if slot is not None:
            self._slot[digest] = slot
            self._digest[slot] = digest
        return slot

    def forget(self, slot: int) -> bytes | None:
        """What lies in this slot is not to be trusted; returns what it should have been."""
        digest = self._digest[slot]
        if digest is not None:
            del self._slot[digest]
            self._digest[slot] = None
            self._free.append(slot)
        return digest

    def check(self) -> None:
        """Raise RuntimeError if the books disagree with themselves. For tests: O(total)."""
        named = {digest: slot for slot, digest in enumerate(self._digest) if digest is not None}
        if named != dict(self._slot):
            raise RuntimeError("a digest names the wrong slot")
        if sorted([*named.values(), *self._free]) != list(range(self.total)):
            raise RuntimeError("used + free slots are not all slots")

    def _oldest(self) -> int | None:
        """Empties the least recently used slot. Pinned ones are the most recently used, so they come last."""
        digest, slot = next(iter(self._slot.items()))
        if slot in self._pinned:
            return None
        del self._slot[digest]
        if self.leaving:
            self.leaving(digest, slot)
        return slot


class DiskIndex:
    """At most `limit` digests; `known` ones, oldest first, are there from the beginning."""

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
        """Whether this content must be written, and whose file is to be erased for it."""
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
        """There is no such file."""
        self._digests.pop(digest, None)
