"""The life of one request on any route that computes: a place, an answer whatever happens, an outcome to count.

Long bodies are understood one a turn of the loop: parsing and checking 8 MB takes tens of ms in one go, and bodies that
arrive together would otherwise be parsed together, while every stream waits for all of them.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from paceline_core.clock import Clock
from paceline_core.errors import Code, ErrorTiming, RequestError, error_response
from paceline_core.process import cancel
from paceline_core.registry import Outcome
from paceline_core.telemetry import get_logger
from paceline_core.wire import MOVED, MOVED_HEADER
from paceline_workers.server.engine.client import EngineClient, EngineStream, Moved
from paceline_workers.server.evacuation import OpenStreams
from paceline_workers.server.http.exchange import (
    BodyMemory,
    Holding,
    HttpExchange,
    Receive,
    Reply,
    RequestExchange,
    Scope,
    Send,
)
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.telemetry.metrics import WorkerMetrics
from paceline_workers.server.text.tokenizer import INLINE_CHARACTERS
from paceline_workers.server.trial_runs import TrialRuns

_log = get_logger(__name__)
R = TypeVar("R")
LONG = 64 << 10
"""Bytes of a body that has a turn of the loop to itself: some 0.5 ms."""
RETRY_AFTER_S = 1.0
DRAINING = {"x-paceline-draining": "1"}


class InFlightLimiter:
    """Counts requests from their headers to their last byte; refuses them when draining or full."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._gone = asyncio.Event()
        self._gone.set()
        self.open = 0
        self.draining = False

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Hold a place for the length of the block. Raises RequestError `draining` or `queue_full`."""
        if self.draining:
            raise RequestError(Code.DRAINING, "This worker is shutting down.", retry_after=RETRY_AFTER_S)
        if self.open >= self._limit:
            words = f"{self._limit} requests are open on this worker."
            raise RequestError(Code.QUEUE_FULL, words, retry_after=RETRY_AFTER_S)
        self.open += 1
        self._gone.clear()
        try:
            yield
        finally:
            self.open -= 1
            if not self.open:
                self._gone.set()

    def drain(self) -> None:
        """Refuse all that comes from now on."""
        self.draining = True

    async def gone(self, seconds: float) -> bool:
        """Wait until nobody is inside; False when it takes longer than `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._gone.wait()
            return True
        return False


class LoopTurns:
    """The turns of one worker's loop, in order of arrival.

    Bodies stay counted while they wait (`BodyMemory`), and its limit bounds the queue. Known hole: the work after a
    body's first wait (the tokenizer's answer) takes no turn.
    """

    def __init__(self) -> None:
        self._line: deque[asyncio.Future[None]] = deque()
        self._taken = False

    async def within(self, work: Coroutine[Any, Any, R]) -> R:
        """Await `work`, begun in a turn of its own, and return its result."""
        try:
            await self.take()
            return await work
        finally:
            work.close()

    async def take(self) -> None:
        """Return in a turn of the loop that no other long body has been given."""
        loop = asyncio.get_running_loop()
        if self._taken:
            turn = loop.create_future()
            self._line.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it had been given its turn
                    loop.call_soon(self._next)
                raise
        self._taken = True
        loop.call_soon(self._next)

    def _next(self) -> None:
        """Let the first go that still waits."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False


@dataclass(frozen=True, slots=True)
class ServerDeps:
    """What a computing route works with."""

    gate: InFlightLimiter
    engine: EngineClient
    model: ServedModel
    measures: WorkerMetrics
    clock: Clock
    body_limit: int
    write_limit_s: float
    step_tokens: int
    streams: OpenStreams = field(default_factory=OpenStreams)
    trials: TrialRuns = field(default_factory=TrialRuns)
    bodies: BodyMemory = field(default_factory=BodyMemory)
    turns: LoopTurns = field(default_factory=LoopTurns)

    def exchange(self, scope: Scope, receive: Receive, send: Send) -> HttpExchange:
        """An ASGI request under this worker's limits."""
        caller, holding = scope["caller"], Holding(self.bodies, self.body_limit)
        reply = Reply(send, self.write_limit_s)
        return HttpExchange(scope["path"], scope["headers"], receive, holding, caller, caller.trusted, reply)


Serve = Callable[[ServerDeps, RequestExchange], Awaitable[None]]
"""Answer one request. Raises RequestError."""


class GenerationRoute:
    """A route as an ASGI application; the caller stands in `scope["caller"]`."""

    def __init__(self, parts: ServerDeps, serve: Serve) -> None:
        self._parts = parts
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request over HTTP."""
        await handle_request(self._parts, self._parts.exchange(scope, receive, send), self._serve)


async def handle_request(parts: ServerDeps, exchange: RequestExchange, serve: Serve) -> None:
    """Serve one request, whatever happens to it, and count its outcome."""
    outcome = Outcome.OK
    try:
        with parts.gate.entered():
            try:
                await serve(parts, exchange)
            except RequestError as error:
                outcome = await _refuse(exchange, error)
            except Exception:  # noqa: BLE001 - the last boundary: a fault of ours must still end with an answer
                _log.exception("a request failed", extra={"request_id": exchange.caller.request_id})
                ours = RequestError(Code.INTERNAL_ERROR, "The worker failed on this request.")
                outcome = await _refuse(exchange, ours)
    except RequestError as error:  # there was no place for it, or nobody takes its refusal
        outcome = await _refuse(exchange, error)
    finally:
        exchange.release()
    parts.measures.ended(outcome)


async def _refuse(exchange: RequestExchange, error: RequestError) -> Outcome:
    """End an answer with `error` in the form that its moment allows; the outcome to count."""
    if error.code is Code.CLIENT_CLOSED:
        return error.row.outcome  # nobody is there to read an answer
    if exchange.reply.started and exchange.movable and isinstance(error, Moved):
        await exchange.reply.write(f"{MOVED}{error.reason}\n".encode(), more=False)
        return error.row.outcome
    if exchange.reply.started:
        late = error if error.row.moment is not ErrorTiming.BEFORE else RequestError(Code.STREAM_LOST, error.message)
        await exchange.reply.write(error_response(late, exchange.path).event, more=False)
        return late.row.outcome
    headers = DRAINING if error.code is Code.DRAINING else {}
    if exchange.movable and isinstance(error, Moved):
        headers = headers | {MOVED_HEADER: error.reason}
    await exchange.refuse(error_response(error, exchange.path), headers, unread=error.code is Code.REQUEST_TOO_LARGE)
    return error.row.outcome


async def understood(
    parts: ServerDeps, exchange: RequestExchange, make: Callable[[bytes], Coroutine[Any, Any, R]]
) -> R:
    """What `make` returns of the body, which is released then; cancelled when the client leaves, which a short body is
    too quick for. A long one has a turn of the loop to itself. Raises RequestError.
    """
    body = await exchange.body()
    try:
        if len(body) <= INLINE_CHARACTERS:
            return await make(body)
        work = parts.turns.within(make(body)) if len(body) > LONG else make(body)
        task, gone = asyncio.create_task(work), asyncio.create_task(exchange.gone())
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise RequestError(Code.CLIENT_CLOSED, "The client left.")
            return task.result()
        finally:
            await cancel(task, gone)
    finally:
        exchange.release()


@contextlib.asynccontextmanager
async def failed_when_client_leaves(stream: EngineStream, exchange: RequestExchange) -> AsyncIterator[None]:
    """For the length of the block, a client that leaves fails the engine's stream: its reader is where it ends."""

    async def watch() -> None:
        await exchange.gone()
        stream.fail(RequestError(Code.CLIENT_CLOSED, "The client left."))

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
