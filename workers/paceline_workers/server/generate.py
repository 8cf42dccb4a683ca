"""The generating routes: a body in, one JSON answer or a stream of events out.

Headers and status wait for the first tokens, so a failure before them is still a plain HTTP error that a gateway can
retry. After them it becomes an SSE error event. The client's going away fails the engine's stream, whose reader is
then the one place where a request ends: by its last token, by the engine, by drain, or by its client.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus

from paceline_core.clock import Clock
from paceline_core.errors import Answer, Code, Moment, RequestError, answer
from paceline_core.registry import Outcome
from paceline_core.telemetry import get_logger
from paceline_workers.server import phases, sse
from paceline_workers.server.asgi import Receive, Reply, Scope, Send
from paceline_workers.server.body import discard, read_body
from paceline_workers.server.callers import Caller
from paceline_workers.server.engine_client import EngineClient
from paceline_workers.server.engine_stream import EngineStream
from paceline_workers.server.gate import Gate
from paceline_workers.server.measures import Measures
from paceline_workers.server.openai.events import Events
from paceline_workers.server.openai.jobs import Asked, MakeJob
from paceline_workers.server.openai.served import ServedModel
from paceline_workers.server.output import Piece
from paceline_workers.server.phases import Stopwatch
from paceline_workers.server.run import Run

_log = get_logger(__name__)
LINGER_S = 2.0
DRAINING = {"x-paceline-draining": "1"}


@dataclass(frozen=True, slots=True)
class Parts:
    """What a generating route works with."""

    gate: Gate
    engine: EngineClient
    model: ServedModel
    measures: Measures
    clock: Clock
    body_limit: int
    write_limit_s: float


class GenerateRoute:
    """One generating route as an ASGI application; the caller stands in `scope["caller"]`."""

    def __init__(self, parts: Parts, make_job: MakeJob) -> None:
        self._parts = parts
        self._make_job = make_job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, whatever happens to it, and count its outcome."""
        reply = Reply(send, self._parts.write_limit_s)
        try:
            with self._parts.gate.entered():
                outcome = await self._answered(scope, receive, reply)
        except RequestError as error:
            outcome = await refuse(reply, receive, error)
        self._parts.measures.ended(outcome)

    async def _answered(self, scope: Scope, receive: Receive, reply: Reply) -> Outcome:
        try:
            await self._serve(scope, receive, reply)
        except RequestError as error:
            return await refuse(reply, receive, error)
        except Exception:  # noqa: BLE001 - the last boundary: a fault of ours must still end with an answer
            _log.exception("a request failed", extra={"request_id": scope["caller"].request_id})
            return await refuse(reply, receive, RequestError(Code.INTERNAL_ERROR, "The worker failed on this request."))
        return Outcome.OK

    async def _serve(self, scope: Scope, receive: Receive, reply: Reply) -> None:
        parts, caller = self._parts, scope["caller"]
        watch = Stopwatch(parts.clock.monotonic())
        started = parts.engine.ready()
        body = await read_body(scope["headers"], receive, parts.body_limit)
        job = await self._make_job(parts.model, Asked(body, caller, started))
        with Run.of(job, parts.engine, watch, parts.clock) as run:
            async with _failed_when_client_leaves(run.stream, receive):
                await (_stream if job.stream else _whole)(run, reply, caller)


async def _stream(run: Run, reply: Reply, caller: Caller) -> None:
    events = Events(run.job, trusted=caller.trusted)
    more = True
    while more:
        data = events.pieces(await run.pieces())
        more = not run.finished
        if not more:
            data += events.end(run.spent())
        if not reply.started:
            await reply.start(HTTPStatus.OK, sse.HEADERS)
        await reply.write(data, more=more)


async def _whole(run: Run, reply: Reply, caller: Caller) -> None:
    told: list[list[Piece]] = [[] for _ in run.job.choices]
    while not run.finished:
        for index, piece in await run.pieces():
            told[index].append(piece)
    body = run.job.whole(told)
    timing = {"server-timing": phases.server_timing(run.spent())} if caller.trusted else {}
    await reply.whole(HTTPStatus.OK, {"content-type": "application/json", **timing}, body)


@contextlib.asynccontextmanager
async def _failed_when_client_leaves(stream: EngineStream, receive: Receive) -> AsyncIterator[None]:
    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        stream.fail(RequestError(Code.CLIENT_CLOSED, "The client left."))

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()


async def refuse(reply: Reply, receive: Receive, error: RequestError) -> Outcome:
    """End an answer with `error` in the form that its moment allows; the outcome to count."""
    if error.code is Code.CLIENT_CLOSED:
        return error.row.outcome  # nobody is there to read an answer
    if reply.started:
        late = error if error.row.moment is not Moment.BEFORE else RequestError(Code.STREAM_LOST, error.message)
        await reply.write(answer(late).event, more=False)
        return late.row.outcome
    if error.code is Code.REQUEST_TOO_LARGE:
        await _refuse_body(reply, receive, answer(error))
    else:
        await reply.error(answer(error), DRAINING if error.code is Code.DRAINING else {})
    return error.row.outcome


async def _refuse_body(reply: Reply, receive: Receive, refusal: Answer) -> None:
    """Answer before the body has come, then let some of it pass: a close at once would take the answer with it."""
    headers = {**refusal.headers, "content-length": str(len(refusal.body)), "connection": "close"}
    await reply.start(refusal.status, headers)
    await reply.write(refusal.body)
    await discard(receive, LINGER_S)
    await reply.write(b"", more=False)
