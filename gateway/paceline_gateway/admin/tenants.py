"""Each tenant's limits, what is left of them here, and its month. Pure.

Who is idle has no purse: alone, a gateway knows then that all is there; of several nobody can tell without asking.
"""

from collections import Counter
from collections.abc import Container, Iterable, Sequence

from paceline_core.objects.resolved import ResolvedTenant
from paceline_gateway.admin.sight import AdminSnapshot, PageQuery, paginate
from paceline_gateway.admin.views import Amount, Month, Tenants, TenantView
from paceline_gateway.desk import ServiceState
from paceline_gateway.quota.nouns import NOTHING, SIZE, SLOTS, UNLIMITED, Reservation, limits_of
from paceline_gateway.quota.purse import LeasedBuckets

_NAMES = ("requests", "input_tokens", "output_tokens", "concurrency")


def tenants(sight: AdminSnapshot, asked: PageQuery, *, busy: bool = False) -> Tenants:
    """A page of all tenants by name; `busy`: only those who have used something that is not refilled yet."""
    quotas, every = sight.quotas, sight.picture.tenants
    names = [name for name in quotas.busy if name in every] if busy else every.keys()
    part = paginate(names, str, asked)
    waiting, reserved = _queued(sight.desks.values()), _reserved(sight.reservations, set(part.items))
    return Tenants(
        gateway=sight.gateway,
        time=sight.time,
        total=part.total,
        truncated=part.truncated,
        shared=quotas.shared,
        away=quotas.away,
        tenants=tuple(_tenant(sight, every[name], waiting[name], reserved.get(name, NOTHING)) for name in part.items),
    )


def _queued(desks: Iterable[ServiceState]) -> Counter[str]:
    """How many of each tenant's requests stand in lines."""
    found: Counter[str] = Counter()
    for desk in desks:
        for line in desk.dispatcher.lines.values():
            for tenant, waiting in line.shares.items():
                found[tenant] += waiting
    return found


def _reserved(reservations: Iterable[Reservation], names: Container[str]) -> dict[str, list[float]]:
    """By tenant what open requests have set aside of each limit."""
    found: dict[str, list[float]] = {}
    for reservation in reservations:
        if reservation.tenant in names:
            sums = found.setdefault(reservation.tenant, [0.0] * SIZE)
            for kind, amount in enumerate(reservation.use):
                sums[kind] += amount
    return found


def _tenant(sight: AdminSnapshot, tenant: ResolvedTenant, waiting: int, reserved: Sequence[float]) -> TenantView:
    purse = sight.quotas.look(tenant, sight.now)
    amounts = _amounts(sight, tenant, purse, reserved)
    is_open = purse.open if purse is not None else 0
    return TenantView(
        tenant=tenant.name,
        weight=tenant.weight,
        default_class=tenant.default_class,
        on_store_failure=tenant.on_store_failure,
        month=_month(sight, tenant),
        open=is_open,
        queued=waiting,
        in_flight=max(is_open - waiting, 0),
        asking=len(purse.waiters) if purse is not None else 0,
        **dict(zip(_NAMES, amounts, strict=True)),
    )


def _amounts(
    sight: AdminSnapshot, tenant: ResolvedTenant, purse: LeasedBuckets | None, reserved: Sequence[float]
) -> Iterable[Amount]:
    left = purse.left(sight.now) if purse is not None else ()
    for kind, limit in enumerate(limits_of(tenant)):
        if limit == UNLIMITED:
            yield Amount(reserved=reserved[kind])
        elif purse is not None:
            yield _amount(kind, limit, left[kind], reserved[kind])
        elif sight.quotas.shared:
            yield Amount(limit=limit, reserved=reserved[kind])
        else:
            yield _amount(kind, limit, limit, reserved[kind])


def _amount(kind: int, limit: float, left: float, reserved: float) -> Amount:
    """A slot comes back when its request ends, the others within a minute; a limit of none never does."""
    used = limit - left
    refills = kind != SLOTS and limit > 0
    return Amount(
        limit=limit,
        used=round(max(used, 0.0), 3),
        reserved=reserved,
        remaining=round(max(left, 0.0), 3),
        reset_s=round(max(used, 0.0) * 60.0 / limit, 3) if refills else None,
    )


def _month(sight: AdminSnapshot, tenant: ResolvedTenant) -> Month:
    spent, reserved = sight.ledger.used(tenant.name), sight.ledger.reserved(tenant.name)
    return Month(
        month=sight.ledger.month,
        requests=spent.requests,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        dollars=f"{spent.dollars:f}",
        tokens_limit=tenant.monthly_tokens,
        dollars_limit=None if tenant.monthly_dollars is None else f"{tenant.monthly_dollars:f}",
        reserved_tokens=reserved.tokens,
        reserved_dollars=f"{reserved.dollars:f}",
    )
