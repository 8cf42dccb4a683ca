"""The routes that compute vectors (embeddings, score, rerank), and which model folders they support.

Each text is a sequence in the engine. A list of texts enters the engine in batches of at most AT_ONCE texts and one
step's tokens (a longer text is a batch by itself), so that another request waits for one batch at most.

The vector is the last token's hidden state after the final norm, scaled to length 1: decoders trained for embeddings
expect this. A folder whose sentence-transformers configuration asks for anything else (mean pooling, a dense layer) is
refused by name, because its vectors would be useless. Mean pooling needs the states of all tokens, which a prefix hit
does not compute.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from msgspec import structs

from paceline_core.errors import Code, InvalidInput, RequestError
from paceline_workers.messages import Submit, Tokens
from paceline_workers.model_source import read_bytes
from paceline_workers.server.engine.client import EngineStream
from paceline_workers.server.handlers.active_generation import Stopwatch, failed_when_client_leaves, server_timing
from paceline_workers.server.http.exchange import RequestExchange, understood
from paceline_workers.server.openai.embeddings import MakePooledJob, embedding_job
from paceline_workers.server.openai.jobs import JobInput
from paceline_workers.server.openai.scoring import rerank_job, score_job
from paceline_workers.server.request_handler import Serve, ServerDeps
from paceline_workers.server.text.output import gave_up
from paceline_workers.server.text.tokenizer import read_json

KNOWN = frozenset({"Transformer", "Pooling", "Normalize"})
LAST = "pooling_mode_lasttoken"
_FIX = "this worker takes the last token's hidden state alone"


def refusal(folder: Path) -> str:
    """Why this model cannot embed, in words for a client; "" if it can. Raises InvalidInput."""
    others = [name for name in _modules(folder / "modules.json") if name not in KNOWN]
    if others:
        return f"This model's modules.json adds the module {others[0]} to its embeddings; {_FIX}."
    settings = read_json(folder / "1_Pooling" / "config.json")
    modes = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True]
    if modes in ([], [LAST]):
        return ""
    return f"This model's 1_Pooling/config.json asks for {' and '.join(modes)}; {_FIX}."


def _modules(path: Path) -> list[str]:
    """The kinds of the modules in order: the last part of each `type`."""
    try:
        modules: Any = json.loads(read_bytes(path))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise InvalidInput(str(path), f"cannot be read: {error}") from None
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise InvalidInput(str(path), "must hold a list of JSON objects")
    return [str(module.get("type", "")).rpartition(".")[2] for module in modules]


AT_ONCE = 32
POOLED: Mapping[str, MakePooledJob] = {
    "/v1/embeddings": embedding_job,
    "/v1/score": score_job,
    "/score": score_job,
    "/v1/rerank": rerank_job,
    "/v2/rerank": rerank_job,
    "/rerank": rerank_job,
}
"""All of these routes, by vLLM's names for them."""


def pooled(make_job: MakePooledJob) -> Serve:
    """A route's handler for the bodies that `make_job` parses; a suspect is on trial until it ends."""

    async def serve(parts: ServerDeps, exchange: RequestExchange) -> None:
        with parts.trials.entered(exchange.caller.suspect):
            await _served(parts, exchange, make_job)

    return serve


async def _served(parts: ServerDeps, exchange: RequestExchange, make_job: MakePooledJob) -> None:
    watch = Stopwatch(parts.clock.monotonic())
    started = parts.engine.ready()
    job = await understood(
        exchange, parts.turns, lambda body: make_job(parts.model, JobInput(body, exchange.caller, started))
    )
    watch.submitted = parts.clock.monotonic()
    frames: list[Tokens] = []
    cached = 0
    for number, batch in enumerate(batches(job.submits, parts.step_tokens)):
        frames = await _embedded(parts, exchange, batch, begun=number > 0)
        cached += sum(frame.cached for frame in frames)
        job.take(frames)
        watch.first = watch.first or parts.clock.monotonic()
    parts.measures.requests.embedded(sum(len(submit.prompt) for submit in job.submits), cached)
    spent = watch.phases(parts.clock.monotonic(), frames[0].timing if len(job.submits) == 1 else None)
    timing = {"server-timing": server_timing(spent)} if exchange.caller.trusted else {}
    await exchange.reply.whole(HTTPStatus.OK, {"content-type": "application/json", **timing}, job.answer())


def batches(submits: Sequence[Submit], step_tokens: int) -> Iterator[Sequence[Submit]]:
    """Consecutive submits, as many as fit into a batch."""
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
    """The last frames of these sequences, in order; the deadline applies only to a request's first batch."""
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
                if not frame.vector:
                    raise RequestError(Code.ENGINE_FAILED, "The engine made no vector of this input.")
                ends[frame.id] = frame
    return ends
