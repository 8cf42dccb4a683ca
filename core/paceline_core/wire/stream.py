"""Reads streams of messages from other processes: one GET a source, one JSON line a message, a retry after each break.

Lines are bounded, so that a peer that never ends one cannot fill this process's memory; the delay between retries
grows. `ReportStreams` keeps the last message of each source and its time; `fresh` leaves out silent sources.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import httpx

from paceline_core.auth import Signer
from paceline_core.auth.internal_token import HEADER
from paceline_core.clock import Clock
from paceline_core.errors import InvalidInput
from paceline_core.process import cancel
from paceline_core.telemetry import get_logger
from paceline_core.wire.message import LINE_LIMIT, LoadReport, Message, decode

DELAYS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
CONNECT_S = 2.0
_log = get_logger(__name__)

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A peer's name, the URL of its stream, and the audience of the internal tokens for it."""

    name: str
    url: str
    audience: str


@dataclass(frozen=True, slots=True)
class StreamClient:
    """An HTTP client made by `stream_client`, a signer of internal tokens, a clock."""

    http: httpx.AsyncClient
    signer: Signer
    clock: Clock


def stream_client(silence_s: float) -> httpx.AsyncClient:
    """A client for streams that may be silent for `silence_s`."""
    timeout = httpx.Timeout(CONNECT_S, read=silence_s)
    return httpx.AsyncClient(timeout=timeout, limits=httpx.Limits(max_connections=None), trust_env=False)


def worker_source(service: str, worker: str, host: str, port: int) -> StreamSource:
    """The source of a worker's load reports."""
    return StreamSource(worker, worker_url(host, port, "/internal/load"), service)


def worker_url(host: str, port: int, path: str) -> str:
    """A URL of a worker's API."""
    address = f"[{host}]" if ":" in host else host
    return f"http://{address}:{port}{path}"


def check_service(source: StreamSource, report: LoadReport) -> None:
    """Raise InvalidInput unless the report is about the service of its source."""
    if report.service != source.audience:
        raise InvalidInput("service", f"{report.service!r} answers where {source.audience!r} should be")


async def subscribe(
    kind: type[M],
    source: StreamSource,
    client: StreamClient,
    on_message: Callable[[M], None],
    on_disconnect: Callable[[bool], None],
) -> None:
    """Read until cancelled. A message that `on_message` refuses with InvalidInput breaks the stream.

    `on_disconnect` gets whether the connection was refused: the host is up, and no process listens.
    """
    failures, connected = 0, False
    while True:
        level, refused = logging.INFO, False
        try:
            async for message in _messages(kind, source, client):
                failures, connected = 0, True
                on_message(message)
            reason = "the other side closed the stream"
        except (httpx.HTTPError, InvalidInput) as error:
            reason = str(error) or type(error).__name__
            refused = _refused(error)
            if not connected and isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                level = logging.DEBUG  # the peer is starting and does not listen yet
        on_disconnect(refused)
        if failures == 0:
            _log.log(level, "stream lost", extra={"source": source.name, "reason": reason})
        await client.clock.sleep(DELAYS_S[min(failures, len(DELAYS_S) - 1)])
        failures += 1


@dataclass(frozen=True, slots=True)
class Received(Generic[M]):
    """A message and its monotonic time of arrival."""

    message: M
    at: float


class ReportStreams(Generic[M]):
    """One stream for each source. `on_report` is called on the event loop for every message, in order.

    A message that it refuses with InvalidInput is dropped, and breaks the stream.
    """

    def __init__(
        self,
        kind: type[M],
        client: StreamClient,
        on_report: Callable[[StreamSource, M], None],
        on_disconnect: Callable[[StreamSource, bool], None] = lambda _source, _refused: None,
    ) -> None:
        self._kind = kind
        self._client = client
        self._on_report = on_report
        self._on_disconnect = on_disconnect
        self._tasks: dict[StreamSource, asyncio.Task[None]] = {}
        self.received: dict[StreamSource, Received[M]] = {}

    def follow(self, sources: Iterable[StreamSource], audience: str | None = None) -> None:
        """Open missing streams; close and forget those of `audience` (None: all) that are not in `sources`."""
        wanted = set(sources)
        current = [source for source in self._tasks if audience in (None, source.audience)]
        for source in [source for source in current if source not in wanted]:
            self._tasks.pop(source).cancel()
            self.received.pop(source, None)
        for source in wanted - self._tasks.keys():
            self._tasks[source] = asyncio.create_task(self._read(source), name=f"stream {source.name}")

    def fresh(self, silence_s: float) -> dict[StreamSource, M]:
        """The last message of each source that is not silent."""
        oldest = self._client.clock.monotonic() - silence_s
        return {source: last.message for source, last in self.received.items() if last.at >= oldest}

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        await cancel(*tasks)

    async def _read(self, source: StreamSource) -> None:
        def on_message(message: M) -> None:
            self._on_report(source, message)
            self.received[source] = Received(message, self._client.clock.monotonic())

        await subscribe(self._kind, source, self._client, on_message, partial(self._on_disconnect, source))


def _refused(error: BaseException | None) -> bool:
    """Whether the error or one of its causes is a refused connection; a host that is down does not refuse."""
    while error is not None and not isinstance(error, ConnectionRefusedError):
        error = error.__cause__ or error.__context__
    return error is not None


async def _messages(kind: type[M], source: StreamSource, client: StreamClient) -> AsyncIterator[M]:
    headers = {HEADER: client.signer.token(source.audience, client.clock.utc())}
    async with client.http.stream("GET", source.url, headers=headers) as response:
        if response.status_code != httpx.codes.OK:
            raise InvalidInput("", f"{source.url} answered {response.status_code}")
        rest = b""
        async for chunk in response.aiter_bytes():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    yield decode(kind, line)
            if len(rest) > LINE_LIMIT:
                raise InvalidInput("", f"a line is over the limit of {LINE_LIMIT} bytes")
