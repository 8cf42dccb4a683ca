"""Turns a chat into a job: renders its prompt with the model's template, and parses calls and reasoning in its answer.

Other chat-like routes translate their bodies into a chat's request and supply an answer format.
"""

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from paceline_core.wire import Resume
from paceline_workers.messages import PromptLogprob
from paceline_workers.server.openai.chat_fields import CALLS_LIMIT
from paceline_workers.server.openai.chat_responses import CHAT, ChatShape, Echo, ToolShape
from paceline_workers.server.openai.inputs import Encoding, room
from paceline_workers.server.openai.jobs import GenerationJob, JobInput
from paceline_workers.server.openai.requests import ChatRequest
from paceline_workers.server.openai.response_writer import ObjectKind, ResponseShape, TokenBytes, WritingShape
from paceline_workers.server.openai.resume import split
from paceline_workers.server.openai.served_model import ServedModel, ToolParsing
from paceline_workers.server.openai.submits import Prompt, Wanted, job_of, token_bytes_of
from paceline_workers.server.openai.token_ids import WithTokenIds
from paceline_workers.server.openai.validation import parse
from paceline_workers.server.text.reasoning import ReasoningMarkers, after_reasoning
from paceline_workers.server.tools.grammar import alternative, schema_of

Opening = Callable[[ResponseShape, str, int, int], WritingShape]
"""Makes the answer writer of another route, from a chat's shape, the answer's id and time, and the prompt's tokens."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """How a route formats a chat's answer: the names of its objects, and its writer unless it uses a chat's form.

    `prompt`: the field that holds the turns.
    """

    kind: ObjectKind = CHAT
    opening: Opening | None = None
    prompt: str = "messages"


@dataclass(frozen=True, slots=True)
class _Shapes:
    """Makes the shape of each choice. `own`: the shape that writes the whole answer, if the route has one."""

    request: ChatRequest
    form: AnswerFormat
    tools: ToolParsing | None
    token_bytes: TokenBytes | None
    identity: str
    created: int
    prompt_tokens: int
    own: list[WritingShape] = field(default_factory=list)

    def __call__(self, index: int, _scores: Sequence[PromptLogprob]) -> ResponseShape:
        request, last = self.request, self.request.messages[-1]
        made: ResponseShape = ChatShape(index, self.token_bytes)
        if self.tools:
            made = ToolShape(index, self.token_bytes, self.tools, self.identity)
        if self.form.opening is not None:
            self.own.append(self.form.opening(made, self.identity, self.created, self.prompt_tokens))
            return self.own[0]
        if request.echo and (last.role == "assistant" or not request.begins_turn) and last.content:
            made = Echo(made, last.content)  # the answer has its role or continues it, as in vLLM
        return WithTokenIds(made) if request.return_token_ids else made


async def chat_job(model: ServedModel, asked: JobInput) -> GenerationJob:
    """A job from the body of `/v1/chat/completions`. Raises RequestError."""
    body, resume = split(asked.body, asked.caller.resume)
    return await chat(model, parse(ChatRequest, body), asked, resume, AnswerFormat())


async def chat(
    model: ServedModel, request: ChatRequest, asked: JobInput, resume: Resume | None, form: AnswerFormat
) -> GenerationJob:
    """A chat's job, for any route. Raises RequestError."""
    model.known(request.model)
    model = model.with_template(request.chat_template)
    tools = model.parser(request, CALLS_LIMIT if request.parallel_tool_calls else 1)
    text = model.render(request.messages, request)
    continued = request.messages[-1].content if request.continue_final_message else None
    reasoning = model.template.begun(text, continued) if model.template else None
    context, tokenizer, limit = asked.started.max_model_len, model.tokenizer, request.max_tokens
    how = Encoding(bool(request.add_special_tokens), request.truncation(context, limit or 0))
    ids = await how.chat_ids(text, tokenizer, context, form.prompt, request.salt(asked.caller.tenant))
    max_tokens = room(len(ids), limit, asked.caller.max_tokens, context, form.prompt)
    markers = (*(tools.form.markers if tools else ()), *(reasoning.markers if reasoning else ()))
    decode = tokenizer.decoder(markers) if markers else tokenizer.decode
    identity = resume.id if resume else form.kind.id_prefix + secrets.token_hex(12)
    created = resume.created if resume else int(model.clock.utc().timestamp())
    token_bytes = token_bytes_of(model, request) if request.logprobs else None
    shapes = _Shapes(request, form, tools, token_bytes, identity, created, len(ids))
    wanted = Wanted(
        [Prompt(ids, max_tokens, shapes)],
        request.top_logprobs if request.logprobs else -1,
        ("prompt_logprobs", request.prompt_logprobs),
        form.kind,
        decode if request.skip_special_tokens else tokenizer.decode_all,
        ids if request.return_token_ids else UNSET,
        text if request.return_prompt_text else UNSET,
        calls=_forced_calls(request, tools) if tools and request.forced is not None else "",
        alternative=_followed_as(model, request, tools, reasoning) if tools or reasoning else None,
        reasoning=reasoning,
        include_reasoning=request.include_reasoning,
        identity=identity,
        own=shapes.own,
    )
    return await job_of(model, request, asked, resume, wanted)


def _forced_calls(request: ChatRequest, tools: ToolParsing) -> str:
    """The grammar of the calls that the model must make."""
    return f"json_schema:{json.dumps(schema_of(request.forced or '', _schemas(request), tools.most))}"


def _schemas(request: ChatRequest) -> dict[str, dict[str, Any]]:
    """The schema of each function's arguments."""
    return {tool.function.name: tool.function.parameters for tool in request.tools}


def _followed_as(
    model: ServedModel, request: ChatRequest, tools: ToolParsing | None, reasoning: ReasoningMarkers | None
) -> Callable[[str], str]:
    """Extends the grammar of an answer to the whole text: allows reasoning before it, or calls instead of it."""
    special = model.tokenizer.grammar_token

    def followed(answer: str) -> str:
        if tools is not None and request.forced is None:  # calls are optional
            answer = alternative(answer, tools.form.syntax, _schemas(request), special, most=tools.most)
        return answer if reasoning is None else after_reasoning(answer, reasoning, special)

    return followed
