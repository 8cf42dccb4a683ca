"""Read another process's messages for as long as it lives: one GET, a line a message, a new try after every break.

Lines are bounded, so that a peer that never ends one cannot fill this process; tries come with growing delay.

Long-lived streams of messages, one a source. What counts is the last line of each and when it came; `fresh` leaves
out who is silent.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import httpx

from paceline_core.auth import Signer
from paceline_core.auth.internal_token import HEADER
from paceline_core.clock import Clock
from paceline_core.errors import InvalidInput
from paceline_core.process import cancel
from paceline_core.telemetry import get_logger
from paceline_core.wire.message import LINE_LIMIT, Message, decode

DELAYS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
CONNECT_S = 2.0
_log = get_logger(__name__)

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class StreamSource:
    """Whose stream it is, where it is read, and for which audience the internal token is made."""

    name: str
    url: str
    audience: str


@dataclass(frozen=True, slots=True)
class StreamClient:
    """What reading a stream takes: a client made by `stream_client`, a signer of internal tokens, a clock."""

    http: httpx.AsyncClient
    signer: Signer
    clock: Clock


async def subscribe(
    kind: type[M],
    place: StreamSource,
    link: StreamClient,
    on_message: Callable[[M], None],
    on_cut: Callable[[bool], None],
) -> None:
    """Read until cancelled. A message that `on_message` refuses with InvalidInput breaks the stream.

    `on_cut` hears of every break, and whether the connection was refused: the host is there, and nobody listens.
    """
    failures, heard = 0, False
    while True:
        level, refused = logging.INFO, False
        try:
            async for message in _messages(kind, place, link):
                failures, heard = 0, True
                on_message(message)
            reason = "the other side closed the stream"
        except (httpx.HTTPError, InvalidInput) as error:
            reason = str(error) or type(error).__name__
            refused = _refused(error)
            if not heard and isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                level = logging.DEBUG  # it is starting and does not listen yet
        on_cut(refused)
        if failures == 0:
            _log.log(level, "stream cut", extra={"place": place.name, "reason": reason})
        await link.clock.sleep(DELAYS_S[min(failures, len(DELAYS_S) - 1)])
        failures += 1


def stream_client(silence_s: float) -> httpx.AsyncClient:
    """A client for streams that may be silent for `silence_s`."""
    timeout = httpx.Timeout(CONNECT_S, read=silence_s)
    return httpx.AsyncClient(timeout=timeout, limits=httpx.Limits(max_connections=None), trust_env=False)


def _refused(error: BaseException | None) -> bool:
    """Whether this or what it came from is a refused connection; a host that is away refuses nothing."""
    while error is not None and not isinstance(error, ConnectionRefusedError):
        error = error.__cause__ or error.__context__
    return error is not None


async def _messages(kind: type[M], place: StreamSource, link: StreamClient) -> AsyncIterator[M]:
    headers = {HEADER: link.signer.token(place.audience, link.clock.utc())}
    async with link.http.stream("GET", place.url, headers=headers) as response:
        if response.status_code != httpx.codes.OK:
            raise InvalidInput("", f"{place.url} answered {response.status_code}")
        async for line in _lines(response):
            yield decode(kind, line)


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(rest) > LINE_LIMIT:
            raise InvalidInput("", f"a line is over the limit of {LINE_LIMIT} bytes")


@dataclass(frozen=True, slots=True)
class Received(Generic[M]):
    """A line, and the monotonic time at which it came."""

    message: M
    at: float


class ReportStreams(Generic[M]):
    """One stream for each place. `on_line` is called on the event loop for every line, in order.

    A line that it refuses with InvalidInput counts for nothing, and breaks the stream.
    """

    def __init__(self, kind: type[M], link: StreamClient, on_line: Callable[[StreamSource, M], None]) -> None:
        self._kind = kind
        self._link = link
        self._on_line = on_line
        self._tasks: dict[StreamSource, asyncio.Task[None]] = {}
        self.heard: dict[str, Received[M]] = {}

    def follow(self, places: Iterable[StreamSource]) -> None:
        """These are the places now: open what is missing, close and forget what is gone."""
        wanted = set(places)
        for place in [place for place in self._tasks if place not in wanted]:
            self._tasks.pop(place).cancel()
            self.heard.pop(place.name, None)
        for place in wanted - self._tasks.keys():
            self._tasks[place] = asyncio.create_task(self._read(place), name=f"stream {place.name}")

    def fresh(self, silence_s: float) -> Mapping[str, M]:
        """The last line of each place that is not silent."""
        oldest = self._link.clock.monotonic() - silence_s
        return {name: heard.message for name, heard in self.heard.items() if heard.at >= oldest}

    async def close(self) -> None:
        """Close every stream."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        await cancel(*tasks)

    async def _read(self, place: StreamSource) -> None:
        def heard(message: M) -> None:
            self._on_line(place, message)
            self.heard[place.name] = Received(message, self._link.clock.monotonic())

        await subscribe(self._kind, place, self._link, heard, lambda _refused: None)
