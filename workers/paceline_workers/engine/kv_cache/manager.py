"""All that a scheduler knows of KV memory: what a request costs, its pages, forks, and what must be copied where.

A request's page comes from the device if its digest is known there, from the host store if it is known there and
bringing it back is cheaper than computing it again, else it is computed. Pages that lose their content to a new owner
go to the host store first, by the same rule. So preemption is swap and recompute in one: what a preempted request had
in full pages is found again where it lies, and only its last, partial page is always computed again.

With a window (`AttentionWindow`) a table holds the first pages and the last ones, and pages are taken as a prompt gets
on, so a request of any length holds a bounded number. What it dropped stays findable until it is evicted, but is not
needed: a prefix counts as known if all is known that the token behind it sees. If some of that is gone, as after a
preemption, all is computed again from the first token on, under the same window, which gives the same keys and values.

Invariant: a page is written only while it has one reference and no digest. A fork shares all pages, the partial last
one too; the first to write to that gets a copy of its own (`grow`). Copies stand in one list in the order in which
they must be made, which is the order of the decisions, so a page or a slot may be reused within a step.
Known hole: a step's copies must be executed, or `invalidate`ed, before the next decision that could read their targets.
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
"""Stands for the page of a digest that is known in the host store alone."""


@dataclass(frozen=True, slots=True)
class _Hit:
    """The longest known prefix: its table, _HOST for what is to be brought back, and what the table lacks."""

    pages: list[int]
    dropped: int = 0


class KVCacheManager:
    """Device pages and, if `host_pages` > 0, a host store; `copy_seconds` is the time to bring one page back.

    `disk`: what lies behind the host store.
    With a window in `attention_window`, pages are taken for about `ahead` tokens more than are computed.
    `max_pages`: pages that a request holds at most while its prompt is computed, `min_pages` later; None: all its
    tokens fill. `pool.now` and two prices in `offload` are the caller's to keep up to date.
    """

    def __init__(  # noqa: PLR0913 - what a backend's facts say of its memory
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

    # --- what a request would cost

    def cost(self, owner: PageHolder) -> int:
        """Pages that placing it takes from what is available; pages that others hold already cost nothing."""
        hit = self._known(owner)
        return self._placed(owner, hit) - self._shared(hit)

    def uncached(self, owner: PageHolder) -> int:
        """Tokens that must be computed if it is placed now."""
        hit = self._known(owner)
        return len(owner.tokens) - (len(hit.pages) + hit.dropped) * self.page_tokens

    def lost(self, owner: PageHolder) -> int:
        """Computed tokens that are gone if it is preempted: those in pages that have no digest."""
        return owner.computed % self.page_tokens if self.prefix_cache else owner.computed

    def lacking(self, owner: PageHolder) -> list[bytes]:
        """What should be read from disk before it is placed: all that its longest prefix lacks, if that pays."""
        if not self.offload.reads or owner.prompt_logprobs >= 0:
            return []
        digests, size = self._digests(owner), self.page_tokens
        near = [self._page(digest) is not None for digest in digests]
        known = (here or self.offload.far(digest) for here, digest in zip(near, digests, strict=True))
        end = self.attention_window.hit(known, size)
        first = self.attention_window.first(end * size, size)
        wanted = [number for number in range(end) if not near[number] and (number < self._head or number >= first)]
        return [digests[number] for number in wanted[: self.offload.slots]]

    # --- pages come and go

    def place(self, owner: PageHolder) -> int:
        """Pages for all its tokens, known ones first; sets the table and `computed`. `cost` must be available.

        Returns how many of them another request holds too. With a window: pages for as much as it may hold at once.
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
            # each is named at once: it is filled before it is read
            brought = iter(self.offload.bring(digests, lambda name: self.pool.publish(self.pool.take(1)[0], name)))
            owner.pages = [next(brought) if page == _HOST else page for page in hit.pages]
        owner.pages += self.pool.take(count - len(owner.pages))
        return shared

    def grow(self, owner: PageHolder, coming: int = 0) -> bool:
        """Pages for all its tokens and those `coming`, and a first page to write that is its own.

        False, taking none, if some lack. With a window: pages for what may be computed next, and in need fewer of them.
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
        owner.forked = False  # no other request refers to what it writes from here on
        owner.room = self._reach(owner, len(owner.pages))
        return True

    def covered(self, owner: PageHolder) -> int:
        """Tokens from the first one on that it has had pages for."""
        return (len(owner.pages) + owner.dropped) * self.page_tokens

    def publish(self, owner: PageHolder, start: int, end: int) -> None:
        """Name the pages that tokens `start` to `end` have filled; one that duplicates a known page is given back.

        Then drop those that the token at `end` does not see.
        """
        size = self.page_tokens
        if self.prefix_cache:
            prefix_keys.extend(owner.digests, owner.salt, owner.tokens, size, owner.unsalted)
            for number in range(start // size, end // size):
                place = self._place(owner, number)
                owner.pages[place] = self.pool.publish(owner.pages[place], owner.digests[number])
                self.keys.touch(owner.digests[number])
        out = slice(self._head, self._head + self.attention_window.dropped(end, size) - owner.dropped)
        if out.stop > out.start:
            self.pool.release(owner.pages[out])
            del owner.pages[out]
            owner.dropped += out.stop - out.start

    def note(self, owner: PageHolder, keys: Iterable[tuple[str, int]]) -> None:
        """A gateway's keys for the first so many of its tokens; `keys.changes` reports what becomes of them."""
        if self.prefix_cache:
            prefix_keys.extend(owner.digests, owner.salt, owner.tokens, self.page_tokens, owner.unsalted)
            for key, tokens in keys:
                pages = min(tokens // self.page_tokens, len(owner.digests))
                if pages > 0:
                    self.keys.note(key, owner.digests[pages - 1])

    def release(self, owner: PageHolder) -> None:
        """It holds no page any more; what is named stays findable."""
        self.pool.release(owner.pages)
        owner.pages, owner.dropped, owner.room, owner.forked = [], 0, 0, False

    def fork(self, parent: PageHolder, child: PageHolder) -> bool:
        """Share what `parent` has computed of the tokens of `child`, all but the last one. Takes no page.

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
        """What must be copied before the next chunk is computed, in order; the list is empty afterwards."""
        if not self.offload.copies:
            return ()
        copies, self.offload.copies = tuple(self.offload.copies), []
        return copies

    def invalidate(self, copies: Iterable[Copy]) -> frozenset[int]:
        """These may not have been made: forget what they would have brought; returns the pages that hold nothing."""
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
        """Raise RuntimeError if the books do not agree with the block tables in use. For tests: O(total)."""
        self.pool.check(tables)
        self.offload.check()

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self.page_tokens)

    def _digests(self, owner: PageHolder) -> list[bytes]:
        """Names of the pages that it could find instead of computing them: one token at least is left."""
        prefix_keys.extend(owner.digests, owner.salt, owner.tokens, self.page_tokens, owner.unsalted)
        return owner.digests[: (len(owner.tokens) - 1) // self.page_tokens]

    def _known(self, owner: PageHolder) -> _Hit:
        """The longest known prefix; at least one token is left to compute."""
        if not self.prefix_cache or owner.prompt_logprobs >= 0:
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
        """Pages of its table once it is placed."""
        pages = self._pages(len(owner.tokens)) - hit.dropped
        return pages if self.max_pages is None else min(pages, self.max_pages)

    def _place(self, owner: PageHolder, number: int) -> int:
        """Where its page stands in the table."""
        return number if number < self._head else number - owner.dropped

    def _reach(self, owner: PageHolder, pages: int) -> int:
        """Tokens from the first one on that may be computed by the end of the next step, with `pages` in its table."""
        covered = (pages + owner.dropped) * self.page_tokens
        return covered if self.min_pages is None else min(covered, self._bound(owner))

    def _bound(self, owner: PageHolder) -> int:
        """Tokens that a step must not compute beyond: whole pages, a stride at most."""
        return (owner.computed // self.page_tokens + self._stride) * self.page_tokens

    def _missing(self, owner: PageHolder, tokens: int) -> int:
        return self._pages(tokens) - owner.dropped - len(owner.pages)
