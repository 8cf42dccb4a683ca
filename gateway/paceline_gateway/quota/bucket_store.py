"""Who keeps the counters: buckets that refill continuously, leased in slices to gateways. Pure.

A minute's limit is a bucket's size. What is granted leaves the bucket at once, so that gateways together cannot use
more than there is; what a gateway holds unused narrows the bucket (`level + held <= limit`), so that slices are no
second bucket beside the first. A request larger than the limit goes when everything is there, and leaves a debt. Slots
are counted by holder: one that is silent for `TTL_S` holds nothing any more.
Invariant: level + held + used = filled, for any order of exchanges; an exchange that is sent twice counts once.
The script for Redis (`quota_store/exchange.lua`) is this file in Lua; a test holds them together.
Known hole: a gateway cut off for longer than `TTL_S` still uses up the slice it held, beside a bucket that is full.
"""

from dataclasses import dataclass, field
from typing import Final

from paceline_gateway.quota.types import CLOSE, NOTHING, RATES, SIZE, SLOTS, UNLIMITED, LeaseGrant, LeaseRequest, Vector

TTL_S: Final = 15.0
FORGET_S: Final = 600.0
"""Holders are remembered for so long after that, to know what they have already been granted."""


@dataclass(slots=True)
class _LeaseHolder:
    seq: int = 0
    heard: float = 0.0
    out: Vector = NOTHING
    given: Vector = NOTHING


@dataclass(slots=True)
class _TenantBuckets:
    """One tenant. `base` is what the levels would be if nobody had used anything since it was opened."""

    limits: Vector
    levels: list[float]
    base: list[float]
    at: float
    epoch: int
    holders: dict[str, _LeaseHolder] = field(default_factory=dict)


class BucketStore:
    """Every tenant's book. `epoch` differs from that of any other pool."""

    def __init__(self, epoch: int = 1, ttl_s: float = TTL_S) -> None:
        self._epoch = epoch
        self._ttl_s = ttl_s
        self._books: dict[str, _TenantBuckets] = {}

    def __len__(self) -> int:
        return len(self._books)

    def exchange(self, ask: LeaseRequest, now: float) -> LeaseGrant:
        book = self._books.get(ask.tenant)
        if book is None:
            book = self._books[ask.tenant] = _TenantBuckets(
                ask.limits, list(ask.limits), list(ask.limits), now, self._epoch
            )
        self._refill(book, now)
        holder = book.holders.setdefault(ask.holder, _LeaseHolder())
        if ask.seq <= holder.seq:
            return LeaseGrant(holder.given if ask.seq == holder.seq else NOTHING, tuple(book.levels), book.epoch)
        if ask.limits != book.limits:  # what is used stays used
            for kind, (old, new) in enumerate(zip(book.limits, ask.limits, strict=True)):
                fresh = UNLIMITED in (old, new)
                book.levels[kind] = new if fresh else book.levels[kind] + new - old
                book.base[kind] = new if fresh else book.base[kind] + new - old
            book.limits = ask.limits
        if ask.belief is not None and ask.epoch != book.epoch:
            _believe(book, ask.belief)
        holder.seq, holder.heard, holder.out = ask.seq, now, ask.held
        caps = _caps(book)
        for kind in range(RATES):
            book.levels[kind] = min(book.levels[kind] + ask.back[kind], caps[kind])
        book.levels[SLOTS] = caps[SLOTS]
        holder.given = _lease(book, holder, ask)
        return LeaseGrant(holder.given, tuple(book.levels), book.epoch)

    def sweep(self, now: float) -> None:
        """Forget the tenants that nobody has used for `FORGET_S`."""
        for tenant, book in list(self._books.items()):
            self._refill(book, now)
            full = all(level >= limit - CLOSE for level, limit in zip(book.levels, book.limits, strict=True))
            if full and not book.holders:
                del self._books[tenant]

    def _refill(self, book: _TenantBuckets, now: float) -> None:
        passed, book.at = max(now - book.at, 0.0), max(now, book.at)
        for name, holder in list(book.holders.items()):
            if holder.heard + self._ttl_s <= now:
                holder.out = NOTHING
                if holder.heard + FORGET_S <= now:
                    del book.holders[name]
        caps = _caps(book)
        for kind in range(RATES):
            limit = book.limits[kind]
            if limit != UNLIMITED:
                book.levels[kind] = min(book.levels[kind] + passed * limit / 60.0, caps[kind])
                book.base[kind] = min(book.base[kind] + passed * limit / 60.0, limit)
        book.levels[SLOTS] = caps[SLOTS]


def _caps(book: _TenantBuckets) -> list[float]:
    """The highest that levels can be beside what is held."""
    caps = list(book.limits)
    for holder in book.holders.values():
        for kind in range(SIZE):
            caps[kind] -= holder.out[kind]
    return caps


def _believe(book: _TenantBuckets, belief: Vector) -> None:
    """A belief from before this book was opened lowers its base."""
    for kind in range(RATES):
        if book.limits[kind] != UNLIMITED:
            less = max(book.base[kind] - belief[kind], 0.0)
            book.levels[kind] -= less
            book.base[kind] -= less


def _lease(book: _TenantBuckets, holder: _LeaseHolder, ask: LeaseRequest) -> Vector:
    """What is granted, at least `least` of everything or nothing, leaves the bucket.

    `least` is used at once, the rest is held.
    """
    given, out = [0.0] * SIZE, list(ask.held)
    for kind in range(SIZE):
        limit, level, least = book.limits[kind], book.levels[kind], ask.least[kind]
        if limit == UNLIMITED:
            continue
        enough = least if kind == SLOTS else min(least, limit - ask.held[kind])
        if least > 0 and (level < enough - CLOSE or limit <= 0):
            return NOTHING
        given[kind] = max(least, min(ask.want[kind], level), 0.0)
    given[SLOTS] = float(int(given[SLOTS]))
    for kind, amount in enumerate(given):
        book.levels[kind] -= amount
        out[kind] += amount
        if kind != SLOTS and amount > 0:
            out[kind] -= ask.least[kind]
    holder.out = tuple(out)
    return tuple(given)
