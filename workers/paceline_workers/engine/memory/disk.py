"""The books of pages kept on disk: which digests have a file, the least recently used first. Pure.

Pages come here from host memory when that is full, and go back to host memory before a request that wants them is
queued (`engine.lobby`). The books may be wrong in one way: a file that they know may be missing or broken. Reading it
says so, and the page is computed instead.
"""

from collections.abc import Iterable


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
        """Its file was read."""
        if digest in self._digests:
            del self._digests[digest]
            self._digests[digest] = None

    def forget(self, digest: bytes) -> None:
        """There is no such file."""
        self._digests.pop(digest, None)
