"""From a chat to a job: its prompt by the model's template, the calls and the reasoning in its answer.

Routes that tell chats in other forms translate their bodies into a chat's request, and bring the form of its answers.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET

from paceline_core.wire import Resume
from paceline_workers.messages import PromptLogprob
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


@dataclass(frozen=True, slots=True)
class _Shapes:
    """Makes the shape of each choice. `own`: the one that writes the whole answer, if the route has such a form."""

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
            made = Echo(made, last.content)  # the answer has its role or goes on with it, as in vLLM
        return WithTokenIds(made) if request.return_token_ids else made


async def chat_job(model: ServedModel, asked: JobInput) -> GenerationJob:
    """A job from the body of `/v1/chat/completions`. Raises RequestError."""
    body, resume = split(asked.body, asked.caller.resume)
    return await chat(model, parse(ChatRequest, body), asked, resume, AnswerFormat())


async def chat(
    model: ServedModel, request: ChatRequest, asked: JobInput, resume: Resume | None, form: AnswerFormat
) -> GenerationJob:
    """A job of a chat, whatever route it came to. Raises RequestError."""
    limit, most_calls, scored = request.limit, request.most_calls, request.scored
    model.known(request.model)
    model = model.with_template(request.chat_template)
    tools = model.parser(request, most_calls)
    text = model.render(request.messages, request)
    continued = request.messages[-1].content if request.continue_final_message else None
    reasoning = model.template.begun(text, continued) if model.template else None
    context, tokenizer = asked.started.max_model_len, model.tokenizer
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
        scored,
        form.kind,
        decode if request.skip_special_tokens else tokenizer.decode_all,
        ids if request.return_token_ids else UNSET,
        text if request.return_prompt_text else UNSET,
        alternative=_followed_as(model, request, tools, reasoning) if tools or reasoning else None,
        reasoning=reasoning,
        include_reasoning=request.include_reasoning,
        identity=identity,
        own=shapes.own,
    )
    return await job_of(model, request, asked, resume, wanted)


def _followed_as(
    model: ServedModel, request: ChatRequest, tools: ToolParsing | None, reasoning: ReasoningMarkers | None
) -> Callable[[str], str]:
    """What makes of the grammar of an answer one of the whole text: with reasoning before it, or calls in its place."""
    special = model.tokenizer.grammar_token

    def followed(answer: str) -> str:
        if tools is not None and request.forced is None:  # calls may come, but need not
            syntax, schemas, most = tools.form.syntax, request.schemas, request.most_calls
            answer = alternative(answer, syntax, schemas, special, most=most)
        return answer if reasoning is None else after_reasoning(answer, reasoning, special)

    return followed
