"""The scheduler's interface to KV memory: what a request costs, its pages, forks, and what must be copied where.

A request's page comes from the device if its digest is known there, or from the host store if it is known there and
copying it back is cheaper than computing it; else it is computed. Pages whose content is about to be overwritten go to
the host store first, by the same rule. So preemption is swap and recompute in one: the full pages of a preempted
request are found wherever they are, and only its last, partial page is always computed again.

With a window (`AttentionWindow`) a table holds the first and the last pages, and pages are taken as a prompt
progresses, so a request of any length holds a bounded number. Dropped pages can be found until they are evicted, but
are not needed: a prefix is known if every page that the token after it sees is known. If one of these is gone, as after
a preemption, all is computed again from the first token on under the same window, so keys and values are the same.

Invariant: a page is written only while it has one reference and no digest. A fork shares all pages, including the
partial last one; the first to write to that gets a copy of its own (`grow`). Copies are listed in the order in which
they must be made, which is the order of the decisions, so a page or a slot may be reused within a step.
Known hole: a step's copies must be executed, or `invalidate`d, before the next decision that could read their targets.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from paceline_workers.engine.kv_cache import prefix_keys
from paceline_workers.engine.kv_cache.attention_window import ALL, AttentionWindow
from paceline_workers.engine.kv_cache.offload import Copy, CopyKind, DiskIndex, HostStore, Offload
from paceline_workers.engine.kv_cache.page_pool import PageHolder, PagePool
from paceline_workers.engine.kv_cache.prefix_keys import PrefixKeyIndex

_HOST = -1
"""In place of a page whose digest is known only in the host store."""


@dataclass(frozen=True, slots=True)
class _Hit:
    """The longest known prefix: its table, with _HOST for pages to copy back, and what the table lacks."""

    pages: list[int]
    dropped: int = 0


class KVCacheManager:
    """Device pages and, if `host_pages` > 0, a host store; `copy_seconds` is the time to copy one page back.

    `disk`: the tier behind the host store.
    With a window in `attention_window`, pages are taken for about `ahead` tokens more than are computed.
    `max_pages`: the most pages of a request while its prompt is computed, `min_pages`: later; None: pages for all its
    tokens. The caller keeps `pool.now` and two prices in `offload` up to date.
    """

    def __init__(  # noqa: PLR0913 - a backend's facts about its memory
        self,
        pages: int,
        page_tokens: int,
        *,
        prefix_cache: bool = True,
        host_pages: int = 0,
        copy_seconds: float = 0.0,
        attention_window: AttentionWindow = ALL,
        ahead: int = 0,
        disk: DiskIndex | None = None,
    ) -> None:
        self.page_tokens = page_tokens
        self.prefix_cache = prefix_cache
        self.keys = PrefixKeyIndex(lambda digest: self._page(digest) is not None or self.offload.far(digest))
        host = HostStore(host_pages) if host_pages and prefix_cache else None
        self.offload = Offload(page_tokens, host, disk, copy_seconds, self.keys.touch)
        self.pool = PagePool(pages, self.offload.evicting)
        self.attention_window = attention_window
        self._head = attention_window.head(page_tokens)
        self.min_pages = attention_window.min_pages(page_tokens)
        spare = 0 if self.min_pages is None else max(pages - self.min_pages, 0) // 2
        self._stride = max(min(self._pages(ahead), spare + 1), 1)
        self.max_pages = attention_window.max_pages(page_tokens, self._stride)

    # --- the costs of a request

    def fits_alone(self, tokens: int) -> bool:
        """Whether that many tokens fit while nothing else runs; with a window, its least pages."""
        pages = self._pages(tokens)
        return (pages if self.min_pages is None else min(pages, self.min_pages)) <= self.pool.total

    def cost(self, owner: PageHolder) -> int:
        """Available pages that placing it takes; pages that others already hold cost nothing."""
        hit = self._known(owner)
        return self._placed(owner, hit) - self._shared(hit)

    def uncached(self, owner: PageHolder) -> int:
        """Tokens that must be computed if it is placed now."""
        hit = self._known(owner)
        return len(owner.tokens) - (len(hit.pages) + hit.dropped) * self.page_tokens

    def lost(self, owner: PageHolder) -> int:
        """Computed tokens that a preemption would lose: those in pages without a digest."""
        return owner.computed % self.page_tokens if self.prefix_cache else owner.computed

    def lacking(self, owner: PageHolder) -> list[bytes]:
        """Pages to read from disk before it is placed: all that its longest prefix lacks, if reading is worthwhile."""
        if not self.offload.reads or owner.scores:
            return []
        digests, size = self._digests(owner), self.page_tokens
        near = [self._page(digest) is not None for digest in digests]
        known = (here or self.offload.far(digest) for here, digest in zip(near, digests, strict=True))
        end = self.attention_window.hit(known, size)
        first = self.attention_window.first(end * size, size)
        wanted = [number for number in range(end) if not near[number] and (number < self._head or number >= first)]
        return [digests[number] for number in wanted[: self.offload.slots]]

    # --- taking and releasing pages

    def place(self, owner: PageHolder) -> int:
        """Take pages for all its tokens, known ones first; sets the table and `computed`. `cost` must be available.

        Returns how many of them another request holds too. With a window: the most pages that it may hold at once.
        """
        hit = self._known(owner)
        shared, count = self._shared(hit), self._placed(owner, hit)
        for page in hit.pages:
            if page != _HOST:
                self.pool.hold(page)
        owner.pages, owner.dropped = hit.pages, hit.dropped
        owner.computed = (len(hit.pages) + hit.dropped) * self.page_tokens
        owner.room = self._reach(owner, count)
        if _HOST in hit.pages:
            names = owner.digests[: self._head] + owner.digests[self._head + hit.dropped :]
            digests = [digest for digest, page in zip(names, hit.pages, strict=False) if page == _HOST]
            # each gets its digest at once: it is filled before it is read
            brought = iter(self.offload.bring(digests, lambda name: self.pool.publish(self.pool.take(1)[0], name)))
            owner.pages = [next(brought) if page == _HOST else page for page in hit.pages]
        owner.pages += self.pool.take(count - len(owner.pages))
        return shared

    def grow(self, owner: PageHolder, coming: int = 0) -> bool:
        """Take pages for all its tokens and those `coming`, and make the first page to write its own.

        False, taking none, if some are lacking. With a window: pages for the next tokens to compute, fewer if lacking.
        """
        tokens = len(owner.tokens) + coming
        if tokens <= owner.room:
            return True
        if self.min_pages is not None:
            tokens = min(tokens, self._bound(owner))
        missing = self._missing(owner, tokens)
        if missing <= 0 and not owner.forked:
            owner.room = self._reach(owner, len(owner.pages))
            return True
        place = self._place(owner, owner.computed // self.page_tokens)
        shared = place < len(owner.pages) and not self.pool.writable(owner.pages[place])
        room = self.pool.available - shared
        if missing > room and self.min_pages is not None:
            missing = max(room, self._missing(owner, min(tokens, owner.computed + 1)))
        if missing > room:
            return False
        if shared:
            (page,) = self.pool.take(1)
            self.offload.copies.append(Copy(CopyKind.DEVICE, owner.pages[place], page))
            self.pool.release([owner.pages[place]])
            owner.pages[place] = page
        if missing > 0:
            owner.pages += self.pool.take(missing)
        owner.forked = False  # from here on no other request refers to the page that it writes
        owner.room = self._reach(owner, len(owner.pages))
        return True

    def covered(self, owner: PageHolder) -> int:
        """The number of tokens, from the first one on, that it has had pages for."""
        return (len(owner.pages) + owner.dropped) * self.page_tokens

    def publish(self, owner: PageHolder, start: int, end: int) -> None:
        """Set the digests of the pages that tokens `start` to `end` filled; releases duplicates of known pages.

        Then drops the pages that the token at `end` does not see.
        """
        size = self.page_tokens
        if self.prefix_cache:
            prefix_keys.extend(owner.digests, owner.salt, owner.tokens, size, owner.unsalted)
            for number in range(start // size, end // size):
                place = self._place(owner, number) if owner.dropped else number
                owner.pages[place] = self.pool.publish(owner.pages[place], owner.digests[number])
                self.keys.touch(owner.digests[number])
        out = slice(self._head, self._head + self.attention_window.dropped(end, size) - owner.dropped)
        if out.stop > out.start:
            self.pool.release(owner.pages[out])
            del owner.pages[out]
            owner.dropped += out.stop - out.start

    def note(self, owner: PageHolder, keys: Iterable[tuple[str, int]]) -> None:
        """Record a gateway's keys, each for a number of its first tokens; `keys.changes` reports their state."""
        if self.prefix_cache:
            prefix_keys.extend(owner.digests, owner.salt, owner.tokens, self.page_tokens, owner.unsalted)
            for key, tokens in keys:
                pages = min(tokens // self.page_tokens, len(owner.digests))
                if pages > 0:
                    self.keys.note(key, owner.digests[pages - 1])

    def release(self, owner: PageHolder) -> None:
        """Release all its pages; those with a digest can still be found."""
        self.pool.release(owner.pages)
        owner.pages, owner.dropped, owner.room, owner.forked = [], 0, 0, False

    def fork(self, parent: PageHolder, child: PageHolder) -> bool:
        """Share the tokens of `child` that `parent` has computed, except the last one. Takes no page.

        False, sharing nothing, if `parent` has dropped pages that `child` has to see. Both must `grow` before they
        write. Raises ValueError if the shared tokens or the salts differ.
        """
        computed = min(parent.computed, len(child.tokens) - 1)
        salts = {(owner.salt, owner.unsalted) for owner in (child, parent)}
        if len(salts) > 1 or child.tokens[:computed] != parent.tokens[:computed]:
            raise ValueError("a fork must begin as its parent does, under the same salt")
        if self.attention_window.dropped(computed, self.page_tokens) < parent.dropped:
            return False
        child.pages = parent.pages[: self._pages(computed) - parent.dropped]
        child.dropped = parent.dropped
        child.digests = parent.digests[: computed // self.page_tokens]
        child.computed = computed
        parent.forked = child.forked = True
        parent.room = child.room = 0
        for page in child.pages:
            self.pool.hold(page)
        return True

    # --- copies

    def copies(self) -> tuple[Copy, ...]:
        """The copies to make before the next chunk is computed, in order; clears the list."""
        if not self.offload.copies:
            return ()
        copies, self.offload.copies = tuple(self.offload.copies), []
        return copies

    def invalidate(self, copies: Iterable[Copy]) -> frozenset[int]:
        """These copies may have failed: forget what they should have brought; returns the pages without content."""
        pages = set()
        for copy in copies:
            if copy.kind not in (CopyKind.DEVICE, CopyKind.IN):
                self.offload.invalidate(copy)
                continue
            pages.add(copy.target)
            if (digest := self.pool.forget(copy.target)) is not None:
                self.keys.touch(digest)
        return frozenset(pages)

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise RuntimeError if the books are inconsistent with the block tables in use. For tests: O(total)."""
        self.pool.check(tables)
        self.offload.check()

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self.page_tokens)

    def _digests(self, owner: PageHolder) -> list[bytes]:
        """Digests of the pages that it could find instead of computing them; leaves at least one token."""
        prefix_keys.extend(owner.digests, owner.salt, owner.tokens, self.page_tokens, owner.unsalted)
        return owner.digests[: (len(owner.tokens) - 1) // self.page_tokens]

    def _known(self, owner: PageHolder) -> _Hit:
        """The longest known prefix; leaves at least one token to compute."""
        if not self.prefix_cache or owner.scores:
            return _Hit([])
        digests = self._digests(owner)
        if self.attention_window.window is None:
            if not self.offload.restores:
                return _Hit(self.pool.find(digests))
            prefix = takewhile(lambda page: page is not None, map(self._page, digests))
            return _Hit([page for page in prefix if page is not None])
        found = [self._page(digest) for digest in digests]
        end = self.attention_window.hit((page is not None for page in found), self.page_tokens)
        dropped = max(min(self.attention_window.dropped(end * self.page_tokens, self.page_tokens), end - self._head), 0)
        pages = found[: min(self._head, end)] + found[self._head + dropped : end]
        return _Hit([page for page in pages if page is not None], dropped)

    def _page(self, digest: bytes) -> int | None:
        page = self.pool.lookup(digest)
        return _HOST if page is None and self.offload.near(digest) else page

    def _shared(self, hit: _Hit) -> int:
        return sum(1 for page in hit.pages if page != _HOST and self.pool.shared(page))

    def _placed(self, owner: PageHolder, hit: _Hit) -> int:
        """The number of pages in its table after placing."""
        pages = self._pages(len(owner.tokens)) - hit.dropped
        return pages if self.max_pages is None else min(pages, self.max_pages)

    def _place(self, owner: PageHolder, number: int) -> int:
        """The index of its page in the table."""
        return number if number < self._head else number - owner.dropped

    def _reach(self, owner: PageHolder, pages: int) -> int:
        """How many tokens may be computed by the end of the next step with `pages` in its table."""
        covered = (pages + owner.dropped) * self.page_tokens
        return covered if self.min_pages is None else min(covered, self._bound(owner))

    def _bound(self, owner: PageHolder) -> int:
        """The token that a step must not compute beyond: whole pages, at most a stride."""
        return (owner.computed // self.page_tokens + self._stride) * self.page_tokens

    def _missing(self, owner: PageHolder, tokens: int) -> int:
        return self._pages(tokens) - owner.dropped - len(owner.pages)
