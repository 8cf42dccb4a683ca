"""`/v1/embeddings`: each input is a sequence of its own in the engine, some of them at a time.

So a long list takes turns with everybody else's requests, and never more than AT_ONCE places of the engine's queue.
"""

from collections.abc import Sequence
from http import HTTPStatus

from msgspec import structs

from paceline_core.errors import Code, RequestError
from paceline_workers.messages import Submit, Tokens
from paceline_workers.server import phases
from paceline_workers.server.conduct import Parts, failed_when_client_leaves, understood
from paceline_workers.server.engine_stream import EngineStream
from paceline_workers.server.exchange import Exchange
from paceline_workers.server.openai.embeddings import embedding_job
from paceline_workers.server.openai.jobs import Asked
from paceline_workers.server.output import gave_up
from paceline_workers.server.phases import Stopwatch

AT_ONCE = 32


async def serve_embeddings(parts: Parts, exchange: Exchange) -> None:
    """Answer one request; a suspect is on trial to its end. Raises RequestError."""
    with parts.trials.entered(exchange.caller.suspect):
        await _served(parts, exchange)


async def _served(parts: Parts, exchange: Exchange) -> None:
    watch = Stopwatch(parts.clock.monotonic())
    started = parts.engine.ready()
    job = await understood(
        parts, exchange, lambda body: embedding_job(parts.model, Asked(body, exchange.caller, started))
    )
    watch.submit(parts.clock.monotonic())
    frames: list[Tokens] = []
    for start in range(0, len(job.submits), AT_ONCE):
        frames += await _embedded(parts, exchange, job.submits[start : start + AT_ONCE], begun=start > 0)
        watch.token(parts.clock.monotonic())
    cached = sum(frame.cached for frame in frames)
    parts.measures.requests.embedded(sum(len(submit.prompt) for submit in job.submits), cached)
    spent = watch.phases(parts.clock.monotonic(), frames[0].timing if len(frames) == 1 else None)
    timing = {"server-timing": phases.server_timing(spent)} if exchange.caller.trusted else {}
    await exchange.reply.whole(HTTPStatus.OK, {"content-type": "application/json", **timing}, job.answer(frames))


async def _embedded(parts: Parts, exchange: Exchange, submits: Sequence[Submit], *, begun: bool) -> list[Tokens]:
    """The last frames of these sequences, in order; the deadline is for a request's first ones alone."""
    if begun:
        submits = [structs.replace(submit, deadline_s=0.0) for submit in submits]
    with parts.engine.submit(*submits) as stream:
        async with failed_when_client_leaves(stream, exchange):
            ends = await _ends(stream)
    return [ends[submit.id] for submit in submits]


async def _ends(stream: EngineStream) -> dict[str, Tokens]:
    ends: dict[str, Tokens] = {}
    while len(ends) < len(stream.sequences):
        for frame in await stream.read():
            if error := gave_up(frame):
                raise error
            if frame.finish:
                ends[frame.id] = _whole(frame)
    return ends


def _whole(frame: Tokens) -> Tokens:
    if not frame.vector:
        raise RequestError(Code.ENGINE_FAILED, "The engine made no vector of this input.")
    return frame
