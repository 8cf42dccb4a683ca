"""Each service since this gateway's start: what came, what was kept of the promises, and how long it took. Pure.

Counts only grow, so a reader takes two looks for what happened between them.
"""

from paceline_core.registry.enums import RequestClass
from paceline_core.telemetry import Histogram
from paceline_gateway.admin.sight import AdminSnapshot, PageQuery, paginate
from paceline_gateway.admin.views import ClassView, HistogramView, Services, ServiceView, SloTargetView
from paceline_gateway.desk import ServiceState


def services(sight: AdminSnapshot, asked: PageQuery) -> Services:
    """A page of services."""
    part = paginate(asked.desks(sight), lambda desk: desk.key, asked)
    return Services(
        gateway=sight.gateway,
        time=sight.time,
        total=part.total,
        truncated=part.truncated,
        services=tuple(_service(sight, desk) for desk in part.items),
    )


def _service(sight: AdminSnapshot, desk: ServiceState) -> ServiceView:
    return ServiceView(
        service=desk.key,
        model=desk.service.model.served_name,
        emulated=desk.service.emulated,
        held=desk.dispatcher.held(sight.now),
        workers=dict(desk.fleet.standings(sight.now)),
        bytes_per_token=round(desk.estimate.bytes_per_token, 3),
        classes=tuple(_class(sight, desk, name) for name in RequestClass),
    )


def _class(sight: AdminSnapshot, desk: ServiceState, name: RequestClass) -> ClassView:
    tally, waiting = desk.tallies[name], len(desk.dispatcher.lines[name])
    ttft, tpot = desk.series.classes[name].times
    targets = desk.service.classes[name].targets
    return ClassView(
        name=name,
        promises=tuple(SloTargetView(metric=t.metric, quantile=t.quantile, seconds=t.seconds) for t in targets),
        arrivals=tally.arrivals,
        completed=tally.completed,
        good=tally.good,
        bad=tally.bad,
        prompt_tokens=tally.prompt_tokens,
        output_tokens=tally.output_tokens,
        streaming_tokens=sight.streaming.get((desk.key, name), 0),
        queued=waiting,
        in_flight=tally.open - waiting,
        ttft=_times(ttft),
        tpot=_times(tpot),
    )


def _times(histogram: Histogram) -> HistogramView:
    return HistogramView.model_construct(
        bounds=histogram.bounds, counts=tuple(histogram.counts)
    )  # checking all costs more
