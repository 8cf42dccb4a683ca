"""kopf, reduced to what it is good at: it watches the four kinds, and each event only tells the queue where to look.

`on.event` alone writes nothing: no finalizer, no annotation, no event, no timer. kopf logs in with a session of ours,
whose answers stamp a pulse on each chunk of each watch, since kopf tells nobody how old a watch is; and whose requests
tell when kopf lists anew, because a relist never says what is gone: a list of our own then does. So kopf's own list
only tells from which version it watches: it asks for one object and is given none, which spares it an event, a task and
a copy for each object at every start. kopf's own signal handlers are replaced by its embedder's, and it is stopped by
cancelling, which ends in milliseconds.
kopf by itself gives a refused watch up for good after a minute, and logs in again without a pause after a 401. So
`Backoffs` never ends and never exceeds the watches' own longest step, logins keep a gap, and `Repeats` leaves each
refusal in the log once until the kind is answered again.
Known hole: a kubeconfig's `tls-server-name` reaches our own requests and not kopf's.
"""

import asyncio
import contextlib
import itertools
import logging
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import aiohttp
import kopf

from paceline_core.clock import Clock
from paceline_core.kube.client.credentials import Credentials
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.client.watch import WatchLiveness, backoff_s
from paceline_core.kube.cluster import Manifest
from paceline_core.process import cancel

OnEvent = Callable[[str | None, Manifest], None]
OnList = Callable[[str], None]
LOGIN_GAP_S = 5.0
_REFUSALS = (401, 403)
_REQUESTS = logging.getLogger("kopf._cogs.clients.watching")
_ATTEMPT = re.compile(r"#\d+(/\d+)?")


def registry_of(
    kinds: tuple[str, ...], on_event: OnEvent, login: Callable[[], Awaitable[Any]]
) -> kopf.OperatorRegistry:
    """Handlers for these kinds: each gives `(event type, object)` away; the type is None for what a list held."""
    registry = kopf.OperatorRegistry()

    async def enqueue(event: Any, **_: Any) -> None:
        on_event(event["type"], event["object"])

    async def log_in(**_: Any) -> Any:
        return await login()

    for kind in kinds:
        resource = RESOURCES[kind]
        selector = (resource.group, resource.version, resource.plural)
        kopf.on.event(*selector, id=f"enqueue-{kind}", registry=registry)(enqueue)
    kopf.on.login(id="login", registry=registry, backoff=LOGIN_GAP_S)(log_in)
    return registry


class NoDiffs(kopf.DiffBaseStorage):
    """Nothing is compared with what was handled before, so nothing is copied, kept or written: half of kopf's time."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> Any:
        return None

    def store(self, **_: Any) -> None:
        pass


class NoProgress(kopf.ProgressStorage):
    """Handlers that only enqueue have none."""

    def fetch(self, **_: Any) -> Any:
        return None

    def store(self, **_: Any) -> None:
        pass

    def purge(self, **_: Any) -> None:
        pass

    def touch(self, **_: Any) -> None:
        pass

    def clear(self, *, essence: Any) -> Any:
        return essence


class Backoffs:
    """Pauses between the tries of one request, without end; a fresh sequence for each request."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter

    def __iter__(self) -> Iterator[float]:
        return (backoff_s(failures, self._jitter()) for failures in itertools.count())


class Repeats(logging.Filter):
    """Lets a failed request be logged once, whatever the number of its tries, until `forget` names its kind."""

    LIMIT = 64

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is news."""
        text = _ATTEMPT.sub("", record.getMessage())
        if text in self._said:
            return False
        if len(self._said) >= self.LIMIT:
            self._said.clear()
        self._said.add(text)
        return True

    def forget(self, plural: str) -> None:
        """The kind was answered: its next failure is news."""
        if self._said:
            self._said = {text for text in self._said if f"/{plural}" not in text}


def settings() -> kopf.OperatorSettings:
    """Watches with limits, lists in pages, nothing written, no look at CRDs and namespaces, no end of trying."""
    made = kopf.OperatorSettings()
    made.networking.error_backoffs = Backoffs()
    made.posting.enabled = False
    made.scanning.disabled = True
    made.watching.server_timeout = 290
    made.watching.client_timeout = 310
    made.watching.chunk_size = 1
    made.queueing.idle_timeout = 1.0
    made.persistence.diffbase_storage = NoDiffs()
    made.persistence.progress_storage = NoProgress()
    made.process.ultimate_exiting_timeout = None
    return made


class KopfLogin:
    """Makes kopf's sessions. `pulses` by kind are stamped by what a watch brings."""

    def __init__(
        self, credentials: Credentials, pulses: Mapping[str, WatchLiveness], on_list: OnList, clock: Clock
    ) -> None:
        self.repeats = Repeats()
        self._credentials = credentials
        self._clock = clock
        self._logged_in: float | None = None
        self._by_plural = {RESOURCES[kind].plural: pulse for kind, pulse in pulses.items()}
        self._kinds = {RESOURCES[kind].plural: kind for kind in pulses}
        self._on_list = on_list

    async def login(self) -> kopf.AiohttpSession:
        """A fresh session with fresh credentials; kopf asks at the start and after each 401."""
        if self._logged_in is not None:
            await self._clock.sleep(max(self._logged_in + LOGIN_GAP_S - self._clock.monotonic(), 0.0))
        self._logged_in = self._clock.monotonic()
        await self._credentials.renew()
        tracing = aiohttp.TraceConfig()
        tracing.on_request_start.append(self._authorise)
        tracing.on_request_end.append(self._seen)
        connector = aiohttp.TCPConnector(limit=0, ssl=self._credentials.tls or True)
        session = aiohttp.ClientSession(
            connector=connector,
            trace_configs=[tracing],
            response_class=_response_class(self._stamp, self._kinds),
            proxy=self._credentials.proxy,
        )
        return kopf.AiohttpSession(server=self._credentials.server, aiohttp_session=session)

    async def _authorise(
        self, _: aiohttp.ClientSession, __: SimpleNamespace, params: aiohttp.TraceRequestStartParams
    ) -> None:
        params.headers.update(self._credentials.headers())

    async def _seen(self, _: aiohttp.ClientSession, __: SimpleNamespace, params: aiohttp.TraceRequestEndParams) -> None:
        plural = _plural(params.url.path)
        if params.response.status == 200 and plural in self._kinds:
            self._stamp(plural)
            self.repeats.forget(plural)
            if "watch" not in params.url.query:
                self._on_list(self._kinds[plural])
        elif params.response.status in _REFUSALS and plural in self._by_plural:
            self._by_plural[plural].refused()

    def _stamp(self, plural: str) -> None:
        if plural in self._by_plural:
            self._by_plural[plural].stamp()


class _Stamped:
    """A body whose chunks are seen by `seen`; everything else is the body's own."""

    def __init__(self, content: aiohttp.StreamReader, seen: Callable[[], None]) -> None:
        self._content = content
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        async for chunk in self._content.iter_chunked(size):
            self._seen()
            yield chunk


def _response_class(stamp: Callable[[str], None], kinds: Mapping[str, str]) -> type[aiohttp.ClientResponse]:
    """aiohttp traces whole bodies only, so the chunks of a stream are seen where they are read."""

    class StampedResponse(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            response = await super().start(connection)
            plural = _plural(self.url.path)
            self.content = _Stamped(self.content, lambda: stamp(plural))  # type: ignore[assignment]
            return response

        async def json(self, **options: Any) -> Any:
            found = await super().json(**options)
            if self.status != 200 or _plural(self.url.path) not in kinds:
                return found
            return {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "items": []}

    return StampedResponse


def _plural(path: str) -> str:
    return path.rsplit("/", 1)[-1]


@contextlib.asynccontextmanager
async def running(
    registry: kopf.OperatorRegistry, namespaces: tuple[str, ...], repeats: Repeats
) -> AsyncIterator["asyncio.Task[None]"]:
    """kopf at work; the task ends only when kopf failed. Tasks that are made inside the block end with kopf."""
    _REQUESTS.addFilter(repeats)
    before = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )
    task = asyncio.create_task(kopf.run_tasks(tasks, ignored=before))
    try:
        yield task
    finally:
        await cancel(task)
        _REQUESTS.removeFilter(repeats)
