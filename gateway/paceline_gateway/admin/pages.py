"""The pages of the admin port: tenants, queues, services and workers as this gateway knows them. Pure.

A page reads the gateway's own objects and changes none. Every list has a cap: a page is made on the token path's event
loop and blocks it, for at most some 20 ms. An idle tenant has no buckets: a gateway on its own then knows that its
limits are untouched; one of several cannot know without asking the store. A service's counts only grow, so a reader
takes the difference of two pages.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.registry.enums import RequestClass
from paceline_core.telemetry import Histogram
from paceline_gateway.admin.views import (
    Amount,
    ClassView,
    HistogramView,
    Line,
    LineTenant,
    Month,
    Queue,
    Queues,
    Services,
    ServiceView,
    SloTargetView,
    Tenants,
    TenantView,
    Workers,
    WorkerView,
)
from paceline_gateway.queueing.fair_queue import FairQueue
from paceline_gateway.quota.leased_buckets import LeasedBuckets
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.quota.types import NOTHING, SIZE, SLOTS, UNLIMITED, Reservation, limits_of
from paceline_gateway.routing.config_snapshot import ConfigSnapshot
from paceline_gateway.routing.worker import Worker
from paceline_gateway.services.service_state import ServiceState
from paceline_gateway.usage.ledger import UsageLedger

MAX_PAGE = 200
DEFAULT_PAGE = 50
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdminSnapshot:
    """Everything that a page may show: `now` is monotonic, `time` the same moment in RFC 3339.

    `streaming`: by service and class the output tokens so far of answers that have not ended.
    """

    gateway: str
    now: float
    time: str
    services: Mapping[str, ServiceState]
    snapshot: ConfigSnapshot
    quotas: QuotaManager
    ledger: UsageLedger
    reservations: Iterable[Reservation]
    streaming: Mapping[tuple[str, RequestClass], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The part of a list to show: items after `after` in order, at most `limit`; `service` selects one service."""

    limit: int = DEFAULT_PAGE
    after: str = ""
    service: str = ""

    def services(self, state: AdminSnapshot) -> list[ServiceState]:
        return [service for key, service in state.services.items() if self.service in ("", key)]


@dataclass(frozen=True, slots=True)
class PageOf(Generic[T]):
    """A part of `total` items, and whether more follow."""

    items: tuple[T, ...]
    total: int
    truncated: bool


def paginate(items: Iterable[T], name: Callable[[T], str], asked: PageQuery) -> PageOf[T]:
    """The requested part of the items, sorted by name."""
    ordered = sorted(items, key=name)
    behind = [item for item in ordered if name(item) > asked.after] if asked.after else ordered
    return PageOf(tuple(behind[: asked.limit]), len(ordered), len(behind) > asked.limit)


TENANTS = 20
"""The most tenants listed for each queue: those with most waiting requests."""


def queues(state: AdminSnapshot, asked: PageQuery) -> Queues:
    part = paginate(asked.services(state), lambda service: service.key, asked)
    return Queues(
        gateway=state.gateway,
        time=state.time,
        total=part.total,
        truncated=part.truncated,
        queues=tuple(_queue(state, service) for service in part.items),
    )


def _queue(state: AdminSnapshot, service: ServiceState) -> Queue:
    room = service.dispatcher
    return Queue(
        service=service.key,
        waiting=room.waiting,
        held=room.held(state.now),
        held_limit=room.caps.held,
        size_bytes=room.size,
        size_limit=room.caps.size,
        reserved_slots=service.pool.reserved,
        overloaded=room.overloaded,
        lines=tuple(_line(state, service, name, line) for name, line in room.queues.items()),
    )


def _line(state: AdminSnapshot, service: ServiceState, name: RequestClass, line: FairQueue) -> Line:
    now, deadline = state.now, line.nearest_deadline
    wait, limit = service.dispatcher.wait_s(name, now), service.spec.classes[name].queue_limit
    holders = sorted(line.shares.items(), key=lambda holder: (-holder[1], holder[0]))
    return Line(
        name=name,
        waiting=len(line),
        limit=limit,
        size_bytes=line.size,
        prompt_tokens=line.prompt_tokens,
        oldest_s=0.0 if line.oldest is None else round(max(now - line.oldest, 0.0), 3),
        deadline_s=None if deadline is None else round(deadline - now, 3),
        wait_s=None if wait is None else round(wait, 3),
        in_flight=service.tallies[name].open - len(line),
        tenants_total=len(holders),
        truncated=len(holders) > TENANTS,
        tenants=tuple(_holder(state, line, tenant, limit) for tenant, _ in holders[:TENANTS]),
    )


def _holder(state: AdminSnapshot, line: FairQueue, tenant: str, limit: int) -> LineTenant:
    known = state.snapshot.tenants.get(tenant)
    return LineTenant(
        tenant=tenant,
        waiting=line.shares.of(tenant),
        share=round(line.shares.share(tenant, 1 if known is None else known.weight, limit), 1),
        cost_tokens=line.costs.get(tenant, 0),
        counter=round(line.accounts.counter(tenant), 1),
    )


def services(state: AdminSnapshot, asked: PageQuery) -> Services:
    part = paginate(asked.services(state), lambda service: service.key, asked)
    return Services(
        gateway=state.gateway,
        time=state.time,
        total=part.total,
        truncated=part.truncated,
        services=tuple(_service(state, service) for service in part.items),
    )


def _service(state: AdminSnapshot, service: ServiceState) -> ServiceView:
    return ServiceView(
        service=service.key,
        model=service.spec.model.served_name,
        emulated=service.spec.emulated,
        held=service.dispatcher.held(state.now),
        workers=dict(service.pool.standings(state.now)),
        bytes_per_token=round(service.estimates.prompts.bytes_per_token, 3),
        classes=tuple(_class(state, service, name) for name in RequestClass),
    )


def _class(state: AdminSnapshot, service: ServiceState, name: RequestClass) -> ClassView:
    tally, waiting = service.tallies[name], len(service.dispatcher.queues[name])
    series = service.series.classes[name]
    targets, mean = service.spec.classes[name].targets, tally.prompt_tokens / max(tally.arrivals, 1)
    return ClassView(
        name=name,
        promises=tuple(SloTargetView(metric=t.metric, quantile=t.quantile, seconds=t.limit(mean)) for t in targets),
        arrivals=tally.arrivals,
        completed=tally.completed,
        good=tally.good,
        bad=tally.bad,
        prompt_tokens=tally.prompt_tokens,
        output_tokens=tally.output_tokens,
        streaming_tokens=state.streaming.get((service.key, name), 0),
        queued=waiting,
        in_flight=tally.open - waiting,
        ttft=_times(series.ttft),
        tpot=_times(series.tpot),
    )


def _times(histogram: Histogram) -> HistogramView:
    return HistogramView.model_construct(
        bounds=histogram.bounds, counts=tuple(histogram.counts)
    )  # without validation, which would cost more


_NAMES = ("requests", "input_tokens", "output_tokens", "concurrency")


def tenants(state: AdminSnapshot, asked: PageQuery, *, busy: bool = False) -> Tenants:
    """A page of tenants by name; `busy`: only those that have used something that is not refilled yet."""
    quotas, every = state.quotas, state.snapshot.tenants
    names = [name for name in quotas.busy if name in every] if busy else every.keys()
    part = paginate(names, str, asked)
    waiting: Counter[str] = Counter()
    for service in state.services.values():
        for line in service.dispatcher.queues.values():
            waiting.update(dict(line.shares.items()))
    reserved = _reserved(state.reservations, set(part.items))
    return Tenants(
        gateway=state.gateway,
        time=state.time,
        total=part.total,
        truncated=part.truncated,
        shared=quotas.shared,
        away=quotas.away,
        tenants=tuple(_tenant(state, every[name], waiting[name], reserved.get(name, NOTHING)) for name in part.items),
    )


def _reserved(reservations: Iterable[Reservation], names: Container[str]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for reservation in reservations:
        if reservation.tenant in names:
            sums = found.setdefault(reservation.tenant, [0.0] * SIZE)
            for kind, amount in enumerate(reservation.use):
                sums[kind] += amount
    return found


def _tenant(state: AdminSnapshot, tenant: ResolvedTenant, waiting: int, reserved: Sequence[float]) -> TenantView:
    buckets = state.quotas.look(tenant, state.now)
    amounts = _amounts(state, tenant, buckets, reserved)
    is_open = buckets.open if buckets is not None else 0
    return TenantView(
        tenant=tenant.name,
        weight=tenant.weight,
        default_class=tenant.default_class,
        on_store_failure=tenant.on_store_failure,
        month=_month(state, tenant),
        open=is_open,
        queued=waiting,
        in_flight=max(is_open - waiting, 0),
        asking=len(buckets.waiters) if buckets is not None else 0,
        **dict(zip(_NAMES, amounts, strict=True)),
    )


def _amounts(
    state: AdminSnapshot, tenant: ResolvedTenant, buckets: LeasedBuckets | None, reserved: Sequence[float]
) -> Iterable[Amount]:
    left = buckets.left(state.now) if buckets is not None else ()
    for kind, limit in enumerate(limits_of(tenant)):
        if limit == UNLIMITED:
            yield Amount(reserved=reserved[kind])
        elif buckets is not None:
            yield _amount(kind, limit, left[kind], reserved[kind])
        elif state.quotas.shared:
            yield Amount(limit=limit, reserved=reserved[kind])
        else:
            yield _amount(kind, limit, limit, reserved[kind])


def _amount(kind: int, limit: float, left: float, reserved: float) -> Amount:
    """A slot comes back when its request ends, the others within a minute; a limit of zero never does."""
    used = limit - left
    refills = kind != SLOTS and limit > 0
    return Amount(
        limit=limit,
        used=round(max(used, 0.0), 3),
        reserved=reserved,
        remaining=round(max(left, 0.0), 3),
        reset_s=round(max(used, 0.0) * 60.0 / limit, 3) if refills else None,
    )


def _month(state: AdminSnapshot, tenant: ResolvedTenant) -> Month:
    spent, reserved = state.ledger.used(tenant.name), state.ledger.reserved(tenant.name)
    return Month(
        month=state.ledger.month,
        requests=spent.requests,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        dollars=f"{spent.dollars:f}",
        tokens_limit=tenant.monthly_tokens,
        dollars_limit=None if tenant.monthly_dollars is None else f"{tenant.monthly_dollars:f}",
        reserved_tokens=reserved.tokens,
        reserved_dollars=f"{reserved.dollars:f}",
    )


def workers(state: AdminSnapshot, asked: PageQuery) -> Workers:
    """A page of workers, by service and name: `after` is both, with a space between."""
    every = ((service, worker) for service in asked.services(state) for worker in service.pool)
    part = paginate(every, lambda pair: f"{pair[0].key} {pair[1].name}", asked)
    return Workers(
        gateway=state.gateway,
        time=state.time,
        total=part.total,
        truncated=part.truncated,
        workers=tuple(_worker(state, service, worker) for service, worker in part.items),
    )


def _worker(state: AdminSnapshot, service: ServiceState, worker: Worker) -> WorkerView:
    now, report, endpoint = state.now, worker.report, worker.endpoint
    return WorkerView(
        service=service.key,
        worker=worker.name,
        pool=endpoint.pool,
        revision=endpoint.revision,
        track=endpoint.track,
        address="{}:{}".format(*worker.address),
        state=service.pool.standing(worker, now),
        reported=report.state if report else None,
        emulated=bool(report and report.emulated),
        slots=report.slots if report else None,
        share=worker.share,
        open_slots=worker.ramped(now) if report else 0,
        in_flight=worker.in_flight,
        running=report.running if report else None,
        waiting=sum(report.waiting.values()) if report else None,
        taken=worker.taken,
        backlog_tokens=worker.backlog,
        backlog_by_class=dict(zip(RequestClass, worker.backlogs, strict=True)),
        backlog_s=round(worker.backlog_s, 4),
        kv_tokens=worker.kv_tokens,
        kv_total=worker.kv_total,
        circuit=worker.breaker.state(now),
        pause_s=round(max(worker.breaker.until - now, 0.0), 3),
        prefix_bytes=service.pool.prefixes.bytes_of(worker.name),
        heard_s_ago=round(now - worker.heard, 3) if report else None,
    )
