"""Reserve on admission, settle on use: tenants' limits on requests, tokens and concurrency. Pure.

A request reserves what it is expected to use, so that many at once cannot pass a limit together; when it ends, the
difference to what it used comes back or is charged. A gateway that is alone has all of a limit itself; of several
each has a slice of the Pool that they share, and asks it through `send` for more. While the slice suffices nobody
waits; else a request waits until `answered` or `lost`. While the shared pool is away a tenant's `onStoreFailure`
counts: `open` is served from an own pool of a part of the limits, and what it lends is paid back; `closed` is refused.
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
"""Requests of one tenant that wait for the store; one more is refused."""
RENEW_S = TTL_S / 3
FORGET_S = 10.0
RETRY_S = 1.0
ASKS = 2
"""Exchanges made for one request before it is decided."""


@dataclass(slots=True)
class QuotaTotals:
    """Amounts since the start, all tenants together. `refunded` is negative where more was used than reserved."""

    reserved: list[float] = field(default_factory=lambda: [0.0] * SIZE)
    settled: list[float] = field(default_factory=lambda: [0.0] * SIZE)
    refunded: list[float] = field(default_factory=lambda: [0.0] * SIZE)

    @property
    def open(self) -> list[float]:
        """Set aside now."""
        return list(map(sub, map(sub, self.reserved, self.settled), self.refunded))


class QuotaManager:
    """All tenants' buckets at this gateway. `send` takes asks to the shared pool; without it the gateway is alone."""

    def __init__(self, send: Callable[[LeaseRequest], None] | None = None, holder: str = "", gateways: int = 1) -> None:
        self.totals = QuotaTotals()
        self.away = False
        """The shared pool cannot be reached."""
        self.lent = 0
        """Reservations made out of this gateway's own share since the start."""
        self.gateways = gateways
        self.shared = send is not None
        """Several gateways count in one place."""
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
        """Tenants of whom something is kept: the others are idle and have used nothing that is not refilled."""
        return self._buckets.keys()

    def look(self, tenant: ResolvedTenant, now: float) -> LeasedBuckets | None:
        """A tenant's buckets under its limits of now; None while it is idle."""
        return self._buckets_of(tenant, now) if tenant.name in self._buckets else None

    @property
    def waiting(self) -> int:
        return sum(len(buckets.waiters) for buckets in self._buckets.values())

    def reserve(self, tenant: ResolvedTenant, use: QuotaUsage, now: float, then: Then) -> PendingReservation | None:
        """Set aside what a request is expected to use; `then` hears of it, at once unless the store must be asked.

        The waiter that is returned then is told by `gone` when its request has left: nothing is set aside for it.
        """
        buckets = self._buckets_of(tenant, now)
        if not buckets.waiters and self._take(buckets, use, then, now):
            if self._send is not None and any(buckets.have[kind] < buckets.goal[kind] / 2 for kind in buckets.kinds):
                self._exchange(buckets, now)  # renews a slice before it is used up
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
        """Why not even so small a request may go, told without asking; None where it may, or nothing is known.

        What the shared pool said is believed for a moment: of a tenant over its limits one request in that time asks.
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
        """The request has ended: charge what it used instead of what was reserved."""
        buckets, totals = self._buckets[reservation.tenant], self.totals
        totals.settled = list(map(add, totals.settled, used))
        totals.refunded = list(map(add, totals.refunded, map(sub, reservation.use, used)))
        buckets.give(reservation, used, now)
        if self._send is None:
            return
        for kind in buckets.kinds:  # more came back than is worth keeping: others may lack it
            if buckets.have[kind] - buckets.goal[kind] >= max(SHARE * buckets.limits[kind] / self.gateways, 1.0):
                self._exchange(buckets, now)
                return

    def fields(self, tenant: ResolvedTenant, now: float) -> bytes:
        """Header lines that tell a tenant where it stands."""
        return self._buckets_of(tenant, now).fields(now, away=self.away)

    def refunded(self, reservation: Reservation, used: QuotaUsage, now: float) -> bytes:
        """The same once a reservation is settled by so much."""
        buckets = self._buckets[reservation.tenant]
        back = {kind: reservation.use[kind] - used[kind] for kind in reservation.kinds}
        return buckets.fields(now, back, away=self.away)

    def answered(self, ask: LeaseRequest, grant: LeaseGrant, now: float) -> None:
        buckets = self._buckets[ask.tenant]
        buckets.asked = None
        buckets.granted(grant, now)
        waiters, buckets.waiters = buckets.waiters, deque()
        for waiter in waiters:  # in order; who came later, or seems to lack nothing, is asked for anew
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
        """The shared pool cannot be reached. What was sent stays in doubt until `found`; who waits is answered here."""
        self.away = True
        for buckets in list(self._buckets.values()):
            waiters = [waiter for waiter in buckets.waiters if not waiter.gone]
            buckets.waiters.clear()
            for waiter in waiters:
                self._here(buckets, waiter.use, waiter.then, now)

    def found(self, gateways: int, now: float) -> None:
        """The shared pool can be reached, and so many gateways use it. What was in doubt is sent again."""
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
        """This gateway stops: give everything back. Whether there is nothing left to give, or nobody to give it to."""
        for buckets in self._buckets.values():
            buckets.used_at = -NEVER
            if any(buckets.have) or any(buckets.owed):
                self._exchange(buckets, now)
        return self.away or all(buckets.asked is None for buckets in self._buckets.values())

    def tick(self, now: float) -> None:
        """Give time its say: give back what is unused, pay debts, renew what is held, forget who is idle."""
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
        """Set it aside if it fits."""
        buckets.refresh(now)
        if not buckets.fits(use):
            return False
        buckets.take(use, now)
        self.totals.reserved = list(map(add, self.totals.reserved, use))
        then(Reservation(buckets.tenant.name, use, buckets.kinds, now, buckets.fields(now, away=self.away)))
        return True

    def _here(self, buckets: LeasedBuckets, use: QuotaUsage, then: Then, now: float) -> None:
        """Without the shared pool: decide by what is there, or out of a part of the limits while it is away."""
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
        """Ask the shared pool for what the waiting ones need and for the slice; one ask at a time."""
        if buckets.asked is not None or self._send is None or self.away:
            return
        keeps = (buckets.waiters or now - buckets.used_at < SLICE_S) and not any(buckets.owed)
        target = buckets.target(self.gateways) if keeps else NOTHING
        for waiter in buckets.waiters:
            waiter.asked += 1
        needs = [waiter.use for waiter in buckets.waiters if not waiter.gone]
        buckets.asked = buckets.ask(next(self._sequence), self._holder, target, needs, now)
        self._send(buckets.asked)
