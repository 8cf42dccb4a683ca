"""From a request body to a job: what the engine gets, and how its tokens are written back."""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from paceline_core.wire import Resume
from paceline_workers.messages import Started, Submit
from paceline_workers.server.callers import Caller
from paceline_workers.server.detokenize import Decode
from paceline_workers.server.openai.answers import Kind, Shape, Usage, Writer
from paceline_workers.server.openai.beam_search import searched
from paceline_workers.server.openai.best import best as best_candidates
from paceline_workers.server.openai.body import invalid
from paceline_workers.server.openai.chat_answers import CHAT, ChatShape
from paceline_workers.server.openai.choices import Choice
from paceline_workers.server.openai.completion_answers import TEXT, CompletionShape
from paceline_workers.server.openai.lengths import refuse_overlong, room
from paceline_workers.server.openai.requests import (
    ChatRequest,
    CompletionRequest,
    GenerateRequest,
    StreamOptions,
    parse,
)
from paceline_workers.server.openai.resumes import resumed, split
from paceline_workers.server.openai.sampled import sampling
from paceline_workers.server.openai.served import ServedModel, ToolParsing
from paceline_workers.server.openai.tool_answers import TokenBytes, ToolShape
from paceline_workers.server.output import Output, Piece
from paceline_workers.server.tokenizer import Tokenizer

COMPLETION_TOKENS = 16
"""OpenAI's default for `/v1/completions`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came, and the engine it came to."""

    body: bytes
    caller: Caller
    started: Started


@dataclass(frozen=True, slots=True)
class Job:
    """One request, understood. Of all `choices` the `best` ones are told."""

    choices: tuple[Choice, ...]
    writer: Writer
    stream: bool
    options: StreamOptions
    best: int

    def usage(self) -> Usage:
        """Token counts so far."""
        return Usage.of(len(self.choices[0].submit.prompt), [choice.output for choice in self.choices])

    def whole(self, pieces: Sequence[Sequence[Piece]]) -> bytes:
        """The body of an answer that is not streamed, from all pieces of each choice."""
        best = pieces if self.best == len(pieces) else best_candidates(pieces, self.best)
        told = [choice.shape.whole(own) for choice, own in zip(self.choices, best, strict=False)]
        return self.writer.whole(told, self.usage())


@dataclass(frozen=True, slots=True)
class _Prompt:
    """What differs between the routes: tokens in, tokens out, how they are written."""

    ids: list[int]
    max_tokens: int
    logprobs: int
    kind: Kind
    shape: Callable[[int], Shape]
    decode: Decode


async def chat_job(model: ServedModel, asked: Asked) -> Job:
    """A job from the body of `/v1/chat/completions`. Raises RequestError."""
    body, resume = split(asked.body, asked.caller.resume)
    request = parse(ChatRequest, body)
    context = asked.started.max_model_len
    model.known(request.model)
    tools = model.parser(request.offered, request.forced)
    text = model.render(request.messages, request.offered)
    refuse_overlong(model.tokenizer.least(text), context, "messages")
    ids = await model.tokenizer.encode(text, special=False)
    max_tokens = room(len(ids), request.max_completion_tokens or request.max_tokens, None, context, "messages")
    token_bytes = model.tokenizer.token_bytes if request.logprobs else None
    logprobs = request.top_logprobs if request.logprobs else -1
    decode = model.tokenizer.decoder(tools.form.marker) if tools else model.tokenizer.decode
    prompt = _Prompt(ids, max_tokens, logprobs, CHAT, lambda index: _chat_shape(index, token_bytes, tools), decode)
    return await _job(model, request, asked, resume, prompt)


async def completion_job(model: ServedModel, asked: Asked) -> Job:
    """A job from the body of `/v1/completions`. Raises RequestError."""
    body, resume = split(asked.body, asked.caller.resume)
    request = parse(CompletionRequest, body)
    context = asked.started.max_model_len
    model.known(request.model)
    ids = await _ids(model.tokenizer, request.prompt, context)
    max_tokens = room(len(ids), request.max_tokens, COMPLETION_TOKENS, context, "prompt")
    token_bytes = None if request.logprobs is None else model.tokenizer.token_bytes
    logprobs = -1 if request.logprobs is None else request.logprobs
    prompt = _Prompt(
        ids, max_tokens, logprobs, TEXT, lambda index: CompletionShape(index, token_bytes), model.tokenizer.decode
    )
    return await _job(model, request, asked, resume, prompt)


MakeJob = Callable[[ServedModel, Asked], Awaitable[Job]]

GENERATING: Mapping[str, MakeJob] = {"/v1/chat/completions": chat_job, "/v1/completions": completion_job}
"""The generating routes."""


def _chat_shape(index: int, token_bytes: TokenBytes | None, tools: ToolParsing | None) -> Shape:
    return ToolShape(index, token_bytes, tools) if tools else ChatShape(index, token_bytes)


async def _ids(tokenizer: Tokenizer, prompt: str | list[int], context: int) -> list[int]:
    if isinstance(prompt, str):
        refuse_overlong(tokenizer.least(prompt), context, "prompt")
    ids = await tokenizer.encode(prompt, special=True) if isinstance(prompt, str) else prompt
    if not ids:
        raise invalid("`prompt` must hold at least one token.", "prompt")
    if not all(0 <= token < tokenizer.size for token in ids):
        raise invalid(f"`prompt` holds a token id that is not in 0 to {tokenizer.size - 1}.", "prompt")
    return ids


async def _job(
    model: ServedModel, request: GenerateRequest, asked: Asked, resume: Resume | None, prompt: _Prompt
) -> Job:
    if request.min_tokens > prompt.max_tokens:
        raise invalid(f"`min_tokens` is above the {prompt.max_tokens} tokens that may be generated.", "min_tokens")
    if resume and not request.stream:
        raise invalid("Only a stream can be resumed; send the request again.", "stream")
    submit = _submit(model, request, asked, prompt)
    choices = tuple(_choice(request, one, prompt) for one in _sequences(submit, request, asked.started))
    identity, created = f"{prompt.kind.id_prefix}-{submit.id}", int(model.clock.utc().timestamp())
    if resume:
        choices = await resumed(choices, resume, asked.started, model.tokenizer.size)
        identity, created = resume.id, resume.created
    writer = Writer(identity, created, request.model, prompt.kind)
    return Job(choices, writer, request.stream, request.stream_options, request.n)


def _submit(model: ServedModel, request: GenerateRequest, asked: Asked, prompt: _Prompt) -> Submit:
    caller = asked.caller
    seed = _seed(model, request, caller)
    return Submit(
        id=secrets.token_hex(12),
        prompt=prompt.ids,
        max_tokens=prompt.max_tokens,
        sampling=sampling(request, asked.started, seed, _logprobs(request, prompt), model.tokenizer.size),
        request_class=caller.request_class,
        min_tokens=request.min_tokens,
        stop_ids=request.stop_token_ids,
        ignore_eos=request.ignore_eos,
        salt=caller.tenant,
        deadline_s=caller.deadline_s,
    )


def _logprobs(request: GenerateRequest, prompt: _Prompt) -> int:
    """What is asked for; the best of several need their tokens' own."""
    drawn = not request.use_beam_search and request.candidates > request.n
    return max(prompt.logprobs, 0) if drawn else prompt.logprobs


def _sequences(submit: Submit, request: GenerateRequest, started: Started) -> list[Submit]:
    """One for each choice: the same sequence, or the answers of one search."""
    if request.use_beam_search:
        return searched(submit, request, started)
    if request.candidates == 1:
        return [submit]
    ids = [f"{submit.id}-{choice}" for choice in range(request.candidates)]
    return [structs.replace(submit, id=one, choice=choice, group=submit.id) for choice, one in enumerate(ids)]


def _seed(model: ServedModel, request: GenerateRequest, caller: Caller) -> int:
    """The request's own, else the gateway's, else a drawn one."""
    named = [seed for seed in (request.seed, caller.seed) if seed is not None]
    return named[0] if named else model.new_seed()


def _choice(request: GenerateRequest, submit: Submit, prompt: _Prompt) -> Choice:
    output = Output(prompt.decode, stops=request.stop, min_tokens=request.min_tokens)
    return Choice(submit, output, prompt.shape(submit.choice))
