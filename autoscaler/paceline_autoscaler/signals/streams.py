"""Long-lived streams of JSON lines, one a source, kept open: connect, read, connect again with growing delay.

What counts is the last line of each and when it came; `read` says who is silent. Lines are bounded, and a stream that
is silent for longer than `silence_s` is given up and opened anew, which a quiet but living source answers at once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import httpx

from paceline_core.auth import HopSigner
from paceline_core.auth.hop import HEADER as HOP_HEADER
from paceline_core.clock import Clock
from paceline_core.errors import InvalidInput
from paceline_core.telemetry import get_logger
from paceline_core.wire import Message, decode
from paceline_core.wire.message import LINE_LIMIT

DELAYS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
CONNECT_S = 2.0
_log = get_logger(__name__)

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Place:
    """Whose stream it is, where it is read, and for which audience the hop token is made."""

    name: str
    url: str
    audience: str


@dataclass(frozen=True, slots=True)
class Heard(Generic[M]):
    """A line, and the monotonic time at which it came."""

    message: M
    at: float


@dataclass(frozen=True, slots=True)
class Link:
    """What reading a stream takes: a client made by `stream_client`, a signer of hop tokens, a clock."""

    http: httpx.AsyncClient
    signer: HopSigner
    clock: Clock


class Streams(Generic[M]):
    """One stream for each place. `on_line` is called on the event loop for every line, in order."""

    def __init__(self, kind: type[M], link: Link, on_line: Callable[[M], None]) -> None:
        self._kind = kind
        self._http, self._signer, self._clock = link.http, link.signer, link.clock
        self._on_line = on_line
        self._tasks: dict[Place, asyncio.Task[None]] = {}
        self.heard: dict[str, Heard[M]] = {}

    def follow(self, places: Iterable[Place]) -> None:
        """These are the places now: open what is missing, close and forget what is gone."""
        wanted = set(places)
        for place in [place for place in self._tasks if place not in wanted]:
            self._tasks.pop(place).cancel()
            self.heard.pop(place.name, None)
        for place in wanted - self._tasks.keys():
            self._tasks[place] = asyncio.create_task(self._keep_reading(place), name=f"stream {place.name}")

    def fresh(self, silence_s: float) -> Mapping[str, M]:
        """The last line of each place that is not silent."""
        oldest = self._clock.monotonic() - silence_s
        return {name: heard.message for name, heard in self.heard.items() if heard.at >= oldest}

    async def close(self) -> None:
        """Close every stream."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_reading(self, place: Place) -> None:
        failures = 0
        while True:
            try:
                async for message in self._read(place):
                    failures = 0
                    self.heard[place.name] = Heard(message, self._clock.monotonic())
                    self._on_line(message)
                reason = "the other side closed the stream"
            except (httpx.HTTPError, InvalidInput) as error:
                reason = str(error) or type(error).__name__
            if failures == 0:
                _log.info("stream cut", extra={"place": place.name, "reason": reason})
            await self._clock.sleep(DELAYS_S[min(failures, len(DELAYS_S) - 1)])
            failures += 1

    async def _read(self, place: Place) -> AsyncIterator[M]:
        headers = {HOP_HEADER: self._signer.token(place.audience, self._clock.utc())}
        async with self._http.stream("GET", place.url, headers=headers) as response:
            if response.status_code != httpx.codes.OK:
                raise InvalidInput("", f"{place.url} answered {response.status_code}")
            async for line in _lines(response):
                yield decode(self._kind, line)


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(rest) > LINE_LIMIT:
            raise InvalidInput("", f"a line is over the limit of {LINE_LIMIT} bytes")


def stream_client(silence_s: float) -> httpx.AsyncClient:
    """A client for streams that may be silent for `silence_s`."""
    timeout = httpx.Timeout(CONNECT_S, read=silence_s)
    return httpx.AsyncClient(timeout=timeout, limits=httpx.Limits(max_connections=None), trust_env=False)
