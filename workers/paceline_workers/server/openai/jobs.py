"""From a request body to a job: what the engine gets, and how its tokens are written back."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from paceline_core.clock import Clock
from paceline_core.errors import Code, RequestError
from paceline_workers.messages import Sampling, Submit
from paceline_workers.server.callers import Caller
from paceline_workers.server.chat import ChatTemplate
from paceline_workers.server.openai.answers import Shape, Usage, Writer
from paceline_workers.server.openai.chat_answers import ChatShape
from paceline_workers.server.openai.completion_answers import CompletionShape
from paceline_workers.server.openai.lengths import refuse_overlong, room
from paceline_workers.server.openai.requests import (
    ChatRequest,
    CompletionRequest,
    GenerateRequest,
    StreamOptions,
    parse,
)
from paceline_workers.server.output import Output
from paceline_workers.server.tokenizer import Tokenizer

COMPLETION_TOKENS = 16
"""OpenAI's default for `/v1/completions`."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model as text sees it. `new_seed` gives the seed of a request that names none."""

    names: tuple[str, ...]
    tokenizer: Tokenizer
    template: ChatTemplate | None
    clock: Clock
    new_seed: Callable[[], int] = lambda: secrets.randbits(63)


@dataclass(frozen=True, slots=True)
class Job:
    """One request, understood."""

    submit: Submit
    output: Output
    writer: Writer
    stream: bool
    options: StreamOptions

    def usage(self) -> Usage:
        """Token counts so far."""
        return Usage.of(len(self.submit.prompt), self.output)


@dataclass(frozen=True, slots=True)
class _Prompt:
    """What differs between the routes: tokens in, tokens out, how they are written."""

    ids: list[int]
    max_tokens: int
    logprobs: int
    shape: Shape


async def chat_job(model: ServedModel, body: bytes, caller: Caller, context: int) -> Job:
    """A job from the body of `/v1/chat/completions`. Raises RequestError."""
    request = parse(ChatRequest, body)
    _known(model, request.model)
    if model.template is None:
        raise _invalid("This model has no chat template; use /v1/completions.", "messages")
    text = model.template.render([message.plain() for message in request.messages])
    refuse_overlong(model.tokenizer.least(text), context, "messages")
    ids = await model.tokenizer.encode(text, special=False)
    max_tokens = room(len(ids), request.max_completion_tokens or request.max_tokens, None, context, "messages")
    shape = ChatShape(model.tokenizer.token_bytes if request.logprobs else None)
    logprobs = request.top_logprobs if request.logprobs else -1
    return _job(model, request, caller, _Prompt(ids, max_tokens, logprobs, shape))


async def completion_job(model: ServedModel, body: bytes, caller: Caller, context: int) -> Job:
    """A job from the body of `/v1/completions`. Raises RequestError."""
    request = parse(CompletionRequest, body)
    _known(model, request.model)
    ids = await _ids(model.tokenizer, request.prompt, context)
    max_tokens = room(len(ids), request.max_tokens, COMPLETION_TOKENS, context, "prompt")
    shape = CompletionShape(None if request.logprobs is None else model.tokenizer.token_bytes)
    logprobs = -1 if request.logprobs is None else request.logprobs
    return _job(model, request, caller, _Prompt(ids, max_tokens, logprobs, shape))


MakeJob = Callable[[ServedModel, bytes, Caller, int], Awaitable[Job]]

GENERATING: Mapping[str, MakeJob] = {"/v1/chat/completions": chat_job, "/v1/completions": completion_job}
"""The generating routes."""


def _known(model: ServedModel, name: str) -> None:
    if name not in model.names:
        raise RequestError(Code.MODEL_NOT_FOUND, f"The model `{name}` does not exist here.", param="model")


async def _ids(tokenizer: Tokenizer, prompt: str | list[int], context: int) -> list[int]:
    if isinstance(prompt, str):
        refuse_overlong(tokenizer.least(prompt), context, "prompt")
    ids = await tokenizer.encode(prompt, special=True) if isinstance(prompt, str) else prompt
    if not ids:
        raise _invalid("`prompt` must hold at least one token.", "prompt")
    if not all(0 <= token < tokenizer.size for token in ids):
        raise _invalid(f"`prompt` holds a token id that is not in 0 to {tokenizer.size - 1}.", "prompt")
    return ids


def _job(model: ServedModel, request: GenerateRequest, caller: Caller, prompt: _Prompt) -> Job:
    if request.min_tokens > prompt.max_tokens:
        raise _invalid(f"`min_tokens` is above the {prompt.max_tokens} tokens that may be generated.", "min_tokens")
    identity = secrets.token_hex(12)
    seed = model.new_seed() if request.seed is None else request.seed
    submit = Submit(
        id=identity,
        prompt=prompt.ids,
        max_tokens=prompt.max_tokens,
        sampling=Sampling(request.temperature, request.top_p, max(request.top_k, 0), seed, prompt.logprobs),
        request_class=caller.request_class,
        min_tokens=request.min_tokens,
        stop_ids=request.stop_token_ids,
        ignore_eos=request.ignore_eos,
        salt=caller.tenant,
        deadline_s=caller.deadline_s,
    )
    output = Output(model.tokenizer.decode, stops=request.stop, min_tokens=request.min_tokens)
    created = int(model.clock.utc().timestamp())
    writer = Writer(f"{prompt.shape.id_prefix}-{identity}", created, request.model, prompt.shape)
    return Job(submit, output, writer, request.stream, request.stream_options)


def _invalid(message: str, param: str) -> RequestError:
    return RequestError(Code.INVALID_REQUEST, message, param=param)
