"""The bookkeeping of the KV pool: held pages, pages with a reusable prefix, and free ones.

A page is held (references > 0), cached (unreferenced, its content has a digest) or free (unreferenced, no digest).
Cached and free pages form one intrusive doubly linked list in the order in which they will be taken: free ones first,
last in, first out (their memory is warm), then cached ones, least recently used first. Every operation on a page is
O(1). Requests appear as a protocol, `PageHolder`, so that this package does not import the scheduler.

Invariant: free + cached + held = total, and only a page with one reference and no digest is ever written (`writable`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol


class PagePool:
    """Pages 0 to total - 1, of which `available` ones can be taken now, including `cached` ones.

    `now`, in seconds of the caller's clock, determines how long an evicted page was idle.
    `evicting` is called with a page and its digest just before the page is overwritten.
    """

    def __init__(self, total: int, evicting: Callable[[int, bytes], None] | None = None) -> None:
        if total < 1:
            raise ValueError("a page pool needs at least one page")
        self.total = total
        self.cached = 0
        self.evicted = 0
        self.idle_seconds = 0.0
        self.now = 0.0
        self._evicting = evicting
        self.available = total
        self._references = [0] * total
        self._digest: list[bytes | None] = [None] * total
        self._idle_since = [0.0] * total
        self._page: dict[bytes, int] = {}
        self._next: list[int] = [*range(1, total + 1), 0]
        self._previous: list[int] = [total, *range(total)]

    @property
    def held(self) -> int:
        """Pages that requests refer to."""
        return self.total - self.available

    @property
    def free(self) -> int:
        """Pages that can be taken without losing a prefix."""
        return self.available - self.cached

    def take(self, count: int) -> list[int]:
        """Take `count` pages to write, each with one reference; evicts the least recently used prefixes if needed."""
        if count > self.available:
            raise ValueError(f"{count} pages wanted, {self.available} available")
        following, page = self._next, self._next[self.total]
        pages = []
        for _ in range(count):
            digest = self._digest[page]
            if digest is not None:
                if self._evicting:
                    self._evicting(page, digest)
                del self._page[digest]
                self._digest[page] = None
                self.cached -= 1
                self.evicted += 1
                self.idle_seconds += self.now - self._idle_since[page]
            self._references[page] = 1
            pages.append(page)
            page = following[page]
        following[self.total], self._previous[page] = page, self.total
        self.available -= count
        return pages

    def hold(self, page: int) -> None:
        """Add a reference to a page that `find` returned or that is already held."""
        if self._references[page] == 0:
            self._unlink(page)
            self.available -= 1
            self.cached -= self._digest[page] is not None
        self._references[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        """Drop one reference to each page of a block table, tail first, so that prefixes outlive what follows them."""
        references = self._references
        for page in reversed(pages):
            if references[page] < 1:
                raise ValueError(f"page {page} is released but not held")
            references[page] -= 1
            if references[page] == 0:
                self.available += 1
                self._idle_since[page] = self.now
                named = self._digest[page] is not None
                self.cached += named
                self._link(page, after=self._previous[self.total] if named else self.total)

    def find(self, digests: Iterable[bytes]) -> list[int]:
        """The pages of the longest known prefix; takes no reference."""
        found = []
        for digest in digests:
            page = self._page.get(digest)
            if page is None:
                break
            found.append(page)
        return found

    def lookup(self, digest: bytes) -> int | None:
        """The page that holds this content; takes no reference."""
        return self._page.get(digest)

    def writable(self, page: int) -> bool:
        """One reference and no digest: no other request can read it."""
        return self._references[page] == 1 and self._digest[page] is None

    def forget(self, page: int) -> bytes | None:
        """The content does not match its digest; an idle page becomes a free one. Returns that digest."""
        digest = self._digest[page]
        if digest is None:
            return None
        del self._page[digest]
        self._digest[page] = None
        if self._references[page] == 0:
            self.cached -= 1
            self._unlink(page)
            self._link(page, after=self.total)
        return digest

    def shared(self, page: int) -> bool:
        """Whether a request already refers to it: sharing it then takes no available page."""
        return self._references[page] > 0

    def publish(self, page: int, digest: bytes) -> int:
        """Set the digest of a page that is now full; returns the page to use from here on.

        If another page already holds the same content, that one is shared and this one released.
        """
        known = self._page.setdefault(digest, page)
        if known == page:
            self._digest[page] = digest
            return page
        self.hold(known)
        self.release([page])
        return known

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise RuntimeError if the books are inconsistent with the block tables in use. For tests: O(total)."""
        counts = [0] * self.total
        for table in tables:
            for page in table:
                counts[page] += 1
        listed, page = [], self._next[self.total]
        while page != self.total:
            listed.append(page)
            page = self._next[page]
        idle = {page for page in range(self.total) if counts[page] == 0}
        named = {page: digest for page, digest in enumerate(self._digest) if digest is not None}
        faults = {
            "a reference count is wrong": counts != self._references,
            "the list of available pages is wrong": set(listed) != idle or len(listed) != len(idle),
            "free + cached + held is not total": self.free + self.cached + self.held != self.total,
            "the count of held pages is wrong": self.held != self.total - len(idle),
            "the count of cached pages is wrong": self.cached != len(idle & named.keys()),
            "a digest names the wrong page": self._page != {digest: page for page, digest in named.items()},
        }
        for fault, found in faults.items():
            if found:
                raise RuntimeError(fault)

    def _link(self, page: int, after: int) -> None:
        following = self._next[after]
        self._next[after], self._previous[page] = page, after
        self._next[page], self._previous[following] = following, page

    def _unlink(self, page: int) -> None:
        before, following = self._previous[page], self._next[page]
        self._next[before], self._previous[following] = following, before


class PageHolder(Protocol):
    """A holder of pages: tokens, how many of them are computed, and the block table, which lacks `dropped` pages.

    `forked`: another request may refer to the page that it writes next. `room`: up to this many tokens may be computed
    by the end of the next step without a call of `grow`. `prompt_logprobs`: from 0 on, all its tokens are computed: it
    uses no cached prefix, and the pages it fills are published as usual.
    """

    tokens: list[int]
    salt: str
    unsalted: int
    computed: int
    pages: list[int]
    dropped: int
    forked: bool
    room: int
    digests: list[bytes]

    @property
    def scores(self) -> bool:
        """Whether its whole prompt is computed, cached or not."""
        ...
