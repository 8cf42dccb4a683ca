"""A watch that never ends: list, follow, and after every error list again.

One round lists every namespace, yields one Listed of everything, then follows one stream for each namespace from its
list's version. A stream that the server ends cleanly (every five minutes), or that is silent for long, continues from
the last version received with a new request, which fails if the server is gone. Any error ends the whole round:
WatchLost once, back-off, next round. An expired version (410, as a status or as an ERROR event) only causes a new
round, unless it occurs twice in a row. No state is kept between rounds, so the reader's state cannot diverge.
Invariant: between two WatchLost there is a Listed. Known hole: with several namespaces an error in one lists all again.

Liveness: a refusal (401, 403) is an answer too. The state ages, but a new process would be refused as well. So `age`
grows during refusals and `silence`, which restarts a process, does not. With permission to list but not to watch, the
kind is polled at the longest back-off; the log names such an outage once, until a stream opens.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any, Final

import orjson

from paceline_core.clock import Clock, SystemClock
from paceline_core.errors import ApiError, Forbidden, PacelineError, Unauthorized, Unreachable
from paceline_core.kube.client.client import KubeClient, unchanged
from paceline_core.kube.client.errors import api_error
from paceline_core.kube.client.resource import Resource
from paceline_core.kube.cluster import Deleted, Listed, Manifest, Upserted, WatchEvent, WatchLost
from paceline_core.process import cancel
from paceline_core.telemetry import get_logger


class WatchLiveness:
    """Stamped on every byte of a watch, bookmarks and the heads of answers included: at least once in each
    `ClientTimeouts.silence`."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self.name = name
        self._clock = clock or SystemClock()
        self._last = self._answered = self._clock.monotonic()

    def stamp(self) -> None:
        self._last = self._answered = self._clock.monotonic()

    def refused(self) -> None:
        """The API server answered that the watch is not allowed."""
        self._answered = self._clock.monotonic()

    def age(self, now: float) -> float:
        return now - self._last

    def silence(self, now: float) -> float:
        """Seconds since the last byte or refusal."""
        return now - self._answered


def oldest(pulses: Iterable[WatchLiveness], now: float) -> tuple[str, float]:
    """The watch that was silent longest, and for how long; `("", 0)` if there is none."""
    ages = [(pulse.age(now), pulse.name) for pulse in pulses]
    age, name = max(ages, default=(0.0, ""))
    return name, age


LINE_LIMIT: Final = 32 << 20


class LineBuffer:
    """Splits chunks into lines, copying each byte once. Invariant: `held` is at most one line of `limit` bytes."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self.held: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their ends, no empty ones. Raises Unreachable over limit."""
        *ended, rest = chunk.split(b"\n")
        if ended and self.held:
            self._check(len(ended[0]))
            ended[0] = b"".join((*self.held, ended[0]))
            self.held, self._size = [], 0
        if rest:
            self._check(len(rest))
            self.held.append(rest)
            self._size += len(rest)
        return [line for line in ended if line]

    def _check(self, more: int) -> None:
        if self._size + more > self._limit:
            raise Unreachable(f"the API server sent a line of more than {self._limit >> 20} MiB; it is not read")


Events = AsyncGenerator[WatchEvent[Manifest], None]
BACKOFF_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
STEADY_S: Final = 30.0
SHORT_S: Final = 1.0
QUEUE: Final = 1000
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What to watch, in all namespaces when none is named; `trim` shortens the objects of its lists."""

    resource: Resource
    namespaces: tuple[str, ...] = ()
    selector: str = ""
    trim: Callable[[Manifest], Manifest] = unchanged


async def watch_all(api: KubeClient, watched: WatchOptions, pulse: WatchLiveness | None = None) -> Events:
    """Listed, then Upserted and Deleted; WatchLost once for each outage. Ends only when its reader closes it."""
    failures, lost, outage = 0, False, _OutageLog(api, watched.resource)
    pulse = pulse or WatchLiveness(watched.resource.kind, api.clock)
    while True:
        listed: float | None = None
        fault: PacelineError = Unreachable("the watch ended")
        try:
            async with aclosing(_round(api, watched, pulse, outage)) as events:
                async for event in events:
                    if isinstance(event, Listed):
                        listed, lost = api.clock.monotonic(), False
                    yield event
        except PacelineError as error:
            fault = error
        if isinstance(fault, Forbidden | Unauthorized):
            pulse.refused()
        if listed is not None and api.clock.monotonic() - listed >= STEADY_S:
            failures = 0
        expired = isinstance(fault, ApiError) and fault.status == 410
        if not (expired and failures == 0):
            if not lost:
                lost = True
                outage.begin(fault)
                yield WatchLost(str(fault))
            # a random part of the back-off, so that many watches do not return together; at least what was asked for
            asked = fault.retry_after if isinstance(fault, ApiError) else None
            await api.clock.sleep(max(backoff_s(failures, api.jitter()), asked or 0.0))
        failures += 1


async def _round(api: KubeClient, watched: WatchOptions, pulse: WatchLiveness, outage: "_OutageLog") -> Events:
    resource, namespaces, selector = watched.resource, watched.namespaces or ("",), watched.selector
    found = [await api.snapshot(resource, name, selector=selector, trim=watched.trim) for name in namespaces]
    pulse.stamp()
    yield Listed(tuple(item for snapshot in found for item in snapshot.items))
    versions = [snapshot.version for snapshot in found]
    del found  # do not keep a list of thousands for as long as the watch lives
    streams = [
        _follow(api, resource.collection(namespace), selector, version, pulse, outage)
        for namespace, version in zip(namespaces, versions, strict=True)
    ]
    async with aclosing(streams[0] if len(streams) == 1 else _merged(streams)) as events:
        async for event in events:
            yield event


async def _follow(  # noqa: PLR0913, PLR0917 - the parts of one stream
    api: KubeClient, path: str, selector: str, version: str, pulse: WatchLiveness, outage: "_OutageLog"
) -> Events:
    params = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": f"{api.limits.watch:.0f}"}
    if selector:
        params["labelSelector"] = selector
    while True:
        began, brought, lines = api.clock.monotonic(), False, LineBuffer()
        async with api.stream(path, {**params, "resourceVersion": version}) as chunks:
            pulse.stamp()
            outage.end()
            async for chunk in chunks:
                pulse.stamp()
                for line in lines.feed(chunk):
                    brought = True
                    event, version = _event(line, version)
                    if event is not None:
                        yield event
        if lines.held:
            raise Unreachable("the API server closed the watch within a line")
        if not brought and api.clock.monotonic() - began < SHORT_S:
            raise Unreachable("the API server ended the watch at once")


def _event(line: bytes, version: str) -> tuple[WatchEvent[Manifest] | None, str]:
    """Parse one line; returns the event and the version after it. Raises an ERROR event, and Unreachable if invalid."""
    try:
        event = orjson.loads(line)
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            code = item.get("code")
            raise api_error(code if isinstance(code, int) else 500, orjson.dumps(item), {}, "watch")
        version = item["metadata"]["resourceVersion"]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise Unreachable(f"the API server sent a line that is no event: {line[:100]!r}") from None
    if kind in {"ADDED", "MODIFIED"}:
        return Upserted(item), version
    return (Deleted(item) if kind == "DELETED" else None), version


async def _merged(streams: list[Events]) -> Events:
    """Events of all streams as they come, until one raises."""
    queue: asyncio.Queue[WatchEvent[Manifest] | Exception] = asyncio.Queue(QUEUE)
    async with AsyncExitStack() as stack:
        for stream in streams:
            stack.push_async_callback(cancel, asyncio.create_task(_pump(stream, queue)))
        while True:
            event = await queue.get()
            if isinstance(event, Exception):
                raise event
            yield event


async def _pump(stream: Events, queue: "asyncio.Queue[Any]") -> None:
    try:
        async with aclosing(stream) as events:
            async for event in events:
                await queue.put(event)
    except Exception as error:  # noqa: BLE001 - raised again by the reader of the queue
        await queue.put(error)


def backoff_s(failures: int, jitter: float) -> float:
    return BACKOFF_S[min(failures, len(BACKOFF_S) - 1)] * (1 + jitter) / 2


class _OutageLog:
    """Logs the start and the end of each outage once. Each kind has its own permission, so every refusal is named."""

    def __init__(self, api: KubeClient, resource: Resource) -> None:
        self._api = api
        self._kind = resource.kind
        self._begun = False

    def begin(self, fault: PacelineError) -> None:
        refused = isinstance(fault, Forbidden | Unauthorized)
        left_out = self._api.sparse.admit(f"refused {self._kind}" if refused else "lost")
        if not self._begun and left_out is not None:
            fields = {"kind": self._kind, "reason": str(fault), "left_out": left_out}
            _log.warning("a watch is lost; what it reported ages until it is back", extra=fields)
        self._begun = True

    def end(self) -> None:
        if self._begun and (left_out := self._api.sparse.admit("back")) is not None:
            _log.info("a watch is back", extra={"kind": self._kind, "left_out": left_out})
        self._begun = False
