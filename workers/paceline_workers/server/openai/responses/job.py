"""Turns the body of a response into the job of the equivalent chat, with the answer in the form of responses.

With `truncation: "auto"`, a conversation that is too long loses its oldest turns until it fits into the context.

Turns are dropped whole, oldest first: first exchanges (a user's turn and everything up to the next one), then, after
the last user's turn, steps (an assistant's turn with the results of its calls). So no result remains without its call,
and the rest begins with a user's turn. Instructions, turns of the roles `system` and `developer`, the last user's turn
and the newest step after it always remain: if these are too long, the request is refused as without truncation.

The answer does not say which turns were dropped. Known hole: a stream that is resumed at a worker with another context
length continues after another prompt.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from paceline_core.errors import RequestError
from paceline_workers.server.openai.chat_fields import ChatMessage
from paceline_workers.server.openai.chat_job import AnswerFormat, chat
from paceline_workers.server.openai.inputs import most_counted
from paceline_workers.server.openai.jobs import GenerationJob, JobInput
from paceline_workers.server.openai.requests import ChatRequest
from paceline_workers.server.openai.response_writer import ResponseShape, WritingShape
from paceline_workers.server.openai.responses.answer import RESPONSE, ResponseAnswer
from paceline_workers.server.openai.responses.request import ResponsesRequest
from paceline_workers.server.openai.resume import split
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.openai.validation import parse, refusal

_INSTRUCTION_ROLES = frozenset({"system", "developer"})
_LONG = 64 << 10
"""A body of more bytes than this takes milliseconds to render."""


def droppable(roles: Sequence[str]) -> list[list[int]]:
    """The indices of the turns that may be dropped, in groups that are dropped together, in order. Pure."""
    places = [place for place, role in enumerate(roles) if role not in _INSTRUCTION_ROLES]
    last = max((place for place in places if roles[place] == "user"), default=-1)
    groups: list[list[int]] = []
    for place in places:
        if place == last:
            continue
        opens = "user" if place < last else "assistant"
        if not groups or roles[place] == opens or groups[-1][-1] < last < place:
            groups.append([])
        groups[-1].append(place)
    newest = groups[-1] if groups and groups[-1][-1] > last else []
    return [group for group in groups if group is not newest]


async def fitted(model: ServedModel, request: ChatRequest, asked: JobInput) -> tuple[ChatRequest, JobInput]:
    """The chat without its oldest turns, as few of them as make it fit. If any are dropped, the gateway's prefix keys
    no longer apply. Raises RequestError.
    """
    groups = droppable([message.role for message in request.messages])
    if not groups or await _fits(model, request, request.messages, asked):
        return request, asked
    fewest, most = 1, len(groups)
    if not await _fits(model, request, _without(request.messages, groups), asked):
        fewest = most  # what cannot be dropped is too long: the request will be refused, so encode nothing more
    while fewest < most:
        middle = (fewest + most) // 2
        if await _fits(model, request, _without(request.messages, groups[:middle]), asked):
            most = middle
        else:
            fewest = middle + 1
    shortened = request.model_copy(update={"messages": _without(request.messages, groups[:most])})
    return shortened, replace(asked, caller=replace(asked.caller, prefix=None))


def _without(messages: list[ChatMessage], groups: Sequence[Sequence[int]]) -> list[ChatMessage]:
    gone = {place for group in groups for place in group}
    return [message for place, message in enumerate(messages) if place not in gone]


async def _fits(model: ServedModel, request: ChatRequest, messages: list[ChatMessage], asked: JobInput) -> bool:
    """Whether these turns and the answer fit into the context; a text that is far too long is not encoded."""
    if len(asked.body) > _LONG:
        await asked.turn()
    context = asked.started.max_model_len
    text, room = model.render(messages, request), context - (request.max_tokens or 1)
    if model.tokenizer.least(text) > room or len(text) > most_counted(context):
        return False
    return len(await model.tokenizer.encode_chat(text, request.salt(asked.caller.tenant))) <= room


_NAMES = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "logprobs": "include",
}
_FIELD = re.compile(r"(\w+)(?:\[(\d+)\])?(.*)", re.DOTALL)
_QUOTED = re.compile(r"`([^`]+)`")
_WITHIN = frozenset({"", ".role", ".content"})
"""Paths within a turn that are the same in an item."""


async def responses_job(model: ServedModel, asked: JobInput) -> GenerationJob:
    """A job from the body of `/v1/responses`. Raises RequestError."""
    body, resume = split(asked.body, asked.caller.resume)
    request = parse(ResponsesRequest, body)
    with renamed(_NAMES, request.places):
        made = chat_of(request.chat(), body)
    with renamed(_NAMES, tuple if request.truncation == "auto" else request.places):  # dropped turns shift the others
        if request.truncation == "auto":
            model.known(request.model)
            made, asked = await fitted(model, made, asked)
        fields = _echoed_fields(request, asked.started.defaults)
        return await chat(model, made, asked, resume, AnswerFormat(RESPONSE, partial(_answer, fields), "input"))


def chat_of(body: dict[str, Any], sent: bytes) -> ChatRequest:
    """A chat's request, translated from the body that a client `sent`. Raises RequestError."""
    try:
        request = ChatRequest.model_validate(body)
    except ValidationError as error:
        raise refusal(error.errors(include_url=False)[0], sent) from None
    request.check()
    return request


@contextmanager
def renamed(names: Mapping[str, str], places: Callable[[], Sequence[str]] = tuple) -> Iterator[None]:
    """Name what a chat's refusal refers to as the client knows it: fields by `names`, turns by their `places` in the
    client's body. Known hole: a client's function or word with the name of such a field is renamed too, where a message
    quotes it.
    """
    try:
        yield
    except RequestError as error:
        param = error.param and _named(error.param, names, places)
        words = _QUOTED.sub(lambda found: f"`{_named(found[1], names, places)}`", error.message)
        raise RequestError(
            error.code, words, param=param, retry_after=error.retry_after, headers=error.headers
        ) from None


def _named(path: str, names: Mapping[str, str], places: Callable[[], Sequence[str]]) -> str:
    found = _FIELD.fullmatch(path)
    field, turn, rest = found.groups() if found else ("", None, "")
    if field in names and turn is not None:
        known = places()
        return known[int(turn)] + (rest if rest in _WITHIN else "") if int(turn) < len(known) else names[field]
    return names[field] + path.removeprefix(field) if field in names else path


def _answer(fields: Mapping[str, Any], shape: ResponseShape, identity: str, created: int, _prompt: int) -> WritingShape:
    return ResponseAnswer(shape, identity, created, fields)


def _echoed_fields(request: ResponsesRequest, defaults: Mapping[str, float]) -> dict[str, Any]:
    """The fields that a response repeats. `defaults`: the model authors' advice for fields that the request omits."""
    sent = request.model_fields_set
    return {
        "model": request.model,
        "background": False,
        "error": None,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata,
        "parallel_tool_calls": request.parallel_tool_calls,
        "previous_response_id": None,
        "reasoning": {"effort": request.reasoning.effort, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": request.temperature if "temperature" in sent else defaults.get("temperature", 1.0),
        "text": {"format": request.text.format or {"type": "text"}},
        "tool_choice": request.tool_choice,
        "tools": [tool.model_dump(exclude_unset=True) for tool in request.tools],
        "top_logprobs": request.top_logprobs,
        "top_p": request.top_p if "top_p" in sent else defaults.get("top_p", 1.0),
        "truncation": request.truncation,
    }
