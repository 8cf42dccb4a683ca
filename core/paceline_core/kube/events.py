"""Kubernetes Events, aggregated and rate-limited: `record` only stores them, one task writes.

`record` never raises and never waits. A write without an answer is repeated at the series' pace; a refused one is
logged, at most once a second, and dropped. The task starts with the first event and ends with `close`.

One Event object is a series: object, type, reason, message without numbers. A series' first occurrence is due at once;
later ones only raise its count, written with the newest message at most every `GAP_S`. Writes about one object share
one bucket (client-go's: 25 at once, one more each five minutes), so a failure that repeats forever costs next to
nothing. Invariant: at most `SERIES` series and as many buckets are kept; beyond that the least recent one is dropped,
with its unwritten count.
"""

import asyncio
import contextlib
import re
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from paceline_core.clock import Clock, rfc3339
from paceline_core.errors import Conflict, Forbidden, NotFound, PacelineError, Unauthorized, Unreachable
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Event, Manifest, ObjectKey
from paceline_core.process import cancel
from paceline_core.telemetry import get_logger
from paceline_core.units import truncate

BURST: Final = 25
REFILL_S: Final = 300.0
GAP_S: Final = 10.0
SERIES: Final = 1024
_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")

SeriesKey = tuple[str, ObjectKey, str, str, str]


@dataclass(frozen=True, slots=True)
class Series:
    """One Event object: the newest occurrence, the count, and what is written. `name` is empty until it exists."""

    event: Event
    first: datetime
    last: datetime
    count: int = 1
    name: str = ""
    written: int = 0
    tried_at: float | None = None


@dataclass(frozen=True, slots=True)
class EventBudget:
    tokens: float
    at: float

    def filled(self, now: float) -> "EventBudget":
        return EventBudget(min(float(BURST), self.tokens + (now - self.at) / REFILL_S), now)


class EventCorrelator:
    """`note` each event, write what is `due`, report each write with `done`."""

    def __init__(self) -> None:
        self._series: OrderedDict[SeriesKey, Series] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, ObjectKey], EventBudget] = OrderedDict()

    def note(self, event: Event, utc: datetime) -> None:
        key = series_key(event)
        known = self._series.get(key)
        self._series[key] = (
            replace(known, event=event, last=utc, count=known.count + 1) if known else Series(event, utc, utc)
        )
        self._series.move_to_end(key)
        if len(self._series) > SERIES:
            self._series.popitem(last=False)

    def due(self, now: float) -> list[tuple[SeriesKey, Series]]:
        """The series to write now; each takes a token from its object's bucket."""
        ripe = (
            (key, series)
            for key, series in self._unwritten()
            if series.tried_at is None or now - series.tried_at >= GAP_S
        )
        return [(key, series) for key, series in ripe if self._spend(key, now)]

    def wait(self, now: float) -> float | None:
        """Seconds until a series may be due, as far as known; None when everything is written."""
        waits = []
        for key, series in self._unwritten():
            ripe = 0.0 if series.tried_at is None else max(0.0, series.tried_at + GAP_S - now)
            waits.append(max(ripe, (1 - self._bucket(key, now).tokens) * REFILL_S))
        return min(waits, default=None)

    def done(self, key: SeriesKey, name: str, count: int, now: float, *, accepted: bool = True) -> None:
        """A write was tried: the object `name` now has `count` occurrences; the name is empty while there is no object.

        A write that the server did not accept returns its token, so that events continue once it accepts them again.
        """
        if not accepted:
            bucket = self._bucket(key, now)
            self._buckets[key[:2]] = replace(bucket, tokens=min(float(BURST), bucket.tokens + 1))
        if key in self._series:
            self._series[key] = replace(self._series[key], name=name, written=count, tried_at=now)

    def _unwritten(self) -> Iterator[tuple[SeriesKey, Series]]:
        return ((key, series) for key, series in self._series.items() if series.count > series.written)

    def _spend(self, key: SeriesKey, now: float) -> bool:
        bucket = self._bucket(key, now)
        enough = bucket.tokens >= 1
        self._buckets[key[:2]] = replace(bucket, tokens=bucket.tokens - enough)
        self._buckets.move_to_end(key[:2])
        if len(self._buckets) > SERIES:
            self._buckets.popitem(last=False)
        return enough

    def _bucket(self, key: SeriesKey, now: float) -> EventBudget:
        return self._buckets.get(key[:2], EventBudget(float(BURST), now)).filled(now)


def series_key(event: Event) -> SeriesKey:
    return event.kind, event.key, event.type, event.reason, _NUMBER.sub("#", event.message)


EVENT: Final = RESOURCES["Event"]
MESSAGE_LIMIT: Final = 1024
CLOSE_LIMIT_S: Final = 2.0
UidOf = Callable[[str, ObjectKey], Awaitable[str]]
_log = get_logger(__name__)


class EventRecorder:
    """Events for `kubectl describe`. `component` is the reporter; `uid_of` finds an object's uid, or ""."""

    def __init__(self, api: KubeClient, component: str, clock: Clock, uid_of: UidOf | None = None) -> None:
        self._api = api
        self._component = component
        self._clock = clock
        self._uid_of = uid_of or self._uid_by_get
        self._book = EventCorrelator()
        self._noted = asyncio.Event()
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def record(self, event: Event) -> None:
        self._book.note(event, self._clock.utc())
        self._noted.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def flush(self) -> None:
        async with self._writing:
            for key, series in self._book.due(self._clock.monotonic()):
                await self._write(key, series)

    async def close(self) -> None:
        if self._task is None:
            return
        await cancel(self._task)
        self._task = None
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self.flush()
        except TimeoutError:
            _log.info("some events were not written before the end")

    async def _run(self) -> None:
        while True:
            self._noted.clear()
            await self.flush()
            delay = self._book.wait(self._clock.monotonic())
            try:
                async with asyncio.timeout(delay):
                    await self._noted.wait()
            except TimeoutError:
                continue

    async def _write(self, key: SeriesKey, series: Series) -> None:
        name, written, accepted = series.name, series.count, True
        try:
            name = await self._put(series)
        except NotFound:
            _log.debug("an event's object is gone", extra={"object": str(series.event.key)})
        except PacelineError as error:
            written = series.written if isinstance(error, Unreachable) else series.count
            accepted = not isinstance(error, Forbidden | Unauthorized)
            left_out = self._api.sparse.admit("event")
            if left_out is not None:
                fields = {
                    "object": str(series.event.key),
                    "reason": series.event.reason,
                    "error": str(error),
                    "left_out": left_out,
                }
                _log.warning("an event is not written", extra=fields)
        self._book.done(key, name, written, self._clock.monotonic(), accepted=accepted)

    async def _put(self, series: Series) -> str:
        if series.name:
            with contextlib.suppress(NotFound):  # the server deletes events after an hour
                await self._api.merge(EVENT, ObjectKey(_namespace(series.event.key), series.name), _news(series))
                return series.name
        event = series.event
        # two series of one object may begin in the same microsecond
        mark = zlib.crc32(f"{event.type} {event.reason} {event.message}".encode()) & 0xFFFF
        name = f"{event.key.name[:200]}.{int(series.first.timestamp() * 1e6):x}{mark:04x}"
        body = _manifest(series, name, self._component, await self._uid_of(event.kind, event.key))
        with contextlib.suppress(Conflict):  # an earlier attempt succeeded and its answer was lost
            await self._api.create(EVENT, _namespace(event.key), body)
        return name

    async def _uid_by_get(self, kind: str, key: ObjectKey) -> str:
        if kind not in RESOURCES:
            return ""
        found = await self._api.get(RESOURCES[kind], key)
        return str(found["metadata"]["uid"])


def _manifest(series: Series, name: str, component: str, uid: str) -> Manifest:
    event = series.event
    resource = RESOURCES.get(event.kind)
    about = {"kind": event.kind, "namespace": event.key.namespace, "name": event.key.name, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "annotations": {f"paceline.dev/{name}": text for name, text in event.extra.items()}},
        "involvedObject": {**about, "apiVersion": resource.api_version if resource else ""},
        "type": event.type,
        "reason": event.reason,
        "firstTimestamp": rfc3339(series.first),
        "source": {"component": component},
        "reportingComponent": component,
        **_news(series),
    }


def _news(series: Series) -> Manifest:
    message = truncate(series.event.message, MESSAGE_LIMIT)
    return {"message": message, "count": series.count, "lastTimestamp": rfc3339(series.last)}


def _namespace(key: ObjectKey) -> str:
    """Events about cluster-scoped objects are in `default`."""
    return key.namespace or "default"
