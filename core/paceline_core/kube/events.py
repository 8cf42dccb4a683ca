"""Kubernetes Events, aggregated and rate-limited: `record` only notes, one task writes (see `series`).

Never raises and never waits. What the server did not take for want of an answer is tried again at the series' pace;
what it refuses is logged, at most once a second, and left. The task starts with the first event and ends with `close`.
"""

import asyncio
import contextlib
import zlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from paceline_core.clock import Clock
from paceline_core.errors import Conflict, Forbidden, NotFound, PacelineError, Unauthorized, Unreachable
from paceline_core.kube.api.resource import RESOURCES
from paceline_core.kube.api.server import KubeClient
from paceline_core.kube.cluster import Event, Manifest, ObjectKey
from paceline_core.kube.series import EventCorrelator, Series, SeriesKey
from paceline_core.tasks import cancel
from paceline_core.telemetry import get_logger

EVENT: Final = RESOURCES["Event"]
MESSAGE_LIMIT: Final = 1024
CLOSE_LIMIT_S: Final = 2.0
UidOf = Callable[[str, ObjectKey], Awaitable[str]]
_log = get_logger(__name__)


class EventRecorder:
    """Events as seen by `kubectl describe`. `component` is the reporter; `uid_of` finds an object's uid, or ""."""

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
        """Note that it happened."""
        self._book.note(event, self._clock.utc())
        self._noted.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def flush(self) -> None:
        """Write what is due now."""
        async with self._writing:
            for key, series in self._book.due(self._clock.monotonic()):
                await self._write(key, series)

    async def close(self) -> None:
        """Write what is due, within a limit, and stop."""
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
            self._say(series.event, error)
        self._book.done(key, name, written, self._clock.monotonic(), accepted=accepted)

    async def _put(self, series: Series) -> str:
        if series.name:
            with contextlib.suppress(NotFound):  # the server keeps events for an hour
                await self._api.merge(EVENT, ObjectKey(_namespace(series.event.key), series.name), _news(series))
                return series.name
        return await self._create(series)

    async def _create(self, series: Series) -> str:
        event = series.event
        name = f"{event.key.name[:200]}.{int(series.first.timestamp() * 1e6):x}{_mark(series):04x}"
        body = _manifest(series, name, self._component, await self._uid_of(event.kind, event.key))
        with contextlib.suppress(Conflict):  # an earlier try was carried out and its answer lost
            await self._api.create(EVENT, _namespace(event.key), body)
        return name

    async def _uid_by_get(self, kind: str, key: ObjectKey) -> str:
        if kind not in RESOURCES:
            return ""
        found = await self._api.get(RESOURCES[kind], key)
        return str(found["metadata"]["uid"])

    def _say(self, event: Event, error: PacelineError) -> None:
        left_out = self._api.sparse.admit("event")
        if left_out is not None:
            fields = {"object": str(event.key), "reason": event.reason, "error": str(error), "left_out": left_out}
            _log.warning("an event is not written", extra=fields)


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
        "firstTimestamp": _time(series.first),
        "source": {"component": component},
        "reportingComponent": component,
        **_news(series),
    }


def _news(series: Series) -> Manifest:
    message = series.event.message
    short = message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…"
    return {"message": short, "count": series.count, "lastTimestamp": _time(series.last)}


def _namespace(key: ObjectKey) -> str:
    """Events about cluster-scoped objects stand in `default`."""
    return key.namespace or "default"


def _mark(series: Series) -> int:
    """Tells two series of one object that began in the same microsecond apart."""
    event = series.event
    return zlib.crc32(f"{event.type} {event.reason} {event.message}".encode()) & 0xFFFF


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
