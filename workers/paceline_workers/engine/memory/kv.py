"""All that a scheduler knows of KV memory: what a request costs, its pages, forks, and what must be copied where.

A request's page comes from the device if its digest is known there, from the host store if it is known there and
bringing it back is cheaper than computing it again, else it is computed. Pages that lose their content to a new owner
go to the host store first, by the same rule. So preemption is swap and recompute in one: what a preempted request had
in full pages is found again where it lies, and only its last, partial page is always computed again.

Invariant: a page is written only while it has one reference and no digest. A fork shares all pages, the partial last
one too; whoever writes to that first gets a copy of its own (`grow`). Copies stand in one list in the order in which
they must be made, which is the order of the decisions, so a page or a slot may be reused within a step.
Known hole: a step's copies must be executed, or `distrust`ed, before the next decision that could read their targets.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from paceline_workers.engine.memory import prefix
from paceline_workers.engine.memory.copies import Copy, CopyKind
from paceline_workers.engine.memory.pages import PagePool
from paceline_workers.engine.memory.tiers import HostStore

_HOST = -1
"""Stands for the page of a digest that is known in the host store alone."""


class Owner(Protocol):
    """What holds pages: tokens, how many of them are computed, and the block table."""

    tokens: list[int]
    salt: str
    computed: int
    pages: list[int]
    digests: list[bytes]


class KvMemory:
    """Device pages and, if `host_pages` > 0, a host store; `copy_seconds` is the time to bring one page back.

    `prefill_seconds` (of one token by the step-time model) and `now` are the caller's to keep up to date.
    """

    def __init__(
        self,
        pages: int,
        page_tokens: int,
        *,
        prefix_cache: bool = True,
        host_pages: int = 0,
        copy_seconds: float = 0.0,
    ) -> None:
        self.page_tokens = page_tokens
        self.prefix_cache = prefix_cache
        self.prefill_seconds = math.inf
        self.restored_tokens = 0
        self.pages_out = 0
        self.pages_in = 0
        self._pool = PagePool(pages, self._evicting)
        self._host = HostStore(host_pages) if host_pages and prefix_cache else None
        self._copy_seconds = copy_seconds
        self._copies: list[Copy] = []
        self._forked = False

    # --- numbers

    @property
    def total(self) -> int:
        """Pages of the device."""
        return self._pool.total

    @property
    def available(self) -> int:
        """Pages that can be taken now, cached ones included."""
        return self._pool.available

    @property
    def free(self) -> int:
        """Pages that can be taken without losing a prefix."""
        return self._pool.free

    @property
    def cached(self) -> int:
        """Pages that nobody holds but whose content is known."""
        return self._pool.cached

    @property
    def held(self) -> int:
        """Pages that somebody refers to."""
        return self._pool.held

    @property
    def evicted(self) -> int:
        """Cached pages given up so far."""
        return self._pool.evicted

    @property
    def idle_seconds(self) -> float:
        """Sum over the evicted pages of the time since somebody held them."""
        return self._pool.idle_seconds

    @property
    def host_used(self) -> int:
        """Slots of the host store that hold a page."""
        return 0 if self._host is None else len(self._host)

    @property
    def now(self) -> float:
        """Seconds of the caller's clock."""
        return self._pool.now

    @now.setter
    def now(self, now: float) -> None:
        self._pool.now = now

    @property
    def restores(self) -> bool:
        """Bringing a page back is cheaper than computing it again."""
        return self._host is not None and self._copy_seconds < self.page_tokens * self.prefill_seconds

    # --- what a request would cost

    def fits_alone(self, tokens: int) -> bool:
        """That many tokens fit when nobody else runs."""
        return self._pages(tokens) <= self.total

    def cost(self, owner: Owner) -> int:
        """Pages that placing it takes from what is available; pages that others hold already cost nothing."""
        shared = sum(1 for page in self._known(owner) if page != _HOST and self._pool.shared(page))
        return self._pages(len(owner.tokens)) - shared

    def uncached(self, owner: Owner) -> int:
        """Tokens that must be computed if it is placed now."""
        return len(owner.tokens) - len(self._known(owner)) * self.page_tokens

    def lost(self, owner: Owner) -> int:
        """Computed tokens that are gone if it is preempted: those in pages that have no digest."""
        return owner.computed % self.page_tokens if self.prefix_cache else owner.computed

    # --- pages come and go

    def place(self, owner: Owner) -> None:
        """Pages for all its tokens, known ones first; sets `pages` and `computed`. `cost` must be available."""
        known = self._known(owner)
        for page in known:
            if page != _HOST:
                self._pool.hold(page)
        owner.pages = self._restore(owner, known) if _HOST in known else known
        owner.computed = len(known) * self.page_tokens
        owner.pages += self._pool.take(self._pages(len(owner.tokens)) - len(known))

    def grow(self, owner: Owner, coming: int = 0) -> bool:
        """Pages for all its tokens and those `coming`, and a first page to write that is its own.

        False, taking none, if some lack.
        """
        tokens = len(owner.tokens) + coming
        if not self._forked and tokens <= len(owner.pages) * self.page_tokens:
            return True
        missing = self._pages(tokens) - len(owner.pages)
        place = owner.computed // self.page_tokens
        shared = place < len(owner.pages) and not self._pool.writable(owner.pages[place])
        if missing + shared > self._pool.available:
            return False
        if shared:
            self._split(owner, place)
        if missing > 0:
            owner.pages += self._pool.take(missing)
        return True

    def publish(self, owner: Owner, start: int, end: int) -> None:
        """Name the pages that tokens `start` to `end` have filled; one that duplicates a known page is given back."""
        if not self.prefix_cache:
            return
        size = self.page_tokens
        prefix.extend(owner.digests, owner.salt, owner.tokens, size)
        for place in range(start // size, end // size):
            owner.pages[place] = self._pool.publish(owner.pages[place], owner.digests[place])

    def release(self, owner: Owner) -> None:
        """It holds no page any more; what is named stays findable."""
        self._pool.release(owner.pages)
        owner.pages = []

    def fork(self, parent: Owner, child: Owner) -> None:
        """Share what `parent` has computed of the tokens of `child`, all but the last one. Takes no page.

        Both must `grow` before they write. Raises ValueError if the shared tokens or the salts differ.
        """
        computed = min(parent.computed, len(child.tokens) - 1)
        if child.salt != parent.salt or child.tokens[:computed] != parent.tokens[:computed]:
            raise ValueError("a fork must begin as its parent does, under the same salt")
        child.pages = parent.pages[: self._pages(computed)]
        child.digests = parent.digests[: computed // self.page_tokens]
        child.computed = computed
        self._forked = True
        for page in child.pages:
            self._pool.hold(page)

    # --- copies

    def copies(self) -> tuple[Copy, ...]:
        """What must be copied before the next chunk is computed, in order; the list is empty afterwards."""
        if not self._copies:
            return ()
        copies, self._copies = tuple(self._copies), []
        return copies

    def distrust(self, copies: Iterable[Copy]) -> frozenset[int]:
        """These may not have been made: forget what they would have brought; returns the pages that hold nothing."""
        pages = set()
        for copy in copies:
            if copy.kind is not CopyKind.OUT:
                self._pool.forget(copy.target)
                pages.add(copy.target)
            elif self._host is not None:
                self._host.forget(copy.target)
        return frozenset(pages)

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise RuntimeError if the books do not agree with the block tables in use. For tests: O(total)."""
        self._pool.check(tables)
        if self._host is not None:
            self._host.check()

    def writable(self, page: int) -> bool:
        """Nobody else can read it: one reference and no digest."""
        return self._pool.writable(page)

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self.page_tokens)

    def _known(self, owner: Owner) -> list[int]:
        """Pages of the longest known prefix, _HOST for those to bring back; at least one token is left to compute."""
        if not self.prefix_cache:
            return []
        prefix.extend(owner.digests, owner.salt, owner.tokens, self.page_tokens)
        digests = owner.digests[: (len(owner.tokens) - 1) // self.page_tokens]
        return self._look(digests) if self.restores else self._pool.find(digests)

    def _look(self, digests: Sequence[bytes]) -> list[int]:
        found = []
        for digest in digests:
            page = self._pool.lookup(digest)
            if page is None and (self._host is None or digest not in self._host):
                break
            found.append(_HOST if page is None else page)
        return found

    def _restore(self, owner: Owner, known: Sequence[int]) -> list[int]:
        """The table of `known` with a page for each _HOST, which is named at once: it is filled before it is read."""
        assert self._host is not None
        digests = [digest for digest, page in zip(owner.digests, known, strict=False) if page == _HOST]
        slots = iter(self._host.pin(digests))
        table = [
            self._bring(next(slots), digest) if page == _HOST else page
            for digest, page in zip(owner.digests, known, strict=False)
        ]
        self._host.unpin()
        self.restored_tokens += len(digests) * self.page_tokens
        return table

    def _bring(self, slot: int, digest: bytes) -> int:
        (page,) = self._pool.take(1)
        self._copies.append(Copy(CopyKind.IN, slot, page))
        self.pages_in += 1
        return self._pool.publish(page, digest)

    def _split(self, owner: Owner, place: int) -> None:
        """Give `owner` its own copy of a page that it is about to write."""
        (page,) = self._pool.take(1)
        self._copies.append(Copy(CopyKind.DEVICE, owner.pages[place], page))
        self._pool.release([owner.pages[place]])
        owner.pages[place] = page

    def _evicting(self, page: int, digest: bytes) -> None:
        if self._host is not None and self.restores and (slot := self._host.put(digest)) is not None:
            self._copies.append(Copy(CopyKind.OUT, page, slot))
            self.pages_out += 1
