"""`GET /internal/load`: this worker's load report, as a stream of JSON lines for each gateway.

The worker sends a line for every change, but at most 4 a second; at once when its state changes; and at least one every
5 s, so that a reader can distinguish an idle worker from a dead one. Readers need a valid internal token; their number
is capped.

The lines also announce the worker's prefix keys: those that the engine has cached, and those of prompts that it is
processing, whose pages are being computed or held until the request ends. So a gateway sends the same prompt beginning
here, to wait for the pages, instead of to a worker that would compute them again. A reader starts with no keys and gets
differences, at most LINE keys of each kind a line, until it is up to date.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from http import HTTPStatus
from itertools import islice
from weakref import WeakSet

from paceline_core.errors import Code, RequestError
from paceline_core.process import cancel
from paceline_core.wire import KVLoad, LoadReport, PrefixDelta, StepTime, WorkerState, encode
from paceline_workers.config import WorkerConfig
from paceline_workers.messages import Heartbeat, Started
from paceline_workers.server.engine.client import EngineState
from paceline_workers.server.http.exchange import Receive, Reply, Scope, Send, gone
from paceline_workers.server.telemetry.metrics import step_time

LINE = 512


class PrefixLog:
    """`keys`: the current keys. The engine bounds the cached ones, the number of open requests those of prompts."""

    def __init__(self) -> None:
        self.keys: dict[str, None] = {}
        self.readers: WeakSet[PrefixReader] = WeakSet()
        self._cached: set[str] = set()
        self._coming: Counter[str] = Counter()

    def clear(self) -> None:
        """Forget everything: a new engine has replaced the old one."""
        self.cached((), tuple(self._cached))

    def cached(self, added: Collection[str], evicted: Collection[str]) -> bool:
        """Add and remove cached keys; returns whether there were any."""
        self._cached.difference_update(evicted)
        self._cached.update(added)
        self._add(added)
        self._drop(evicted)
        return bool(added or evicted)

    def prompt(self, keys: Collection[str], step: int) -> bool:
        """A prompt with these keys begins (1) or has ended (-1); returns whether it has any."""
        for key in keys:
            self._coming[key] += step
        self._add(keys)
        self._drop(keys)
        return bool(keys)

    def _add(self, keys: Iterable[str]) -> None:
        new = [key for key in dict.fromkeys(keys) if key not in self.keys]
        self.keys.update(dict.fromkeys(new))
        for reader in self.readers if new else ():
            reader.added(new)

    def _drop(self, keys: Iterable[str]) -> None:
        """Forget the keys that are neither cached nor in an open prompt."""
        gone = []
        for key in keys:
            if self._coming[key] <= 0:
                del self._coming[key]
                if key in self.keys and key not in self._cached:
                    del self.keys[key]
                    gone.append(key)
        for reader in self.readers if gone else ():
            reader.evicted(gone)


class PrefixReader:
    """The differences between a log and what one reader knows of it; at first that is nothing."""

    def __init__(self, log: PrefixLog) -> None:
        self._added = dict(log.keys)
        self._evicted: dict[str, None] = {}
        log.readers.add(self)

    @property
    def behind(self) -> bool:
        """Whether there are differences to send."""
        return bool(self._added or self._evicted)

    def added(self, keys: Iterable[str]) -> None:
        """The log has these keys now, and had not before."""
        _differ(keys, self._added, self._evicted)

    def evicted(self, keys: Iterable[str]) -> None:
        """The log had these keys, and has them no more."""
        _differ(keys, self._evicted, self._added)

    def delta(self) -> PrefixDelta:
        """The next differences; counts them as sent."""
        if not self.behind:
            return PrefixDelta()
        return PrefixDelta(added=_take(self._added), evicted=_take(self._evicted))


def _differ(keys: Iterable[str], differences: dict[str, None], opposite: dict[str, None]) -> None:
    """Note each key as a difference, unless that takes back one that was not sent yet."""
    for key in keys:
        if key in opposite:
            del opposite[key]
        else:
            differences[key] = None


def _take(keys: dict[str, None]) -> tuple[str, ...]:
    """Remove and return the first LINE keys."""
    taken = tuple(islice(keys, LINE))
    for key in taken:
        del keys[key]
    return taken


PACE_S = 0.25
QUIET_S = 5.0
SUBSCRIBERS = 64

_STATES = {
    EngineState.LOADING: WorkerState.STARTING,
    EngineState.UP: WorkerState.READY,
    EngineState.DOWN: WorkerState.FAILED,
}


class LoadPublisher:
    """The latest report, and everyone who waits for the next one."""

    def __init__(self, config: WorkerConfig) -> None:
        self._changed = asyncio.Event()
        self._turned = asyncio.Event()
        self.subscribers = 0
        self._gateways = 0
        self.closed = False
        self._draining = False
        self._prefixes = PrefixLog()
        self._engine = WorkerState.STARTING
        self.report = LoadReport(
            worker=config.name,
            service=config.service,
            revision=config.revision,
            pool=config.pool,
            state=WorkerState.STARTING,
            emulated=config.engine.emulate is not None,
            slots=config.engine.max_seqs,
            kv=KVLoad(page_tokens=config.engine.page_tokens, total=0, free=0),
            step_time=StepTime(base=0.0, prefill=0.0),
            max_model_len=0,
        )

    def on_engine(self, event: EngineState | Started | Heartbeat) -> None:
        """Listens to the engine."""
        report = self.report
        match event:
            case Started():
                self._prefixes.clear()
                kv = KVLoad(page_tokens=event.page_tokens, total=event.pages, free=event.pages)
                self._update(
                    emulated=event.emulated,
                    slots=event.slots,
                    max_model_len=event.max_model_len,
                    kv=kv,
                    running=0,
                    waiting={},
                    queued_tokens={},
                    remaining_tokens=0,
                )
            case Heartbeat():
                changed = self._prefixes.cached(event.prefix_added, event.prefix_evicted)
                self._update(
                    changed=changed,
                    running=event.running,
                    waiting=event.waiting,
                    queued_tokens=event.queued_tokens,
                    kv=report.kv.model_copy(update={"free": event.pages_free, "cached": event.pages_cached}),
                    step_time=step_time(event.step_time),
                    remaining_tokens=event.remaining_tokens,
                )
            case EngineState() if not self._draining:
                again = event is EngineState.LOADING and self._engine is WorkerState.FAILED
                self._engine = _STATES[event]
                state = WorkerState.DRAINING if report.retired else self._engine
                self._update(state=state, engine_restarts=report.engine_restarts + again)

    def on_prompt(self, keys: Collection[str], step: int) -> None:
        """A prompt with these prefix keys begins (1) or has ended (-1)."""
        if self._prefixes.prompt(keys, step):
            self._update(changed=True)

    def on_cleared(self, names: tuple[str, ...]) -> None:
        """The names of the last suspects that are cleared."""
        self._update(cleared=names)

    def drain(self) -> None:
        """Report `draining` from now on."""
        self._draining = True
        self._update(state=WorkerState.DRAINING, retired=False)

    def retire(self, *, retired: bool) -> None:
        """Report whether the worker is retired; one that drains is not."""
        if not self._draining:
            self._update(state=WorkerState.DRAINING if retired else self._engine, retired=retired)

    @contextlib.contextmanager
    def subscribed(self, *, gateway: bool) -> Iterator[None]:
        """Counts a reader for the length of the block; the report tells gateways how many of them share the slots."""
        self._subscribe(1, gateway=gateway)
        try:
            yield
        finally:
            self._subscribe(-1, gateway=gateway)

    def close(self) -> None:
        """End every stream after its last pending line."""
        self.closed = True
        self._turned.set()
        self._changed.set()

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines of one subscriber, until the board closes."""
        seq, prefixes = 0, PrefixReader(self._prefixes)
        while True:
            report, changed, turned = self.report, self._changed, self._turned
            yield encode(report.model_copy(update={"seq": seq, "prefix": prefixes.delta()}))
            if self.closed and self.report is report:
                return
            seq += 1
            await _within(PACE_S, turned)
            if self.report is report and not prefixes.behind:
                await _within(QUIET_S - PACE_S, changed)

    def _subscribe(self, step: int, *, gateway: bool) -> None:
        self.subscribers += step
        self._gateways += step * gateway
        self._update(gateways=max(self._gateways, 1))

    def _update(self, *, changed: bool = False, **fields: object) -> None:
        """Set these `fields` of the report; `changed`: wake its readers even if the report is the same."""
        report = self.report.model_copy(update=fields) if fields else self.report
        if report == self.report and not changed:
            return
        turns = report.state is not self.report.state
        self.report = report
        self._changed.set()
        self._changed = asyncio.Event()
        if turns:
            self._turned.set()
            self._turned = asyncio.Event()


class LoadRoute:
    """The stream as an ASGI application."""

    def __init__(self, board: LoadPublisher, write_limit_s: float) -> None:
        self._board = board
        self._write_limit_s = write_limit_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write lines until the reader leaves. Raises RequestError before the first line."""
        if not scope["caller"].trusted:
            raise RequestError(
                Code.INVALID_API_KEY, "This route is for bearers of a valid `x-paceline-internal-token` token."
            )
        if self._board.subscribers >= SUBSCRIBERS:
            raise RequestError(Code.QUEUE_FULL, f"{SUBSCRIBERS} readers are here already.", retry_after=QUIET_S)
        with self._board.subscribed(gateway=scope["caller"].gateway):
            writer = asyncio.create_task(self._write(Reply(send, self._write_limit_s)))
            leaver = asyncio.create_task(gone(receive))
            try:
                await asyncio.wait({writer, leaver}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel(leaver, writer)

    async def _write(self, reply: Reply) -> None:
        with contextlib.suppress(RequestError):
            await reply.start(HTTPStatus.OK, {"content-type": "application/x-ndjson", "cache-control": "no-cache"})
            async for line in self._board.lines():
                await reply.write(line)
            await reply.write(b"", more=False)


async def _within(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
