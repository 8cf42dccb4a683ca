"""Combines the gateways' reports, earlier and current, to one frame: rates, quantiles over that time, sums. Pure.

A gateway without an earlier report has no rates yet; counts that have restarted count from zero. Gateways that share a
tenant's limits each know slightly less than the total, so the highest use of several is shown. A frame has one row for
each class, tenant and worker.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, groupby
from math import inf, isnan
from typing import Any, Final

from paceline_cli.ui.gateway_poll import GatewaySnapshot, Reading, UnreachableGateway
from paceline_core.telemetry.instruments import bucket_quantile
from paceline_gateway.admin.views import Amount, ClassView, HistogramView, WorkerView
from paceline_gateway.routing.worker import PLACES

OFTEN: Final = 0.95
"""The quantile to show without a target."""


@dataclass(frozen=True, slots=True)
class Time:
    """A quantile of TTFT or TPOT in seconds: the observed one, None without requests, and the promised one, if any."""

    quantile: float
    observed: float | None
    promised: float | None

    @property
    def broken(self) -> bool:
        return self.observed is not None and self.promised is not None and self.observed > self.promised


@dataclass(frozen=True, slots=True)
class ClassRow:
    """A class of one service. Rates per second; `oldest_wait_s` and `wait_s` of the queue, `held` of the service."""

    service: str
    name: str
    requests: float
    tokens: float
    in_flight: int
    queued: int
    held: int
    oldest_wait_s: float
    wait_s: float | None
    ttft: Time
    tpot: Time


@dataclass(frozen=True, slots=True)
class Use:
    """The use of one limit; None: there is no limit, or nothing is known."""

    used: float | None
    limit: float | None

    @property
    def share(self) -> float:
        if self.used is None or self.limit is None:
            return 0.0
        return self.used / self.limit if self.limit else 1.0


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant that has used something recently."""

    tenant: str
    open: int
    queued: int
    requests: Use
    input_tokens: Use
    output_tokens: Use
    concurrency: Use
    month_tokens: Use
    month_dollars: Use

    @property
    def tightest(self) -> float:
        """The used share of the limit that is used most."""
        uses = (self.requests, self.input_tokens, self.output_tokens, self.concurrency)
        return max(use.share for use in (*uses, self.month_tokens, self.month_dollars))


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker; `in_flight` and `picks` (per second) are sums over all gateways, the rest is the newest report's."""

    service: str
    worker: str
    pool: str
    state: str
    in_flight: int
    slots: int | None
    backlog_tokens: int
    kv: float
    circuit: str
    picks: float
    heard_s_ago: float | None


@dataclass(frozen=True, slots=True)
class Frame:
    """A refresh. `window_s`: the time of rates and quantiles in seconds; `silent`: gateways that did not answer;
    `truncated`: a list was longer than what was read."""

    time: str
    window_s: float
    gateways: tuple[str, ...]
    silent: tuple[UnreachableGateway, ...]
    truncated: bool
    classes: tuple[ClassRow, ...]
    tenants: tuple[TenantRow, ...]
    workers: tuple[WorkerRow, ...]

    def document(self) -> dict[str, Any]:
        return {"v": 1, **asdict(self)}


def frame(reading: Reading, before: Mapping[str, GatewaySnapshot]) -> Frame:
    """The current frame; `before` has each gateway's earlier snapshot."""
    looks = [each for each in reading if isinstance(each, GatewaySnapshot)]
    pairs = [(each, before.get(each.gateway, each)) for each in looks]
    pages = [page for each in looks for page in (each.services, each.queues, each.workers, each.tenants)]
    return Frame(
        time=max((each.services.time for each in looks), default=""),
        window_s=max((now.at - then.at for now, then in pairs), default=0.0),
        gateways=tuple(each.gateway for each in looks),
        silent=tuple(each for each in reading if isinstance(each, UnreachableGateway)),
        truncated=any(page.truncated for page in pages),
        classes=tuple(_classes(pairs)),
        tenants=tuple(sorted(_tenants(looks), key=lambda row: (-row.tightest, -row.open, row.tenant))),
        workers=tuple(_workers(pairs)),
    )


Pair = tuple[GatewaySnapshot, GatewaySnapshot]


@dataclass(frozen=True, slots=True)
class _Class:
    """A class at one gateway, now and earlier, `seconds` apart."""

    service: str
    now: ClassView
    then: ClassView | None
    seconds: float
    held: int
    oldest_wait_s: float
    wait_s: float | None

    def rate(self, name: str) -> float:
        """The rate of a count that only grows."""
        then = 0 if self.then is None else getattr(self.then, name)
        return _per_second(getattr(self.now, name) - then, self.seconds)

    @property
    def tokens(self) -> float:
        """Output tokens a second, including answers under way; an answer that is cut subtracts its own."""
        then = 0 if self.then is None else self.then.output_tokens + self.then.streaming_tokens
        return max(_per_second(self.now.output_tokens + self.now.streaming_tokens - then, self.seconds), 0.0)

    def times(self, name: str) -> HistogramView:
        now: HistogramView = getattr(self.now, name)
        then: HistogramView | None = None if self.then is None else getattr(self.then, name)
        if then is None or then.bounds != now.bounds:
            return now
        return HistogramView(
            bounds=now.bounds, counts=tuple(a - b for a, b in zip(now.counts, then.counts, strict=True))
        )


def _classes(pairs: Iterable[Pair]) -> Iterable[ClassRow]:
    """Classes with any requests so far, or with promises."""
    found = sorted(
        (each for pair in pairs for each in _of(pair)), key=lambda each: (each.service, PLACES[each.now.name])
    )
    for (service, name), group in groupby(found, key=lambda each: (each.service, each.now.name)):
        parts = list(group)
        if not any(part.now.arrivals or part.now.promises for part in parts):
            continue
        waits = [part.wait_s for part in parts if part.wait_s is not None]
        yield ClassRow(
            service=service,
            name=name,
            requests=sum(part.rate("arrivals") for part in parts),
            tokens=sum(part.tokens for part in parts),
            in_flight=sum(part.now.in_flight for part in parts),
            queued=sum(part.now.queued for part in parts),
            held=sum(part.held for part in parts),
            oldest_wait_s=max(part.oldest_wait_s for part in parts),
            wait_s=max(waits, default=None),
            ttft=_time("ttft", parts),
            tpot=_time("tpot", parts),
        )


def _of(pair: Pair) -> Iterable[_Class]:
    now, then = pair
    earlier = {(each.service, cls.name): cls for each in then.services.services for cls in each.classes}
    lines = {(queue.service, line.name): line for queue in now.queues.queues for line in queue.lines}
    for service in now.services.services:
        for cls in service.classes:
            before, line = earlier.get((service.service, cls.name)), lines.get((service.service, cls.name))
            if before is not None and before.arrivals > cls.arrivals:
                before = None
            yield _Class(
                service.service,
                cls,
                before,
                now.at - then.at,
                service.held,
                0.0 if line is None else line.oldest_s,
                None if line is None else line.wait_s,
            )


def _time(name: str, parts: Sequence[_Class]) -> Time:
    """The strictest promise for it, of the highest quantile."""
    promises = [each for each in parts[0].now.promises if each.metric == name]
    promise = max(promises, key=lambda each: each.quantile, default=None)
    wanted = OFTEN if promise is None else promise.quantile
    observed = quantile(wanted, [part.times(name) for part in parts])
    return Time(wanted, observed, None if promise is None else promise.seconds)


def quantile(wanted: float, histograms: Iterable[HistogramView]) -> float | None:
    """The quantile of histograms together, computed as in Prometheus, in seconds; None without observations."""
    counts: dict[float, int] = {}
    for each in histograms:
        for bound, count in zip((*each.bounds, inf), each.counts, strict=True):
            counts[bound] = counts.get(bound, 0) + count
    edges = sorted(counts)
    found = bucket_quantile(wanted, zip(edges, accumulate(counts[edge] for edge in edges), strict=True))
    return None if isnan(found) else found


def _tenants(looks: Iterable[GatewaySnapshot]) -> Iterable[TenantRow]:
    found = sorted((view for each in looks for view in each.tenants.tenants), key=lambda view: view.tenant)
    for name, group in groupby(found, key=lambda view: view.tenant):
        views = list(group)
        most = max(views, key=lambda view: (view.month.input_tokens + view.month.output_tokens, view.month.dollars))
        month = most.month
        budget = None if month.dollars_limit is None else float(month.dollars_limit)
        yield TenantRow(
            tenant=name,
            open=sum(view.open for view in views),
            queued=sum(view.queued for view in views),
            requests=_use(view.requests for view in views),
            input_tokens=_use(view.input_tokens for view in views),
            output_tokens=_use(view.output_tokens for view in views),
            concurrency=_use(view.concurrency for view in views),
            month_tokens=Use(month.input_tokens + month.output_tokens, month.tokens_limit),
            month_dollars=Use(float(month.dollars), budget),
        )


def _use(amounts: Iterable[Amount]) -> Use:
    """The highest use that any gateway reports."""
    uses = [Use(each.used, each.limit) for each in amounts]
    return max(uses, key=lambda use: use.share)


def _workers(pairs: Iterable[Pair]) -> Iterable[WorkerRow]:
    """Each worker once, by its newest report; a breaker that is open at any gateway is shown."""
    found: list[tuple[WorkerView, float]] = []
    for now, then in pairs:
        earlier = {(each.service, each.worker): each.taken for each in then.workers.workers}
        for view in now.workers.workers:
            before = earlier.get((view.service, view.worker), 0)
            grown = view.taken - before if before <= view.taken else view.taken
            found.append((view, _per_second(grown, now.at - then.at)))
    found.sort(key=lambda each: (each[0].service, each[0].worker))
    for _, group in groupby(found, key=lambda pair: (pair[0].service, pair[0].worker)):
        members = list(group)
        views = [view for view, _ in members]
        last = min(views, key=lambda view: inf if view.heard_s_ago is None else view.heard_s_ago)
        yield WorkerRow(
            service=last.service,
            worker=last.worker,
            pool=last.pool,
            state=last.state,
            in_flight=sum(view.in_flight for view in views),
            slots=last.slots,
            backlog_tokens=max(view.backlog_tokens for view in views),
            kv=last.kv_tokens / last.kv_total if last.kv_total else 0.0,
            circuit=max((view.circuit for view in views), key=["closed", "half_open", "open"].index),
            picks=sum(picks for _, picks in members),
            heard_s_ago=last.heard_s_ago,
        )


def _per_second(grown: float, seconds: float) -> float:
    return grown / seconds if seconds > 0 else 0.0
