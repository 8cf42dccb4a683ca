"""Quotas as the tests drive them: answers collected, the shared pool in memory, time by hand."""

from dataclasses import dataclass, field

from tests.gateway.manifests import tenant
from tests.gateway.pieces import snapshot

from paceline_core.errors import RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_gateway.quota.bucket_store import BucketStore
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.quota.types import LeaseRequest, PendingReservation, QuotaUsage, Reservation

ONE = QuotaUsage(1, 100, 50)


def limited(name: str = "team", on_store_failure: str = "open", **limits: int) -> ResolvedTenant:
    """A tenant with these limits."""
    return snapshot(tenant(name, limits=limits, onStoreFailure=on_store_failure)).tenants[name]


def asked(quotas: QuotaManager, who: ResolvedTenant, use: QuotaUsage, now: float) -> Reservation | RequestError:
    """The answer to a reservation that needs no store."""
    answers: list[Reservation | RequestError] = []
    assert quotas.reserve(who, use, now, answers.append) is None
    (answer,) = answers
    return answer


def granted(quotas: QuotaManager, who: ResolvedTenant, use: QuotaUsage, now: float) -> Reservation:
    """A reservation."""
    result = asked(quotas, who, use, now)
    assert isinstance(result, Reservation)
    return result


def refused(quotas: QuotaManager, who: ResolvedTenant, use: QuotaUsage, now: float) -> RequestError:
    """The reason why there is none."""
    result = asked(quotas, who, use, now)
    assert isinstance(result, RequestError)
    return result


@dataclass(slots=True)
class Member:
    """One of several gateways. What it sends lies in `sent` until it is delivered."""

    name: str
    gateways: int = 1
    sent: list[LeaseRequest] = field(default_factory=list)
    answers: list[Reservation | RequestError] = field(default_factory=list)
    quotas: QuotaManager = field(init=False)

    def __post_init__(self) -> None:
        self.quotas = QuotaManager(self.sent.append, self.name, self.gateways)

    def reserve(self, who: ResolvedTenant, use: QuotaUsage, now: float) -> PendingReservation | None:
        """Ask; the answer comes to `answers`."""
        return self.quotas.reserve(who, use, now, self.answers.append)

    def deliver(self, pool: BucketStore, now: float) -> None:
        """Carry everything that was sent, and what follows from it, to the pool and back."""
        while self.sent:
            ask = self.sent.pop(0)
            self.quotas.answered(ask, pool.exchange(ask, now), now)

    @property
    def held(self) -> list[Reservation]:
        """Reservations so far."""
        return [answer for answer in self.answers if isinstance(answer, Reservation)]
