"""The generating routes: they take a body and return one JSON answer or a stream of events."""

from contextlib import nullcontext
from functools import partial

from paceline_workers.server.handlers.active_generation import (
    ActiveGeneration,
    Stopwatch,
    failed_when_client_leaves,
    reported,
    write_stream,
    write_whole,
)
from paceline_workers.server.http.exchange import RequestExchange, understood
from paceline_workers.server.openai.jobs import JobInput, MakeJob
from paceline_workers.server.request_handler import Serve, ServerDeps


def generating(make_job: MakeJob) -> Serve:
    """A route's handler for the bodies that `make_job` parses."""

    async def serve(parts: ServerDeps, exchange: RequestExchange) -> None:
        caller, clock, measures = exchange.caller, parts.clock, parts.measures.requests
        with parts.trials.entered(caller.suspect) as trial:
            watch = Stopwatch(clock.monotonic(), measures.meter)
            started, turns = parts.engine.ready(), parts.turns
            job = await understood(
                exchange, turns, lambda body: make_job(parts.model, JobInput(body, caller, started, turns.take))
            )
            with (
                parts.engine.submit(*(choice.submit for choice in job.choices if not choice.finish)) as stream,
                parts.streams.entered(caller.request_id, stream) if exchange.movable else nullcontext(),
            ):
                watch.submitted = clock.monotonic()
                run = ActiveGeneration(job, parts.engine, stream, watch, clock)
                async with failed_when_client_leaves(stream, exchange):
                    with reported(partial(measures.ended, run, caller, clock)):
                        if job.stream:
                            await write_stream(run, trial, exchange, parts.model.tokenizer.vocabulary)
                        else:
                            await write_whole(run, trial, exchange)

    return serve
