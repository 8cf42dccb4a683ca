"""The life of one request on any route that computes: a place, an answer whatever happens, an outcome to count."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from paceline_core.clock import Clock
from paceline_core.errors import Code, ErrorTiming, RequestError, error_response
from paceline_core.process import cancel
from paceline_core.registry import Outcome
from paceline_core.telemetry import get_logger
from paceline_core.wire import MOVED_HEADER
from paceline_workers.server.engine.client import EngineClient
from paceline_workers.server.engine.stream import EngineStream
from paceline_workers.server.evacuation import Moved, OpenStreams
from paceline_workers.server.http.exchange import (
    BodyMemory,
    Holding,
    HttpExchange,
    Receive,
    RequestExchange,
    Scope,
    Send,
)
from paceline_workers.server.http.sse import moved
from paceline_workers.server.in_flight import InFlightLimiter
from paceline_workers.server.loop_turns import LoopTurns
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.telemetry.metrics import WorkerMetrics
from paceline_workers.server.text.tokenizer import INLINE_CHARACTERS
from paceline_workers.server.trial_runs import TrialRuns

_log = get_logger(__name__)
R = TypeVar("R")
LONG = 64 << 10
"""Bytes of a body that has a turn of the loop to itself: some 0.5 ms."""
DRAINING = {"x-paceline-draining": "1"}


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
        holding = Holding(self.bodies, self.body_limit)
        return HttpExchange(scope, receive, send, holding=holding, write_limit_s=self.write_limit_s)


Serve = Callable[[ServerDeps, RequestExchange], Awaitable[None]]
"""Answer one request. Raises RequestError."""


class GenerationRoute:
    """A route as an ASGI application; the caller stands in `scope["caller"]`."""

    def __init__(self, parts: ServerDeps, serve: Serve) -> None:
        self._parts = parts
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request over HTTP."""
        exchange = self._parts.exchange(scope, receive, send)
        await handle_request(self._parts, exchange, self._serve)


async def handle_request(parts: ServerDeps, exchange: RequestExchange, serve: Serve) -> None:
    """Serve one request, whatever happens to it, and count its outcome."""
    try:
        with parts.gate.entered():
            outcome = await _answered(parts, exchange, serve)
    except RequestError as error:
        outcome = await _refuse(exchange, error)
    finally:
        exchange.release()
    parts.measures.ended(outcome)


async def _answered(parts: ServerDeps, exchange: RequestExchange, serve: Serve) -> Outcome:
    try:
        await serve(parts, exchange)
    except RequestError as error:
        return await _refuse(exchange, error)
    except Exception:  # noqa: BLE001 - the last boundary: a fault of ours must still end with an answer
        _log.exception("a request failed", extra={"request_id": exchange.caller.request_id})
        return await _refuse(exchange, RequestError(Code.INTERNAL_ERROR, "The worker failed on this request."))
    return Outcome.OK


async def _refuse(exchange: RequestExchange, error: RequestError) -> Outcome:
    """End an answer with `error` in the form that its moment allows; the outcome to count."""
    if error.code is Code.CLIENT_CLOSED:
        return error.row.outcome  # nobody is there to read an answer
    if exchange.reply.started and exchange.movable and isinstance(error, Moved):
        await exchange.reply.write(moved(error.reason), more=False)
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
    """What `make` returns of the body, which is let go of then. Raises RequestError."""
    body = await exchange.body()
    try:
        return await unless_gone(parts, exchange, body, make(body))
    finally:
        exchange.release()


async def unless_gone(parts: ServerDeps, exchange: RequestExchange, body: bytes, work: Coroutine[Any, Any, R]) -> R:
    """What `work` on this body returns; cancelled when the client leaves, which a short body is too quick for.

    A long one has a turn of the loop to itself. Raises RequestError `client_closed`.
    """
    if len(body) <= INLINE_CHARACTERS:
        return await work
    work = parts.turns.within(work) if len(body) > LONG else work
    task, gone = asyncio.create_task(work), asyncio.create_task(exchange.gone())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise RequestError(Code.CLIENT_CLOSED, "The client left.")
        return task.result()
    finally:
        await cancel(task, gone)


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
