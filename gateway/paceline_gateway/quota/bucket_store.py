"""The quota counters: continuously refilling buckets, leased in slices to gateways. Pure.

A bucket holds one minute's limit. A grant leaves the bucket at once, so that all gateways together cannot use more than
the limit. What a gateway holds unused lowers the bucket's ceiling (`level + held <= limit`), so that slices do not add
up to a second bucket. A request larger than the limit is granted when the bucket is full, and leaves a debt. Slots are
counted per holder; a holder that is silent for `TTL_S` loses what it holds.
Invariant: level + held + used = filled, for any order of exchanges; an exchange that is sent twice counts once.
The Redis script (`quota_store/exchange.lua`) is this file in Lua; a test compares the two.
Known hole: a gateway cut off for longer than `TTL_S` still uses up the slice it held, beside a bucket that is full.
"""

from dataclasses import dataclass, field
from typing import Final

from paceline_gateway.quota.types import CLOSE, NOTHING, RATES, SIZE, SLOTS, UNLIMITED, LeaseGrant, LeaseRequest, Vector

TTL_S: Final = 15.0
FORGET_S: Final = 600.0
"""A silent holder is remembered for this long, so that its last grant is known when it returns."""


@dataclass(slots=True)
class _LeaseHolder:
    seq: int = 0
    heard: float = 0.0
    out: Vector = NOTHING
    given: Vector = NOTHING


@dataclass(slots=True)
class _TenantBuckets:
    """One tenant's buckets. `base` is what the levels would be if nothing had been used since they were created."""

    limits: Vector
    levels: list[float]
    base: list[float]
    at: float
    epoch: int
    holders: dict[str, _LeaseHolder] = field(default_factory=dict)


class BucketStore:
    """The buckets of all tenants. `epoch` differs from that of any other store."""

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
        if ask.limits != book.limits:  # usage so far still counts under the new limits
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
        """Forget tenants whose buckets are full and whose holders are all forgotten."""
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
    """The highest possible levels, given what holders hold."""
    caps = list(book.limits)
    for holder in book.holders.values():
        for kind in range(SIZE):
            caps[kind] -= holder.out[kind]
    return caps


def _believe(book: _TenantBuckets, belief: Vector) -> None:
    """Lower the levels by usage from before these buckets were created, as a gateway's belief shows it."""
    for kind in range(RATES):
        if book.limits[kind] != UNLIMITED:
            less = max(book.base[kind] - belief[kind], 0.0)
            book.levels[kind] -= less
            book.base[kind] -= less


def _lease(book: _TenantBuckets, holder: _LeaseHolder, ask: LeaseRequest) -> Vector:
    """Grant what is asked, at least `least` of every kind or nothing, and take it from the bucket.

    The gateway uses `least` at once and holds the rest.
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
