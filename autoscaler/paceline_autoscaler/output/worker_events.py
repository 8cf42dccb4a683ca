"""Events about workers and requests: ended workers and engines, lost pods, isolated requests. Pure.

It compares the list of workers with the previous one: more restarts, a disruption, a failed pod, or a worker that
vanished without an order to end. A worker's load stream reports the end of its engine. Each end is reported once; the
recorder of Events counts repeated ones and bounds what is written about one service.

A forced deletion (`kubectl delete pod --force`) shows as terminating with no grace period at once, while a scale-down,
a rollout or a plain deletion leaves time to drain; a kubelet shortens that to nothing only at the end, so the first
order to end counts. Holes: a pod that is forced while it drains, and a plain deletion by hand, are not reported; nor is
an end while there was no leader, or while the watch was lost.

A gateway repeats its last few isolated requests in every line, so that a lost line loses none. New are those that the
gateway's previous line did not have; for a gateway seen for the first time, those younger than FRESH_S. Hole: an
autoscaler that takes over the lease reports nothing that its predecessor had received but not reported.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from paceline_core.kube import Deleted, Endpoint, Event, Listed, ObjectKey, ServiceEndpoints, Upserted
from paceline_core.kube.cluster import WatchEvent
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_core.wire import DemandReport, Isolated, LoadReport

WAITING = 64
"""Pending Events over all services; older ones are dropped."""
GRACEFUL = ("EvictionByEvictionAPI", "PreemptionByScheduler")
"""Disruptions that let a worker finish its streams."""


class EndedWorkers:
    """The pending Events; `take` returns and removes them."""

    def __init__(self) -> None:
        self._engines: dict[tuple[str, str], int] = {}
        self._waiting: deque[Event] = deque(maxlen=WAITING)

    def on_workers(self, event: WatchEvent[ServiceEndpoints], known: Mapping[ObjectKey, ServiceEndpoints]) -> None:
        """Process one event of the watch on workers; `known` is the state before it."""
        match event:
            case Upserted(now):
                self._compare(known.get(now.service), now)
            case Deleted(last):
                self._compare(known.get(last.service), ServiceEndpoints(last.service, ()))
            case Listed(items):
                alive = {(str(item.service), worker.name) for item in items for worker in item.endpoints}
                self._engines = {place: count for place, count in self._engines.items() if place in alive}

    def on_load(self, service: str, worker: str, report: LoadReport) -> None:
        place, count = (service, worker), report.engine_restarts
        if count > self._engines.get(place, count):
            message = f"The engine of worker {worker} ended and another one was started; see its log."
            self._waiting.append(Event(INFERENCE_SERVICE, ObjectKey.parse(service), "Warning", "EngineEnded", message))
        self._engines[place] = count

    def _compare(self, before: ServiceEndpoints | None, now: ServiceEndpoints) -> None:
        if before is None:
            return
        self._waiting.extend(termination_events(before, now))
        for name in {worker.name for worker in before.endpoints} - {worker.name for worker in now.endpoints}:
            self._engines.pop((str(now.service), name), None)

    def take(self) -> list[Event]:
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting


def termination_events(before: ServiceEndpoints, after: ServiceEndpoints) -> Iterator[Event]:
    """Events of the workers in the previous list."""
    there = {worker.name: worker for worker in after.endpoints}
    failed = {worker.name: worker for worker in after.failed}
    for old in before.endpoints:
        new = there.get(old.name)
        if new is not None:
            yield from _of_one(before.service, old, new)
        elif not old.terminating and not old.disruption and (old.host or old.name in failed):
            pod = failed.get(old.name)
            why = pod.disruption or pod.ended if pod else "its pod was removed without an order to end"
            yield _lost(before.service, old, why)


def _of_one(service: ObjectKey, old: Endpoint, new: Endpoint) -> Iterator[Event]:
    if new.force_deleted and not old.terminating and not new.disruption and old.host:
        yield _lost(service, new, "its pod was deleted by force, without time to finish its streams")
    if new.restarts > old.restarts:
        why = f" ({new.ended})" if new.ended else ""
        message = f"Worker {new.name} of pool {new.pool} ended{why} and is started again; restart {new.restarts}."
        yield Event(INFERENCE_SERVICE, service, "Warning", "WorkerEnded", message)
    if new.disruption and not old.disruption:
        graceful = new.disruption.startswith(GRACEFUL)
        message = f"Worker {new.name} of pool {new.pool} is taken away ({new.disruption})"
        end = "; it finishes its streams." if graceful else "."
        yield Event(INFERENCE_SERVICE, service, "Normal" if graceful else "Warning", "WorkerEvicted", f"{message}{end}")


def _lost(service: ObjectKey, old: Endpoint, why: str) -> Event:
    message = f"Worker {old.name} of pool {old.pool} is lost{f' ({why})' if why else ''}."
    return Event(INFERENCE_SERVICE, service, "Warning", "WorkerLost", message)


FRESH_S = 60.0
GATEWAYS = 1024
"""The most gateways that are remembered, including replaced pods; the one with the oldest report is dropped first."""
Isolation = tuple[str, Isolated]


class IsolationEvents:
    """Isolated requests by gateway; `waiting` are those without an Event yet."""

    def __init__(self) -> None:
        self._reported: dict[str, frozenset[Isolation]] = {}
        self.waiting: deque[Isolation] = deque(maxlen=WAITING)

    def on(self, report: DemandReport, now: datetime) -> bool:
        """Process one line; returns whether it has news."""
        reported = frozenset((service.service, each) for service in report.services for each in service.isolated)
        before = self._reported.pop(report.gateway, None)
        news = [each for each in reported if _fresh(each[1], now)] if before is None else reported - before
        self._reported[report.gateway] = reported
        if len(self._reported) > GATEWAYS:
            del self._reported[next(iter(self._reported))]
        self.waiting.extend(sorted(news, key=lambda each: each[1].at))
        return bool(news)

    def take(self) -> list[Isolation]:
        waiting = list(self.waiting)
        self.waiting.clear()
        return waiting


def isolation_event(service: str, isolated: Isolated) -> Event:
    request = f"Request {isolated.request} of tenant {isolated.tenant}"
    message = f"{request} is isolated: two workers died of it, the last one {isolated.worker}."
    extra = {"tenant": isolated.tenant, "request-id": isolated.request}
    return Event(INFERENCE_SERVICE, ObjectKey.parse(service), "Warning", "RequestIsolated", message, extra)


def _fresh(isolated: Isolated, now: datetime) -> bool:
    try:
        at = datetime.fromisoformat(isolated.at)
    except ValueError:
        return False
    return at.tzinfo is not None and now - at <= timedelta(seconds=FRESH_S)
