"""The services that this gateway knows, and the dispatch of their waiting requests.

Invariant: every event that frees or adds room at a worker calls `dispatch`, so no request waits beside an idle worker.
The registry reports to the open requests through `RequestListener`; it never reads them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from paceline_core.auth import Signer
from paceline_core.clock import Clock
from paceline_core.errors import Code, RequestError
from paceline_core.kube import Endpoint
from paceline_core.registry.enums import FallbackReason, RequestClass
from paceline_core.telemetry import Metrics
from paceline_core.wire import LoadReport
from paceline_core.wire.stream import (
    ReportStreams,
    StreamClient,
    StreamSource,
    check_service,
    stream_client,
    worker_source,
)
from paceline_gateway.config import HttpLimits
from paceline_gateway.queueing.fair_queue import FairQueue
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.request.prompt_size import PromptSize
from paceline_gateway.routing.config_snapshot import NOTHING, ConfigSnapshot
from paceline_gateway.routing.model_lookup import Destination, DestinationLoad, When, choose, degraded
from paceline_gateway.routing.policies import RoutingPolicy
from paceline_gateway.routing.worker import Worker
from paceline_gateway.services.demand_report import ChangeNotifier
from paceline_gateway.services.service_state import ServiceState
from paceline_gateway.services.worker_deaths import WorkerDeaths
from paceline_gateway.telemetry.service_metrics import ServiceMetrics, forget

RETRY_S = 1.0


class RequestListener(Protocol):
    """The open requests, as the services report to them."""

    def on_assigned(self, queued: QueuedRequest, worker: Worker) -> None:
        """A worker has room for a waiting request."""
        ...

    def on_expired(self, queued: QueuedRequest) -> None:
        """A waiting request is past its deadline."""
        ...

    def on_cleared(self, suspects: Iterable[str]) -> None:
        """A worker reports that these suspects have made progress."""
        ...

    def on_classes_changed(self) -> None:
        """A service's classes or SLOs changed."""
        ...

    def on_deleted(self, service: ServiceState, error: RequestError) -> None:
        """A service is gone."""
        ...

    def on_config_changed(self) -> None:
        """Keys, tenants, routes or services changed."""
        ...


class ServiceRegistry:
    """`follow` opens and closes the load streams of a service's workers; `policy` makes a service's routing policy."""

    listener: RequestListener

    def __init__(  # noqa: PLR0913, PLR0917 - the parts that a registry uses
        self,
        limits: HttpLimits,
        now: Callable[[], float],
        metrics: Metrics,
        follow: Callable[[str, tuple[Endpoint, ...]], None],
        policy: Callable[[], RoutingPolicy],
        deaths: WorkerDeaths,
    ) -> None:
        self.services: dict[str, ServiceState] = {}
        self.snapshot: ConfigSnapshot = NOTHING
        self.version = 0
        """The number of the snapshot, which identifies it without a reference to it."""
        self.changes = ChangeNotifier()
        self.deaths = deaths
        self._limits = limits
        self._now = now
        self._metrics = metrics
        self._follow = follow
        self._policy = policy
        self._endpoints: dict[str, tuple[Endpoint, ...]] = {}
        self._held: set[str] = set()

    def dispatch(self, service: ServiceState) -> None:
        """Send waiting requests to workers with room, and end those past their deadline.

        A call from within starts another round here; it does not nest.
        """
        dispatcher = service.dispatcher
        if not dispatcher.requests.total:
            self._held.discard(service.key)
        elif dispatcher.run(self._now, self.listener.on_assigned, self.listener.on_expired):
            self._note_held(service)

    def choose(
        self, chain: Sequence[Destination], name: RequestClass, size: int, prompt: PromptSize
    ) -> Sequence[Destination]:
        """The part of a chain that a request follows; a diverted request is demand for the first destination too.

        Where a service is under pressure, other destinations that serve no less go before its degradation.
        """
        ((when, load),), place = self.loads(chain[:1], name, size, prompt), 0
        if self._degrades(chain[0], name):
            load = max(load, DestinationLoad.OVERLOADED)
        if load is not DestinationLoad.OPEN and len(chain) > 1:
            place = choose([(when, load), *self.loads(chain[1:], name, size, prompt)])
        if place:
            self.services[chain[0].service.key].diverted(name, prompt, FallbackReason(load.name.lower()))
        rest = chain[place:]
        return self._degrade(rest, name, size, prompt) if self._degrades(rest[0], name) else rest

    def _degrades(self, destination: Destination, name: RequestClass) -> bool:
        less, service = destination.degradation, self.services.get(destination.service.key)
        return less is not None and service is not None and service.degrades(name, less.trigger, less.after_s)

    def _degrade(
        self, chain: Sequence[Destination], name: RequestClass, size: int, prompt: PromptSize
    ) -> Sequence[Destination]:
        """The chain with less at its first destination, whose service is under pressure."""
        model = None if chain[0].degradation is None else chain[0].degradation.model
        smaller = model is not None and self._can_stand_in(model, name, size, prompt)
        if smaller:
            self.services[chain[0].service.key].diverted(name, prompt, FallbackReason.DEGRADED)
        return degraded(chain, smaller=smaller)

    def _can_stand_in(self, model: Destination, name: RequestClass, size: int, prompt: PromptSize) -> bool:
        """Whether a smaller model keeps its own promise with one more request, and has the context for it."""
        service = self.services.get(model.service.key)
        open_ = self.loads((model,), name, size, prompt)[0][1] is DestinationLoad.OPEN
        return open_ and service is not None and service.fits(prompt)

    def loads(
        self, chain: Sequence[Destination], name: RequestClass, size: int, prompt: PromptSize
    ) -> list[tuple[When, DestinationLoad]]:
        """How each destination would take one more request; a deleted service is unavailable."""
        now = self._now()
        found = ((destination.when, self.services.get(destination.service.key)) for destination in chain)
        return [
            (when, DestinationLoad.UNAVAILABLE if service is None else service.load(name, size, prompt, now))
            for when, service in found
        ]

    def queues(self) -> dict[str, FairQueue]:
        """Every queue, by service and class."""
        return {
            f"{key} {name}": queue
            for key, service in self.services.items()
            for name, queue in service.dispatcher.queues.items()
        }

    def on_snapshot(self, snapshot: ConfigSnapshot) -> None:
        """The cluster's objects changed: add, update and delete services."""
        self.snapshot = snapshot
        self.version += 1
        for key in self.services.keys() - snapshot.services.keys():
            service = self.services.pop(key)
            self._held.discard(key)
            self._follow(key, ())
            error = RequestError(Code.NO_CAPACITY, "The model's service was deleted.", retry_after=RETRY_S)
            self.listener.on_deleted(service, error)
            forget(self._metrics, service.spec.namespace, service.spec.name)
        for key, spec in snapshot.services.items():
            known = self.services.get(key)
            if known is None:
                series = ServiceMetrics(self._metrics, spec)
                self.services[key] = ServiceState(spec, series, self._limits, self._policy())
                self.on_workers(key, self._endpoints.get(key, ()))
            elif known.spec != spec:
                if known.spec.classes != spec.classes:
                    forget(self._metrics, spec.namespace, spec.name, targets_only=True)
                    known.series = ServiceMetrics(self._metrics, spec)
                    self.listener.on_classes_changed()
                known.spec = spec
        self.listener.on_config_changed()

    def on_workers(self, key: str, endpoints: tuple[Endpoint, ...]) -> None:
        if endpoints:
            self._endpoints[key] = endpoints
        else:
            self._endpoints.pop(key, None)
        service = self.services.get(key)
        if service is not None:
            self._follow(key, endpoints)
            service.pool.update(endpoints)
            self.dispatch(service)

    def on_report(self, key: str, worker: str, report: LoadReport) -> None:
        service = self.services.get(key)
        if service is not None:
            known = service.pool.workers.get(worker)
            reconnected = known is not None and not known.connected
            service.pool.on_report(worker, report, self._now())
            if reconnected and known is not None:
                self.deaths.heard(known)
            if report.cleared:
                self.listener.on_cleared(report.cleared)
            self.dispatch(service)

    def on_disconnect(self, key: str, worker: str, *, refused: bool = False) -> None:
        """A worker's load stream broke; `refused`: its port refuses connections."""
        service = self.services.get(key)
        if service is not None:
            service.pool.disconnected(worker)
            if refused and (known := service.pool.workers.get(worker)) is not None:
                self.deaths.refused(service, known)
            self._note_held(service)

    def show(self, now: float) -> None:
        for service in self.services.values():
            service.show(now)
        self._metrics.gauge("paceline_demand_subscribers").set(self.changes.readers)

    def _note_held(self, service: ServiceState) -> None:
        """Report demand at once when requests begin to wait for a first worker."""
        key, held = service.key, service.dispatcher.held(self._now()) > 0
        if held and key not in self._held:
            self._held.add(key)
            self.changes.notify()
        elif not held:
            self._held.discard(key)


SILENCE_S = 15.0


class LoadReportStreams:
    """`GET /internal/load` of each worker, kept open. Set `listener` before the first `follow`, which calls it."""

    def __init__(self, signer: Signer, clock: Clock) -> None:
        self.listener: ServiceRegistry
        self._http = stream_client(SILENCE_S)
        client = StreamClient(self._http, signer, clock)
        self._streams = ReportStreams(LoadReport, client, self._on_report, self._on_disconnect)

    def follow(self, service: str, endpoints: Iterable[Endpoint]) -> None:
        """Follow exactly these workers of a service; one without an address is skipped until it has one."""
        sources = (worker_source(service, e.name, e.host, e.port) for e in endpoints if e.host)
        self._streams.follow(sources, audience=service)

    async def close(self) -> None:
        await self._streams.close()
        await self._http.aclose()

    def _on_report(self, source: StreamSource, report: LoadReport) -> None:
        check_service(source, report)
        self.listener.on_report(source.audience, source.name, report)

    def _on_disconnect(self, source: StreamSource, refused: bool) -> None:
        self.listener.on_disconnect(source.audience, source.name, refused=refused)
