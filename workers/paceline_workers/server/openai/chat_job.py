"""From a chat to a job: its prompt by the model's template, the calls and the reasoning in its answer.

Routes that tell chats in other forms translate their bodies into a chat's request, and bring the form of its answers.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec import UNSET

from paceline_core.wire import Resume
from paceline_workers.messages import PromptLogprob
from paceline_workers.server.openai.chat_responses import CHAT, ChatShape, Echo, ToolShape
from paceline_workers.server.openai.inputs import Encoding, room
from paceline_workers.server.openai.jobs import GenerationJob, JobInput, Prompt, Wanted, job_of, token_bytes_of
from paceline_workers.server.openai.requests import ChatRequest, parse
from paceline_workers.server.openai.response_writer import ObjectKind, ResponseShape, WritingShape
from paceline_workers.server.openai.resume import split
from paceline_workers.server.openai.served_model import ServedModel, ToolParsing
from paceline_workers.server.openai.token_ids import WithTokenIds
from paceline_workers.server.text.reasoning import ReasoningMarkers, after_reasoning
from paceline_workers.server.tools.grammar import alternative

Opening = Callable[[ResponseShape, str, int, int], WritingShape]
"""What writes the answer of another route: from a chat's shape, the answer's id and time, the prompt's tokens."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """How a route tells what a chat answers: what its answers are called, and what writes them, if no chat's form does.

    `prompt`: the field that holds the turns.
    """

    kind: ObjectKind = CHAT
    opening: Opening | None = None
    prompt: str = "messages"


async def chat_job(model: ServedModel, asked: JobInput) -> GenerationJob:
    """A job from the body of `/v1/chat/completions`. Raises RequestError."""
    body, resume = split(asked.body, asked.caller.resume)
    return await chat(model, parse(ChatRequest, body), asked, resume, AnswerFormat())


async def chat(
    model: ServedModel, request: ChatRequest, asked: JobInput, resume: Resume | None, form: AnswerFormat
) -> GenerationJob:
    """A job of a chat, whatever route it came to. Raises RequestError."""
    context = asked.started.max_model_len
    model.known(request.model)
    model = model.with_template(request.chat_template)
    tools = model.parser(request.offered, request.forced, request.most_calls)
    text, ids = await _chat_prompt(model, request, asked, form.prompt)
    reasoning = model.template.begun(text, request.continued) if model.template else None
    max_tokens = room(len(ids), request.limit, asked.caller.max_tokens, context, form.prompt)
    token_bytes = token_bytes_of(model, request) if request.logprobs else None
    logprobs = request.top_logprobs if request.logprobs else -1
    markers = (*(tools.form.markers if tools else ()), *(reasoning.markers if reasoning else ()))

    identity = resume.id if resume else form.kind.id_prefix + secrets.token_hex(12)
    own: list[WritingShape] = []

    def shape(index: int, _scores: Sequence[PromptLogprob]) -> ResponseShape:
        made: ResponseShape = ToolShape(index, token_bytes, tools, identity) if tools else ChatShape(index, token_bytes)
        if form.opening is not None:
            created = resume.created if resume else int(model.clock.utc().timestamp())
            own.append(form.opening(made, identity, created, len(ids)))
            return own[0]
        made = Echo(made, request.echoed) if request.echoed else made
        return WithTokenIds(made) if request.return_token_ids else made

    wanted = Wanted(
        [Prompt(ids, max_tokens, shape)],
        logprobs,
        form.kind,
        model.tokenizer.decoder(markers) if request.skip_special_tokens else model.tokenizer.decode_all,
        ids if request.return_token_ids else UNSET,
        text if request.return_prompt_text else UNSET,
        alternative=_followed_as(model, request, tools, reasoning),
        reasoning=reasoning,
        include_reasoning=request.include_reasoning,
        identity=identity,
        own=own,
    )
    return await job_of(model, request, asked, resume, wanted)


def _followed_as(
    model: ServedModel, request: ChatRequest, tools: ToolParsing | None, reasoning: ReasoningMarkers | None
) -> Callable[[str], str] | None:
    """What makes of the grammar of an answer one of the whole text."""
    or_calls = _or_calls(model, request, tools)
    if reasoning is None:
        return or_calls
    begun, special = reasoning, model.tokenizer.grammar_token
    return lambda answer: after_reasoning(or_calls(answer) if or_calls else answer, begun, special)


def _or_calls(model: ServedModel, request: ChatRequest, tools: ToolParsing | None) -> Callable[[str], str] | None:
    """What makes of the grammar of an answer one that also takes calls; None where none may come or they must."""
    if tools is None or request.forced is not None:
        return None
    special = model.tokenizer.grammar_token
    return partial(
        alternative, syntax=tools.form.syntax, schemas=request.schemas, special=special, most=request.most_calls
    )


async def _chat_prompt(model: ServedModel, request: ChatRequest, asked: JobInput, prompt: str) -> tuple[str, list[int]]:
    """A chat's prompt as the template writes it, and its ids. Raises RequestError."""
    context, tokenizer = asked.started.max_model_len, model.tokenizer
    text = model.prompt(request.messages, request)
    how = Encoding(bool(request.add_special_tokens), request.truncation(context, request.limit or 0))
    how.check(text, tokenizer, context, prompt)
    if how.special:
        ids = await tokenizer.encode(text, special=True)
    else:
        ids = await tokenizer.encode_chat(text, request.salt(asked.caller.tenant))
    return text, how.truncate(ids, tokenizer, text=True)
