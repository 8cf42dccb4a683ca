"""Tenants' limits on requests, tokens and concurrency: reserve on admission, settle on use. Pure.

A request reserves what it is expected to use, so that concurrent requests cannot pass a limit together. When it ends,
the difference to its actual use is refunded or charged. A gateway on its own has a tenant's whole limit; one of several
leases a slice from the shared store and requests more through `send`. While the slice suffices, no request waits; else
it waits until `answered` or `lost`. While the store is unreachable, a tenant's `onStoreFailure` decides: `open` serves
from the gateway's own share of the limits and repays it later; `closed` refuses.
Invariant: reserved = settled + refunded + what open reservations hold (`QuotaTotals`), each of them settled once,
whatever the store does.
"""

from collections import deque
from collections.abc import Callable, KeysView
from dataclasses import dataclass, field
from itertools import count
from operator import add, sub

from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_gateway.quota.bucket_store import TTL_S, BucketStore
from paceline_gateway.quota.leased_buckets import SHARE, SLICE_S, LeasedBuckets, LocalBuckets
from paceline_gateway.quota.types import (
    NEVER,
    NOTHING,
    SIZE,
    LeaseGrant,
    LeaseRequest,
    PendingReservation,
    QuotaUsage,
    Reservation,
    Then,
)

WAITERS = 256
"""The most requests of one tenant that may wait for the store; further ones are refused."""
RENEW_S = TTL_S / 3
FORGET_S = 10.0
RETRY_S = 1.0
ASKS = 2
"""The most exchanges for one request before it is decided."""


@dataclass(slots=True)
class QuotaTotals:
    """Sums over all tenants since the start. `refunded` falls where more was used than reserved."""

    reserved: list[float] = field(default_factory=lambda: [0.0] * SIZE)
    settled: list[float] = field(default_factory=lambda: [0.0] * SIZE)
    refunded: list[float] = field(default_factory=lambda: [0.0] * SIZE)

    @property
    def open(self) -> list[float]:
        """Reserved now."""
        return list(map(sub, map(sub, self.reserved, self.settled), self.refunded))


class QuotaManager:
    """All tenants' buckets at this gateway. `send` queues requests to the shared store; None: this gateway is alone."""

    def __init__(self, send: Callable[[LeaseRequest], None] | None = None, holder: str = "", gateways: int = 1) -> None:
        self.totals = QuotaTotals()
        self.away = False
        """The shared store is unreachable."""
        self.lent = 0
        """Reservations made from this gateway's own share since the start."""
        self.gateways = gateways
        self.shared = send is not None
        """Several gateways share one store."""
        self._send = send
        self._holder = holder
        self._own = BucketStore()
        self._buckets: dict[str, LeasedBuckets] = {}
        self._sequence = count(1)
        self._forget_at = 0.0

    def __len__(self) -> int:
        return len(self._buckets)

    @property
    def busy(self) -> KeysView[str]:
        """Tenants with state here; all others are idle and their buckets are full."""
        return self._buckets.keys()

    def look(self, tenant: ResolvedTenant, now: float) -> LeasedBuckets | None:
        """A tenant's buckets under its current limits; None while it is idle."""
        return self._buckets_of(tenant, now) if tenant.name in self._buckets else None

    @property
    def waiting(self) -> int:
        return sum(len(buckets.waiters) for buckets in self._buckets.values())

    def reserve(self, tenant: ResolvedTenant, use: QuotaUsage, now: float, then: Then) -> PendingReservation | None:
        """Reserve what a request is expected to use; `then` gets the result, at once unless the store must be asked.

        If it must, this returns the waiter. Set its `gone` when the request has left: then nothing is reserved for it.
        """
        buckets = self._buckets_of(tenant, now)
        if not buckets.waiters and self._take(buckets, use, then, now):
            if self._send is not None and any(buckets.have[kind] < buckets.goal[kind] / 2 for kind in buckets.kinds):
                self._exchange(buckets, now)  # renew the slice before it is used up
        elif self._send is None or self.away:
            self._here(buckets, use, then, now)
        elif len(buckets.waiters) >= WAITERS:
            message = f"{WAITERS} of your requests wait for the quota counters already; retry."
            then(RequestError(Code.RATE_LIMIT_EXCEEDED, message, retry_after=1.0))
        else:
            waiter = PendingReservation(use, then)
            buckets.waiters.append(waiter)
            self._exchange(buckets, now)
            return waiter
        return None

    def exhausted(self, tenant: ResolvedTenant, least: QuotaUsage, now: float) -> RequestError | None:
        """Why even so small a request must be refused; None if it may pass or nothing is known. Asks no store.

        The store's last levels are trusted for `SLICE_S`: a tenant over its limits causes one exchange in that time.
        """
        buckets = self._buckets_of(tenant, now)
        buckets.refresh(now)
        if not buckets.kinds or buckets.fits(least):
            return None
        wait, known = buckets.wait(least, now)[0], self._send is None or now - buckets.levels_at < SLICE_S
        if wait != NEVER and not (known and wait > 0):
            return None
        return buckets.refusal(least, buckets.limits, buckets.levels(now))

    def settle(self, reservation: Reservation, used: QuotaUsage, now: float) -> None:
        """End a request: charge what it used instead of what it reserved."""
        buckets, totals = self._buckets[reservation.tenant], self.totals
        totals.settled = list(map(add, totals.settled, used))
        totals.refunded = list(map(add, totals.refunded, map(sub, reservation.use, used)))
        buckets.give(reservation, used, now)
        if self._send is None:
            return
        for kind in buckets.kinds:  # give a large refund back to the store: other gateways may need it
            if buckets.have[kind] - buckets.goal[kind] >= max(SHARE * buckets.limits[kind] / self.gateways, 1.0):
                self._exchange(buckets, now)
                return

    def fields(self, tenant: ResolvedTenant, now: float) -> bytes:
        """The tenant's rate-limit header lines."""
        return self._buckets_of(tenant, now).fields(now, away=self.away)

    def refunded(self, reservation: Reservation, used: QuotaUsage, now: float) -> bytes:
        """The same header lines as if `reservation` were settled with `used`."""
        buckets = self._buckets[reservation.tenant]
        back = {kind: reservation.use[kind] - used[kind] for kind in reservation.kinds}
        return buckets.fields(now, back, away=self.away)

    def answered(self, ask: LeaseRequest, grant: LeaseGrant, now: float) -> None:
        buckets = self._buckets[ask.tenant]
        buckets.asked = None
        buckets.granted(grant, now)
        waiters, buckets.waiters = buckets.waiters, deque()
        for waiter in waiters:  # in order; later ones, and those that should fit now, go into the next exchange
            if waiter.gone:
                continue
            undecided = waiter.asked < ASKS and (not waiter.asked or buckets.wait(waiter.use, now)[0] <= 0)
            if buckets.waiters or (undecided and not buckets.fits(waiter.use)):
                buckets.waiters.append(waiter)
            else:
                self._decide(buckets, waiter.use, waiter.then, now)
        if buckets.waiters:
            self._exchange(buckets, now)

    def lost(self, now: float) -> None:
        """The shared store is unreachable: decide all waiters here. Requests in flight stay in doubt until `found`."""
        self.away = True
        for buckets in list(self._buckets.values()):
            waiters = [waiter for waiter in buckets.waiters if not waiter.gone]
            buckets.waiters.clear()
            for waiter in waiters:
                self._here(buckets, waiter.use, waiter.then, now)

    def found(self, gateways: int, now: float) -> None:
        """The shared store is reachable and `gateways` use it. Send the requests that were in doubt again."""
        self.gateways = max(gateways, 1)
        if not self.away:
            return
        self.away = False
        for buckets in self._buckets.values():
            if buckets.asked is not None and self._send is not None:
                self._send(buckets.asked)
            elif buckets.open or buckets.due(now, RENEW_S):
                self._exchange(buckets, now)

    def leave(self, now: float) -> bool:
        """Give everything back before this gateway stops. True when nothing is left, or the store is unreachable."""
        for buckets in self._buckets.values():
            buckets.used_at = -NEVER
            if any(buckets.have) or any(buckets.owed):
                self._exchange(buckets, now)
        return self.away or all(buckets.asked is None for buckets in self._buckets.values())

    def tick(self, now: float) -> None:
        """Give back what is unused, repay debts, renew what is held, forget idle tenants."""
        if self._send is not None and not self.away:
            for buckets in self._buckets.values():
                if buckets.asked is None and buckets.due(now, RENEW_S):
                    self._exchange(buckets, now)
        if now >= self._forget_at:
            self._forget_at = now + FORGET_S
            self._own.sweep(now)
            for name in [name for name, buckets in self._buckets.items() if buckets.idle(now)]:
                del self._buckets[name]

    def _buckets_of(self, tenant: ResolvedTenant, now: float) -> LeasedBuckets:
        buckets = self._buckets.get(tenant.name)
        if buckets is None:
            buckets = self._buckets[tenant.name] = (
                LocalBuckets(tenant, now) if self._send is None else LeasedBuckets(tenant, now)
            )
        elif buckets.tenant is not tenant:
            buckets.bind(tenant, now)
        return buckets

    def _take(self, buckets: LeasedBuckets, use: QuotaUsage, then: Then, now: float) -> bool:
        """Reserve the amount if it fits."""
        buckets.refresh(now)
        if not buckets.fits(use):
            return False
        buckets.take(use, now)
        self.totals.reserved = list(map(add, self.totals.reserved, use))
        then(Reservation(buckets.tenant.name, use, buckets.kinds, now, buckets.fields(now, away=self.away)))
        return True

    def _here(self, buckets: LeasedBuckets, use: QuotaUsage, then: Then, now: float) -> None:
        """Decide without the store: by what is here, or from this gateway's share while the store is unreachable."""
        if self._send is None or buckets.fits(use):
            self._decide(buckets, use, then, now)
        elif buckets.tenant.on_store_failure == "closed":
            why = "The store of this gateway's quota counters cannot be reached, and your tenant is closed without it"
            then(RequestError(Code.QUOTA_UNAVAILABLE, f"{why}; retry.", retry_after=RETRY_S))
        else:
            ask = buckets.share_ask(next(self._sequence), use, self.gateways, now)
            grant = self._own.exchange(ask, now)
            buckets.lend(grant)
            if self._take(buckets, use, then, now):
                self.lent += 1
            else:
                then(buckets.refusal(use, ask.limits, grant.levels))

    def _decide(self, buckets: LeasedBuckets, use: QuotaUsage, then: Then, now: float) -> None:
        if not self._take(buckets, use, then, now):
            then(buckets.refusal(use, buckets.limits, buckets.levels(now)))

    def _exchange(self, buckets: LeasedBuckets, now: float) -> None:
        """Request what the waiters and the slice need; at most one lease request per tenant is under way."""
        if buckets.asked is not None or self._send is None or self.away:
            return
        keeps = (buckets.waiters or now - buckets.used_at < SLICE_S) and not any(buckets.owed)
        target = buckets.target(self.gateways) if keeps else NOTHING
        for waiter in buckets.waiters:
            waiter.asked += 1
        needs = [waiter.use for waiter in buckets.waiters if not waiter.gone]
        buckets.asked = buckets.ask(next(self._sequence), self._holder, target, needs, now)
        self._send(buckets.asked)
