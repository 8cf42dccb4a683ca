"""The generating routes: a body in, one JSON answer or a stream of events out.

Headers and status wait for the first tokens, so a failure before them is still a plain HTTP error that a gateway can
retry. After them it becomes an SSE error event. The client's going away fails the engine's stream, whose reader is
then the one place where a request ends: by its last token, by the engine, by drain, or by its client.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus
from itertools import chain
from typing import TypeVar

from paceline_core.wire import VOCABULARY
from paceline_workers.server import phases
from paceline_workers.server.handlers.active_generation import ActiveGeneration, Pieces
from paceline_workers.server.http import sse
from paceline_workers.server.http.exchange import RequestExchange
from paceline_workers.server.openai.jobs import INLINE, JobInput
from paceline_workers.server.openai.routes import MakeJob
from paceline_workers.server.openai.stream_events import Events
from paceline_workers.server.request_handler import Serve, ServerDeps, failed_when_client_leaves, understood
from paceline_workers.server.text.output import Piece
from paceline_workers.server.trial_runs import TrialRun

P = TypeVar("P")


def generating(make_job: MakeJob) -> Serve:
    """How a route answers whose bodies `make_job` understands."""

    async def serve(parts: ServerDeps, exchange: RequestExchange) -> None:
        with parts.trials.entered(exchange.caller.suspect) as trial:
            await run_job(parts, exchange, trial)

    async def run_job(parts: ServerDeps, exchange: RequestExchange, trial: TrialRun) -> None:
        measures = parts.measures.requests
        watch = measures.watch(parts.clock.monotonic())
        started = parts.engine.ready()
        job = await understood(
            parts,
            exchange,
            lambda body: make_job(parts.model, JobInput(body, exchange.caller, started, parts.turns.take)),
        )
        with (
            ActiveGeneration.of(job, parts.engine, watch, parts.clock) as run,
            measures.following(run, exchange.caller, parts.clock),
            _open(parts, exchange, run),
        ):
            async with failed_when_client_leaves(run.stream, exchange):
                if job.stream:
                    await _stream(run, exchange, trial, _headers(parts, exchange))
                else:
                    await _whole(run, exchange, trial)

    return serve


def _open(parts: ServerDeps, exchange: RequestExchange, run: ActiveGeneration) -> AbstractContextManager[None]:
    """Where it is found by whoever wants to move it."""
    if not exchange.movable:
        return nullcontext()
    return parts.streams.entered(exchange.caller.request_id, run.stream)


def _headers(parts: ServerDeps, exchange: RequestExchange) -> Mapping[str, str]:
    return sse.HEADERS | {VOCABULARY: parts.model.tokenizer.vocabulary} if exchange.movable else sse.HEADERS


async def _stream(
    run: ActiveGeneration, exchange: RequestExchange, trial: TrialRun, headers: Mapping[str, str]
) -> None:
    events, reply = Events(run.job, trusted=exchange.caller.trusted), exchange.reply
    more = True
    while more:
        pieces = await run.pieces()
        trial.brought(_tokens(pieces))
        data = await written(events.pieces, pieces, (piece for _, piece in pieces), long=run.job.long)
        more = not run.finished
        if not more:
            data += events.end(run.spent())
        if not reply.started:
            await reply.start(HTTPStatus.OK, headers)
        await reply.write(data, more=more)


async def _whole(run: ActiveGeneration, exchange: RequestExchange, trial: TrialRun) -> None:
    pieces_by_choice: list[list[Piece]] = [[] for _ in run.job.choices]
    while not run.finished:
        pieces = await run.pieces()
        trial.brought(_tokens(pieces))
        for index, piece in pieces:
            pieces_by_choice[index].append(piece)
    body = await written(run.job.whole, pieces_by_choice, chain.from_iterable(pieces_by_choice), long=run.job.long)
    timing = {"server-timing": phases.server_timing(run.spent())} if exchange.caller.trusted else {}
    await exchange.reply.whole(HTTPStatus.OK, {"content-type": "application/json", **timing}, body)


async def written(
    write: Callable[[P], bytes], pieces_by_choice: P, pieces: Iterable[Piece], *, long: bool = False
) -> bytes:
    """What `write` makes of `pieces_by_choice`, which holds `pieces`.

    In a thread where the scores of a prompt (`long`) or of an answer make it long, so that others get turns.
    """
    long = long or sum(1 + len(candidates) for piece in pieces for _, candidates in piece.logprobs) > INLINE
    return await asyncio.to_thread(write, pieces_by_choice) if long else write(pieces_by_choice)


def _tokens(pieces: Pieces) -> int:
    return sum(len(piece.ids) for _, piece in pieces)
