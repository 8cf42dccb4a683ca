"""The life of one request on any computing route: it takes a place, always gets an answer, and its outcome counts."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from paceline_core.clock import Clock
from paceline_core.errors import Code, ErrorTiming, RequestError, error_response
from paceline_core.registry import Outcome
from paceline_core.telemetry import get_logger
from paceline_core.wire import MOVED, MOVED_HEADER
from paceline_workers.server.engine.client import EngineClient, Moved
from paceline_workers.server.evacuation import OpenStreams
from paceline_workers.server.http.exchange import (
    BodyMemory,
    Holding,
    HttpExchange,
    LoopTurns,
    Receive,
    Reply,
    RequestExchange,
    Scope,
    Send,
)
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.telemetry.metrics import WorkerMetrics
from paceline_workers.server.trial_runs import TrialRuns

_log = get_logger(__name__)
RETRY_AFTER_S = 1.0
DRAINING = {"x-paceline-draining": "1"}


class InFlightLimiter:
    """Counts requests from their headers to their last byte; refuses them when draining, retired or full."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._gone = asyncio.Event()
        self._gone.set()
        self.open = 0
        self.draining = False
        self.retired = False

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Hold a place for the length of the block. Raises RequestError `draining` or `queue_full`."""
        if self.draining:
            raise RequestError(Code.DRAINING, "This worker is shutting down.", retry_after=RETRY_AFTER_S)
        if self.retired:
            raise RequestError(Code.DRAINING, "This worker is retired.", retry_after=RETRY_AFTER_S)
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
        """Refuse all further requests."""
        self.draining = True

    async def gone(self, seconds: float) -> bool:
        """Wait until no request is left; False if that takes longer than `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._gone.wait()
            return True
        return False


@dataclass(frozen=True, slots=True)
class ServerDeps:
    """The dependencies of a computing route."""

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
"""Answers one request. Raises RequestError."""


class GenerationRoute:
    """A route as an ASGI application; `scope["caller"]` holds the caller."""

    def __init__(self, parts: ServerDeps, serve: Serve) -> None:
        self._parts = parts
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request over HTTP."""
        await handle_request(self._parts, self._parts.exchange(scope, receive, send), self._serve)


async def handle_request(parts: ServerDeps, exchange: RequestExchange, serve: Serve) -> None:
    """Serve one request, whatever happens, and count its outcome."""
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
    except RequestError as error:  # no place was free, or the client does not read the refusal
        outcome = await _refuse(exchange, error)
    finally:
        exchange.release()
    parts.measures.ended(outcome)


async def _refuse(exchange: RequestExchange, error: RequestError) -> Outcome:
    """End an answer with `error`, in the form that still fits; returns the outcome to count."""
    if error.code is Code.CLIENT_CLOSED:
        return error.row.outcome  # the client has left
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
