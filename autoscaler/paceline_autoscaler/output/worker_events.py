"""Workers and engines that ended, and pods that were lost, as Events. Pure.

What the list of workers shows now is compared with what it showed before: more restarts, a disruption, a failed pod, or
a worker that vanished without having been told to end. An engine's end is told by its worker's own load stream. Each
end is told once; the recorder of Events counts those that repeat and bounds what is written about one service.

A deletion by force (`kubectl delete pod --force`) shows as terminating with no grace period at once, where a
scale-down, a rollout or a plain deletion leaves the time to drain; a kubelet shortens that to nothing only at the end,
so what counts is the first order to end. Holes: a pod that is forced while it drains, and a plain deletion by hand, are
not told; nor is what ended while nobody led, or while the watch was lost.

Requests that gateways have isolated, as Events: each once. Pure.

A gateway says its last few in every line, so that a lost line loses none. What a line brings that its gateway's line
before did not have is news; so is, of a gateway that is heard for the first time, what is younger than FRESH_S. Hole:
an autoscaler that takes the lease over in between tells nothing of what its predecessor had heard and not told.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from paceline_core.kube import Deleted, Endpoint, Event, Listed, ObjectKey, ServiceEndpoints, Upserted
from paceline_core.kube.cluster import WatchEvent
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_core.wire import DemandReport, Isolated, LoadReport

WAITING = 64
"""Events not told yet, over all services; older ones are dropped."""
GRACEFUL = ("EvictionByEvictionAPI", "PreemptionByScheduler")
"""Disruptions that let a worker finish its streams."""


class EndedWorkers:
    """Events that are to be written; `take` empties it."""

    def __init__(self) -> None:
        self._engines: dict[tuple[str, str], int] = {}
        self._waiting: deque[Event] = deque(maxlen=WAITING)

    def on_workers(self, event: WatchEvent[ServiceEndpoints], known: Mapping[ObjectKey, ServiceEndpoints]) -> None:
        """One event of the watch on workers; `known` is what was known before it."""
        match event:
            case Upserted(now):
                self._compare(known.get(now.service), now)
            case Deleted(last):
                self._compare(known.get(last.service), ServiceEndpoints(last.service, ()))
            case Listed(items):
                alive = {(str(item.service), worker.name) for item in items for worker in item.endpoints}
                self._engines = {place: count for place, count in self._engines.items() if place in alive}

    def on_load(self, service: str, worker: str, report: LoadReport) -> None:
        """A line of a worker's load stream."""
        place, count = (service, worker), report.engine_restarts
        if count > self._engines.get(place, count):
            said = f"The engine of worker {worker} ended and another one was started; see its log."
            self._waiting.append(Event(INFERENCE_SERVICE, ObjectKey.parse(service), "Warning", "EngineEnded", said))
        self._engines[place] = count

    def _compare(self, before: ServiceEndpoints | None, now: ServiceEndpoints) -> None:
        if before is None:
            return
        self._waiting.extend(termination_events(before, now))
        for name in {worker.name for worker in before.endpoints} - {worker.name for worker in now.endpoints}:
            self._engines.pop((str(now.service), name), None)

    def take(self) -> list[Event]:
        """Take the Events that wait."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting


def termination_events(before: ServiceEndpoints, after: ServiceEndpoints) -> Iterator[Event]:
    """Events of the workers that were there before."""
    there = {worker.name: worker for worker in after.endpoints}
    failed = {worker.name: worker for worker in after.failed}
    for old in before.endpoints:
        new = there.get(old.name)
        if new is not None:
            yield from _of_one(before.service, old, new)
        elif not old.terminating and not old.disruption and (old.host or old.name in failed):
            yield _lost(before.service, old, _why(failed.get(old.name)))


def _of_one(service: ObjectKey, old: Endpoint, new: Endpoint) -> Iterator[Event]:
    if new.force_deleted and not old.terminating and not new.disruption and old.host:
        yield _lost(service, new, "its pod was deleted by force, without time to finish its streams")
    if new.restarts > old.restarts:
        why = f" ({new.ended})" if new.ended else ""
        said = f"Worker {new.name} of pool {new.pool} ended{why} and is started again; restart {new.restarts}."
        yield Event(INFERENCE_SERVICE, service, "Warning", "WorkerEnded", said)
    if new.disruption and not old.disruption:
        graceful = new.disruption.startswith(GRACEFUL)
        said = f"Worker {new.name} of pool {new.pool} is taken away ({new.disruption})"
        end = "; it finishes its streams." if graceful else "."
        yield Event(INFERENCE_SERVICE, service, "Normal" if graceful else "Warning", "WorkerEvicted", f"{said}{end}")


def _why(failed: Endpoint | None) -> str:
    return "its pod was removed without being told to end" if failed is None else failed.disruption or failed.ended


def _lost(service: ObjectKey, old: Endpoint, why: str) -> Event:
    said = f"Worker {old.name} of pool {old.pool} is lost{f' ({why})' if why else ''}."
    return Event(INFERENCE_SERVICE, service, "Warning", "WorkerLost", said)


FRESH_S = 60.0
"""Not told yet, over all services; older ones are dropped."""
GATEWAYS = 1024
"""Remembered, replaced pods among them; the one that was heard least lately is forgotten first."""
Told = tuple[str, Isolated]


class IsolationEvents:
    """Isolations by gateway; `waiting` are those that no Event tells of yet."""

    def __init__(self) -> None:
        self._heard: dict[str, frozenset[Told]] = {}
        self.waiting: deque[Told] = deque(maxlen=WAITING)

    def on(self, report: DemandReport, now: datetime) -> bool:
        """Take one line; whether it has news."""
        told = frozenset((service.service, each) for service in report.services for each in service.isolated)
        before = self._heard.pop(report.gateway, None)
        news = [each for each in told if _fresh(each[1], now)] if before is None else told - before
        self._heard[report.gateway] = told
        if len(self._heard) > GATEWAYS:
            del self._heard[next(iter(self._heard))]
        self.waiting.extend(sorted(news, key=lambda each: each[1].at))
        return bool(news)

    def take(self) -> list[Told]:
        """Take those that wait to be told."""
        waiting = list(self.waiting)
        self.waiting.clear()
        return waiting


def event(service: str, told: Isolated) -> Event:
    """The Event of one isolation."""
    who = f"Request {told.request} of tenant {told.tenant}"
    message = f"{who} is isolated: two workers died of it, the last one {told.worker}."
    extra = {"tenant": told.tenant, "request-id": told.request}
    return Event(INFERENCE_SERVICE, ObjectKey.parse(service), "Warning", "RequestIsolated", message, extra)


def _fresh(told: Isolated, now: datetime) -> bool:
    try:
        at = datetime.fromisoformat(told.at)
    except ValueError:
        return False
    return at.tzinfo is not None and now - at <= timedelta(seconds=FRESH_S)
