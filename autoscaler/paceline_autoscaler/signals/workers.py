"""The workers: who they are from the endpoints watch, how they are from their own load streams."""

from collections.abc import Callable, Iterable

from paceline_autoscaler.nouns import WorkerLoad
from paceline_autoscaler.signals.streams import ReportStreams
from paceline_core.errors import InvalidInput
from paceline_core.kube import Endpoint, ServiceEndpoints
from paceline_core.wire import LoadReport, WorkerState
from paceline_core.wire.stream import StreamClient, StreamSource

SILENCE_S = 12.0
OnLoad = Callable[[str, str, LoadReport], None]


class WorkerLoads:
    """Load reports of every worker of every service; `on_load` gets each line, with the service and the worker.

    Both are those of the list of workers: what a worker calls itself is believed of nobody else.
    """

    def __init__(self, link: StreamClient, on_load: OnLoad = lambda _service, _worker, _report: None) -> None:
        self._streams = ReportStreams(LoadReport, link, self._on_line)
        self._on_load = on_load

    def follow(self, services: Iterable[ServiceEndpoints]) -> None:
        """These are the workers now; who has no address yet cannot be heard."""
        self._streams.follow(_place(str(item.service), e) for item in services for e in item.endpoints if e.host)

    def loads(self, service: str) -> dict[str, WorkerLoad]:
        """Loads by worker, of those that are ready and have said so lately."""
        fresh = self._streams.fresh(SILENCE_S).items()
        prefix = f"{service}/"
        found = {name.removeprefix(prefix): load_of(report) for name, report in fresh if name.startswith(prefix)}
        return {name: load for name, load in found.items() if load is not None}

    def _on_line(self, place: StreamSource, report: LoadReport) -> None:
        service = place.audience
        if report.service != service:
            raise InvalidInput("service", f"{report.service!r} answers where {service!r} should be")
        self._on_load(service, place.name.removeprefix(f"{service}/"), report)

    async def close(self) -> None:
        """Close the streams."""
        await self._streams.close()


def load_of(report: LoadReport) -> WorkerLoad | None:
    """What policies read of a report; None from a worker that is not ready or does not know its speed yet."""
    step = report.step_time
    if report.state is not WorkerState.READY or report.kv.total <= 0 or step.base + step.prefill <= 0:
        return None
    return WorkerLoad(
        worker=report.worker,
        slots=report.slots,
        running=report.running,
        waiting=sum(report.waiting.values()),
        queued_tokens=sum(report.queued_tokens.values()),
        kv_tokens=report.kv.total * report.kv.page_tokens,
        kv_used=max(1 - (report.kv.free + report.kv.cached) / report.kv.total, 0.0),
        step_time=step,
    )


def _place(service: str, endpoint: Endpoint) -> StreamSource:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return StreamSource(f"{service}/{endpoint.name}", f"http://{host}:{endpoint.port}/internal/load", service)
