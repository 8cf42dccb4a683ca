"""One tenant's buckets at this gateway. Pure.

`LeasedBuckets`: a slice of the tenant's limits, and the lease requests that renew it. The slice covers what the tenant
spends here in `SLICE_S` seconds, and is at most `SHARE` of the limit divided by the number of gateways, so that little
is stranded. Where that is less than one request, no slice is kept and each request asks the store for what it needs.
`goal` is the slice that was last requested. A negative `have` is overdrawn: an answer was longer than reserved. `owed`
was spent from this gateway's own share while the store was unreachable. The next lease request repays both before
anything else is granted.

`LocalBuckets`: a gateway that shares with no other has a full bucket for each limit and refills it itself. The rules
are those of `BucketStore` without the exchange: a request larger than the limit is granted when the bucket is full and
leaves a debt; a refund never fills a bucket beyond its limit. A test compares the two.

The `x-ratelimit-*` headers have OpenAI's form: limit, remaining, and the time until the limit is fully available. Of
input and output tokens they report the one with the smaller remaining share, and no limit that does not exist. A limit
of zero has no reset time, as its refusal has no `retry-after`.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from operator import add
from types import MappingProxyType
from typing import Final

from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_gateway.quota.types import (
    CLOSE,
    NEVER,
    NOTHING,
    SIZE,
    SLOTS,
    UNLIMITED,
    LeaseGrant,
    LeaseRequest,
    PendingReservation,
    Reservation,
    Vector,
    limits_of,
)

SHARE = 0.05
SLICE_S = 1.0
"""How many seconds of spending a slice covers; after as long without use the gateway gives the slice back."""
LEAST_S = 0.01
_FADE = 0.3
NO_REFUND: Final[Mapping[int, float]] = MappingProxyType({})
OWN_SHARE = b"x-paceline-quota: own-share\r\n"
"""Sent while the store is unreachable, so that a client sees why its limits are lower."""
_WHAT = ("requests", "input tokens", "output tokens")


class LeasedBuckets:
    """`open` requests hold a slot each; `asked` is the lease request under way; `kinds` indexes the limited amounts."""

    __slots__ = (
        "_duration",
        "_levels",
        "_pace",
        "_spent",
        "_typical",
        "asked",
        "asked_at",
        "epoch",
        "goal",
        "have",
        "kinds",
        "levels_at",
        "limits",
        "open",
        "owed",
        "tenant",
        "used_at",
        "waiters",
    )

    def __init__(self, tenant: ResolvedTenant, now: float) -> None:
        self.tenant = tenant
        self.limits = limits_of(tenant)
        self.kinds = _limited(self.limits)
        self.have = [0.0] * SIZE
        self.owed = [0.0] * SIZE
        self.open = 0
        self.waiters: deque[PendingReservation] = deque()
        self.asked: LeaseRequest | None = None
        self.asked_at = self.used_at = self.levels_at = now
        self.epoch = 0
        self.goal: Vector = NOTHING
        self._levels: Vector | None = None
        self._spent = [0.0] * SIZE
        self._pace = [0.0] * SIZE
        self._typical = [0.0] * SIZE
        self._duration = 1.0

    def bind(self, tenant: ResolvedTenant, now: float) -> None:
        """Apply changed limits from now on; usage so far still counts."""
        limits = limits_of(tenant)
        if limits != self.limits:
            levels = self.levels(now)
            moved = [
                new if UNLIMITED in (old, new) else level + new - old
                for level, old, new in zip(levels, self.limits, limits, strict=True)
            ]
            self._levels, self.levels_at = (None if self._levels is None else tuple(moved)), now
            for kind in range(SIZE):
                if kind == SLOTS or limits[kind] == UNLIMITED:
                    self.have[kind] = 0.0
            self.limits, self.kinds = limits, _limited(limits)
        self.tenant = tenant

    def refresh(self, now: float) -> None:
        """Refill up to `now`; a slice does not refill by itself."""

    def fits(self, need: Vector) -> bool:
        """Whether the slice covers the need."""
        return all(self.have[kind] >= need[kind] - CLOSE for kind in self.kinds)

    def take(self, need: Vector, now: float) -> None:
        """Spend from the slice; a request that is larger than the limit may overdraw it."""
        self.open += 1
        self.used_at = now
        for kind in self.kinds:
            self.have[kind] -= need[kind]
            self._spent[kind] += need[kind]
            self._typical[kind] += (need[kind] - self._typical[kind]) * (_FADE if self._typical[kind] else 1.0)

    def give(self, reservation: Reservation, used: Vector, now: float) -> None:
        """End a request: refund what it did not use, up to the limit, and charge what exceeds its reservation."""
        self.open -= 1
        self._duration += (now - reservation.since - self._duration) * _FADE
        reserved, levels = reservation.use, self.levels(now)
        for kind in reservation.kinds:
            if kind == SLOTS:
                self.have[SLOTS] = min(self.have[SLOTS] + 1.0, max(self.limits[SLOTS] - self.open, 0.0))
            elif kind in self.kinds:
                room = self.limits[kind] - levels[kind]
                self.have[kind] = min(self.have[kind] + reserved[kind] - used[kind], max(room, self.have[kind]))

    def target(self, gateways: int) -> Vector:
        """The size of the slice to keep."""
        goal = [0.0] * SIZE
        for kind in self.kinds:
            most = self.limits[kind] * SHARE / gateways
            pace = self._pace[SLOTS] * self._duration if kind == SLOTS else self._pace[kind] * SLICE_S
            goal[kind] = min(max(pace, self._typical[kind]), most)
            if goal[kind] < self._typical[kind]:
                return NOTHING
        goal[SLOTS] = float(int(goal[SLOTS]))
        return tuple(goal)

    def ask(self, seq: int, holder: str, target: Vector, needs: Sequence[Vector], now: float) -> LeaseRequest:
        """Return what exceeds the target, repay debts, and request what the waiters and the target need."""
        belief = None if self._levels is None else self.levels(now)
        first = needs[0] if needs else NOTHING
        back, held, least, want = [0.0] * SIZE, [0.0] * SIZE, [0.0] * SIZE, [0.0] * SIZE
        for kind in self.kinds:
            have, total = self.have[kind], sum(need[kind] for need in needs) + target[kind]
            stay = min(max(have, 0.0), total)
            back[kind] = have - stay - self.owed[kind]
            held[kind] = stay + self.open if kind == SLOTS else stay
            least[kind] = max(first[kind] - stay, 0.0)
            want[kind] = max(total - stay, 0.0)
            self.have[kind], self.owed[kind] = stay, 0.0
        passed, self.asked_at = max(now - self.asked_at, 0.05), now
        for kind in self.kinds:  # update the rate of spending since the last lease request
            self._pace[kind] += (max(self._spent[kind], 0.0) / passed - self._pace[kind]) * min(passed / SLICE_S, 1.0)
            self._spent[kind] = 0.0
        self.goal = target
        vectors = (tuple(back), tuple(held), tuple(least), tuple(want))
        return LeaseRequest(self.tenant.name, holder, seq, self.limits, *vectors, self.epoch, belief)

    def granted(self, grant: LeaseGrant, now: float) -> None:
        for kind in self.kinds:
            self.have[kind] += grant.given[kind]
        self._levels, self.levels_at, self.epoch = grant.levels, now, grant.epoch

    def share_ask(self, seq: int, need: Vector, gateways: int, now: float) -> LeaseRequest:
        """The lease request to this gateway's own share while the store is unreachable."""
        held, least = [0.0] * SIZE, [0.0] * SIZE
        held[SLOTS] = self.open + self.have[SLOTS]
        for kind in self.kinds:
            least[kind] = max(need[kind] - self.have[kind], 0.0)
        belief = None if self._levels is None else tuple(level / gateways for level in self.levels(now))
        lent = limits_of(self.tenant, gateways)
        return LeaseRequest(
            self.tenant.name, "", seq, lent, NOTHING, tuple(held), tuple(least), tuple(least), 0, belief
        )

    def lend(self, grant: LeaseGrant) -> None:
        """Take a grant from this gateway's own share while the store is unreachable; it is owed to the store."""
        for kind in self.kinds:
            self.have[kind] += grant.given[kind]
            if kind != SLOTS:
                self.owed[kind] += grant.given[kind]

    def levels(self, now: float) -> Vector:
        """What is available outside the slice: the store's last answer, refilled since; without one, all the rest."""
        if self._levels is None:
            return tuple(limit - max(have, 0.0) for limit, have in zip(self.limits, self.have, strict=True))
        passed, levels = now - self.levels_at, list(self._levels)
        for kind in self.kinds:
            if kind != SLOTS:
                limit = self.limits[kind]
                levels[kind] = min(levels[kind] + passed * limit / 60.0, limit - max(self.have[kind], 0.0))
        return tuple(levels)

    def left(self, now: float) -> Vector:
        """What is available in the slice and outside it."""
        levels = self.levels(now)  # first: LocalBuckets refills `have` here
        return tuple(map(add, levels, self.have))

    def wait(self, need: Vector, now: float) -> tuple[float, int]:
        """Seconds until the need should fit, and the kind that takes longest; 0 if it fits as far as is known."""
        return self.wait_at(need, self.limits, self.levels(now))

    def wait_at(self, need: Vector, limits: Vector, levels: Vector) -> tuple[float, int]:
        """`wait` with the given limits and levels of the store."""
        longest, lacking = 0.0, 0
        free_s = self._duration / max(self.limits[SLOTS], 1.0)  # mean time until one of that many requests ends
        for kind in self.kinds:
            limit = limits[kind]
            missing = min(need[kind], limit or need[kind]) - self.have[kind] - levels[kind]
            if missing > CLOSE:
                wait = free_s if kind == SLOTS else missing * 60.0 / limit if limit else NEVER
                if wait > longest:
                    longest, lacking = wait, kind
        return longest, lacking

    def refusal(self, use: Vector, limits: Vector, levels: Vector) -> RequestError:
        """The error for the kind with the longest wait, with the given limits and levels of the store."""
        wait, kind = self.wait_at(use, limits, levels)
        return over_limit(max(wait, LEAST_S), kind, limits[kind], use[kind], self.have[kind] + levels[kind])

    def due(self, now: float, renew_s: float) -> bool:
        """Whether to send a lease request although nothing more is needed: to repay, to renew or to give back."""
        if any(self.have[kind] < 0 or self.owed[kind] for kind in self.kinds):
            return True
        holds = any(self.have[kind] > 0 for kind in self.kinds)
        renew = (holds or self.open > 0) and now - self.asked_at >= renew_s
        return renew or (holds and now - self.used_at >= SLICE_S)

    def fields(self, now: float, back: Mapping[int, float] = NO_REFUND, *, away: bool) -> bytes:
        """The rate-limit header lines, after a refund of `back`; `away`: the store is unreachable."""
        if not self.kinds:
            return b""
        left = list(self.left(now))
        for kind, amount in back.items():
            left[kind] = min(left[kind] + amount, self.limits[kind])
        fields = ratelimit_fields(self.limits, left)
        return fields + OWN_SHARE if away else fields

    def idle(self, now: float) -> bool:
        """Whether nothing is open, requested or owed, and every bucket is full as far as is known."""
        if self.open or self.waiters or self.asked is not None:
            return False
        left = self.left(now)
        return all(not self.owed[kind] and left[kind] >= self.limits[kind] - CLOSE for kind in self.kinds)


class LocalBuckets(LeasedBuckets):
    """All of a tenant's limits, at a gateway that shares with no other."""

    __slots__ = ()

    def __init__(self, tenant: ResolvedTenant, now: float) -> None:
        super().__init__(tenant, now)
        self.have = [0.0 if limit == UNLIMITED else limit for limit in self.limits]

    def bind(self, tenant: ResolvedTenant, now: float) -> None:
        """Apply changed limits from now on; usage so far still counts."""
        self.refresh(now)
        before, have = self.limits, list(self.have)
        super().bind(tenant, now)
        if before is not self.limits:
            for kind in self.kinds:
                old, new = before[kind], self.limits[kind]
                fresh = new - self.open if kind == SLOTS else new
                self.have[kind] = fresh if old == UNLIMITED else have[kind] + new - old

    def refresh(self, now: float) -> None:
        passed = now - self.levels_at
        if passed <= 0:
            return
        self.levels_at = now
        for kind in self.kinds:
            if kind != SLOTS:
                limit = self.limits[kind]
                self.have[kind] = min(self.have[kind] + passed * limit / 60.0, limit)

    def levels(self, now: float) -> Vector:
        """Zero: all of the limit is in `have`."""
        self.refresh(now)
        return NOTHING

    def fits(self, need: Vector) -> bool:
        """Whether the need is covered, or the bucket is full."""
        for kind in self.kinds:
            have = self.have[kind]
            if have < need[kind] - CLOSE and (kind == SLOTS or not 0 < self.limits[kind] <= have + CLOSE):
                return False
        return True


def _limited(limits: Vector) -> tuple[int, ...]:
    return tuple(kind for kind in range(SIZE) if limits[kind] != UNLIMITED)


def over_limit(wait: float, kind: int, limit: float, need: float, left: float) -> RequestError:
    """The error for an exhausted limit of this kind that has room again in `wait` seconds."""
    if wait == NEVER:
        message = f"Your limit of {_WHAT[kind]} per minute is 0; ask whoever runs this to raise it."
        return RequestError(Code.INSUFFICIENT_QUOTA, message)
    retry = f"retry in {max(wait, 0.1):.1f} s"
    if kind == SLOTS:
        message = f"You have as many requests open as you may, {limit:.0f}; wait for one to end."
    elif 1 <= left < need:
        remain = f"Of your limit of {limit:.0f} {_WHAT[kind]} per minute {int(left + CLOSE)} are left"
        message = f"{remain}, and this request may use {need:.0f}; {retry}."
    else:
        message = f"You have used your limit of {limit:.0f} {_WHAT[kind]} per minute; {retry}."
    return RequestError(Code.RATE_LIMIT_EXCEEDED, message, retry_after=wait)


def ratelimit_fields(limits: Vector, left: Sequence[float]) -> bytes:
    """The complete header lines for these limits and what is left of them."""
    fields = "" if limits[0] == UNLIMITED else _lines("requests", limits[0], left[0])
    pairs = ((limits[kind], left[kind]) for kind in (1, 2))
    inputs, outputs = (UNLIMITED if most == UNLIMITED else rest / most if most else 0.0 for most, rest in pairs)
    tightest = 2 if outputs < inputs else 1
    if limits[tightest] != UNLIMITED:
        fields += _lines("tokens", limits[tightest], left[tightest])
    return fields.encode()


def duration(seconds: float) -> str:
    """`17ms`, `1.5s`, `6m0s`, `1h0m2s`."""
    thousandths = max(round(seconds * 1000), 0)
    if thousandths < 1000:
        return f"{thousandths}ms" if thousandths else "0s"
    minutes, rest = divmod(thousandths, 60_000)
    text = f"{rest / 1000:g}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return text


def _lines(what: str, limit: float, left: float) -> str:
    reset = f"x-ratelimit-reset-{what}: {duration((limit - left) * 60.0 / limit)}\r\n" if limit else ""
    return (
        f"x-ratelimit-limit-{what}: {int(limit)}\r\nx-ratelimit-remaining-{what}: {max(int(left + 1e-6), 0)}\r\n{reset}"
    )
