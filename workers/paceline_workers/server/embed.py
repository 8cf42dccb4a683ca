"""The routes of vectors (embeddings, score, rerank): each text is a sequence of its own in the engine, some at a time.

A list enters the engine in batches of at most AT_ONCE texts and one step's tokens (a longer text makes a batch of its
own), so that a request which arrives beside it waits for one batch at most.
"""

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

from msgspec import structs

from paceline_core.errors import Code, RequestError
from paceline_workers.messages import Submit, Tokens
from paceline_workers.server import phases
from paceline_workers.server.conduct import Serve, ServerDeps, failed_when_client_leaves, understood
from paceline_workers.server.engine_stream import EngineStream
from paceline_workers.server.exchange import RequestExchange
from paceline_workers.server.openai.embeddings import embedding_job
from paceline_workers.server.openai.jobs import JobInput
from paceline_workers.server.openai.pooled import MakePooledJob
from paceline_workers.server.openai.scoring import rerank_job, score_job
from paceline_workers.server.output import gave_up
from paceline_workers.server.phases import Stopwatch

AT_ONCE = 32
POOLED: Mapping[str, MakePooledJob] = {
    "/v1/embeddings": embedding_job,
    "/v1/score": score_job,
    "/score": score_job,
    "/v1/rerank": rerank_job,
    "/v2/rerank": rerank_job,
    "/rerank": rerank_job,
}
"""All of these routes, by the names that vLLM has for them."""


def pooled(make_job: MakePooledJob) -> Serve:
    """How a route answers whose bodies `make_job` understands; a suspect is on trial to its end."""

    async def serve(parts: ServerDeps, exchange: RequestExchange) -> None:
        with parts.trials.entered(exchange.caller.suspect):
            await _served(parts, exchange, make_job)

    return serve


async def _served(parts: ServerDeps, exchange: RequestExchange, make_job: MakePooledJob) -> None:
    watch = Stopwatch(parts.clock.monotonic())
    started = parts.engine.ready()
    job = await understood(
        parts, exchange, lambda body: make_job(parts.model, JobInput(body, exchange.caller, started))
    )
    watch.submit(parts.clock.monotonic())
    frames: list[Tokens] = []
    cached = 0
    for number, batch in enumerate(batches(job.submits, parts.step_tokens)):
        frames = await _embedded(parts, exchange, batch, begun=number > 0)
        cached += sum(frame.cached for frame in frames)
        job.take(frames)
        watch.token(parts.clock.monotonic())
    parts.measures.requests.embedded(sum(len(submit.prompt) for submit in job.submits), cached)
    spent = watch.phases(parts.clock.monotonic(), frames[0].timing if len(job.submits) == 1 else None)
    timing = {"server-timing": phases.server_timing(spent)} if exchange.caller.trusted else {}
    await exchange.reply.whole(HTTPStatus.OK, {"content-type": "application/json", **timing}, job.answer())


def batches(submits: Sequence[Submit], step_tokens: int) -> Iterator[Sequence[Submit]]:
    """Consecutive submits, as many as fit."""
    start = tokens = 0
    for end, submit in enumerate(submits):
        tokens += len(submit.prompt)
        if end > start and (tokens > step_tokens or end - start == AT_ONCE):
            yield submits[start:end]
            start, tokens = end, len(submit.prompt)
    yield submits[start:]


async def _embedded(
    parts: ServerDeps, exchange: RequestExchange, submits: Sequence[Submit], *, begun: bool
) -> list[Tokens]:
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
