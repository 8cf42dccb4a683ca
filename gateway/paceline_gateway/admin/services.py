"""Each service since this gateway's start: what came, what was kept of the promises, and how long it took. Pure.

Counts only grow, so a reader takes two looks for what happened between them.
"""

from paceline_core.registry.enums import RequestClass
from paceline_core.telemetry import Histogram
from paceline_gateway.admin.sight import Asked, Sight, cut
from paceline_gateway.admin.views import ClassView, Promise, Services, ServiceView, Times
from paceline_gateway.desk import Desk


def services(sight: Sight, asked: Asked) -> Services:
    """A page of services."""
    part = cut(asked.desks(sight), lambda desk: desk.key, asked)
    return Services(
        gateway=sight.gateway,
        time=sight.time,
        total=part.total,
        truncated=part.truncated,
        services=tuple(_service(sight, desk) for desk in part.items),
    )


def _service(sight: Sight, desk: Desk) -> ServiceView:
    return ServiceView(
        service=desk.key,
        model=desk.service.model.served_name,
        emulated=desk.service.emulated,
        held=desk.dispatcher.held(sight.now),
        workers=dict(desk.fleet.standings(sight.now)),
        bytes_per_token=round(desk.estimate.bytes_per_token, 3),
        classes=tuple(_class(sight, desk, name) for name in RequestClass),
    )


def _class(sight: Sight, desk: Desk, name: RequestClass) -> ClassView:
    tally, waiting = desk.tallies[name], len(desk.dispatcher.lines[name])
    ttft, tpot = desk.series.classes[name].times
    targets = desk.service.classes[name].targets
    return ClassView(
        name=name,
        promises=tuple(Promise(metric=t.metric, quantile=t.quantile, seconds=t.seconds) for t in targets),
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


def _times(histogram: Histogram) -> Times:
    return Times.model_construct(bounds=histogram.bounds, counts=tuple(histogram.counts))  # checking all costs more
