"""The generating routes: a body in, one JSON answer or a stream of events out.

Headers and status wait for the first tokens, so a failure before them is still a plain HTTP error that a gateway can
retry. After them it becomes an SSE error event. The client's going away fails the engine's stream, whose reader is
then the one place where a request ends: by its last token, by the engine, by drain, or by its client.
"""

from contextlib import nullcontext
from http import HTTPStatus
from itertools import chain

from paceline_core.wire import VOCABULARY
from paceline_workers.server.handlers.active_generation import (
    ActiveGeneration,
    Stopwatch,
    failed_when_client_leaves,
    server_timing,
)
from paceline_workers.server.http.exchange import RequestExchange, understood
from paceline_workers.server.openai.jobs import Events, JobInput, MakeJob, written
from paceline_workers.server.request_handler import Serve, ServerDeps
from paceline_workers.server.text.output import Piece
from paceline_workers.server.trial_runs import TrialRun

HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no"}


def generating(make_job: MakeJob) -> Serve:
    """How a route answers whose bodies `make_job` understands."""

    async def serve(parts: ServerDeps, exchange: RequestExchange) -> None:
        caller, clock, measures = exchange.caller, parts.clock, parts.measures.requests
        with parts.trials.entered(caller.suspect) as trial:
            watch = Stopwatch(clock.monotonic(), measures.meter)
            started = parts.engine.ready()
            turns = parts.turns
            job = await understood(
                exchange, turns, lambda body: make_job(parts.model, JobInput(body, caller, started, turns.take))
            )
            with parts.engine.submit(*(choice.submit for choice in job.choices if not choice.finish)) as stream:
                watch.submitted = clock.monotonic()
                run = ActiveGeneration(job, parts.engine, stream, watch, clock)
                movable = parts.streams.entered(caller.request_id, stream) if exchange.movable else nullcontext()
                async with failed_when_client_leaves(stream, exchange):
                    with measures.following(run, caller, clock), movable:
                        if job.stream:
                            await _stream(parts, exchange, run, trial)
                        else:
                            await _whole(exchange, run, trial)

    return serve


async def _stream(parts: ServerDeps, exchange: RequestExchange, run: ActiveGeneration, trial: TrialRun) -> None:
    headers = HEADERS | {VOCABULARY: parts.model.tokenizer.vocabulary} if exchange.movable else HEADERS
    events, reply = Events(run.job, trusted=exchange.caller.trusted), exchange.reply
    more = True
    while more:
        pieces = await run.pieces()
        if trial.left:
            trial.brought(sum(len(piece.ids) for _, piece in pieces))
        data = await written(events.pieces, pieces, (piece for _, piece in pieces), long=run.job.long)
        more = bool(run.open)
        if not more:
            data += events.end(run.spent())
        if not reply.started:
            await reply.start(HTTPStatus.OK, headers)
        await reply.write(data, more=more)


async def _whole(exchange: RequestExchange, run: ActiveGeneration, trial: TrialRun) -> None:
    pieces_by_choice: list[list[Piece]] = [[] for _ in run.job.choices]
    while pieces := await run.pieces():
        for index, piece in pieces:
            trial.brought(len(piece.ids))
            pieces_by_choice[index].append(piece)
    body = await written(run.job.whole, pieces_by_choice, chain.from_iterable(pieces_by_choice), long=run.job.long)
    timing = {"server-timing": server_timing(run.spent())} if exchange.caller.trusted else {}
    await exchange.reply.whole(HTTPStatus.OK, {"content-type": "application/json", **timing}, body)
