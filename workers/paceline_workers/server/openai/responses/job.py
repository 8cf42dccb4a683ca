"""From a response's body to a job: that of the chat it asks for, told in the form of responses."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from pydantic import ValidationError

from paceline_core.errors import RequestError
from paceline_workers.server.openai.answers import ResponseShape, WritingShape
from paceline_workers.server.openai.chats import AnswerFormat, chat
from paceline_workers.server.openai.jobs import GenerationJob, JobInput
from paceline_workers.server.openai.refusals import refusal
from paceline_workers.server.openai.requests import ChatRequest, parse
from paceline_workers.server.openai.responses.answer import RESPONSE, ResponseAnswer
from paceline_workers.server.openai.responses.request import ResponsesRequest
from paceline_workers.server.openai.responses.truncation import fitted
from paceline_workers.server.openai.resumes import split
from paceline_workers.server.openai.served import ServedModel

_NAMES = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "logprobs": "include",
}
_FIELD = re.compile(r"(\w+)(?:\[(\d+)\])?(.*)", re.DOTALL)
_QUOTED = re.compile(r"`([^`]+)`")
_WITHIN = frozenset({"", ".role", ".content"})
"""Parts of a turn that an item has by the same names."""


async def responses_job(model: ServedModel, asked: JobInput) -> GenerationJob:
    """A job from the body of `/v1/responses`. Raises RequestError."""
    body, resume = split(asked.body, asked.caller.resume)
    request = parse(ResponsesRequest, body)
    with renamed(_NAMES, request.places):
        made = chat_of(request.chat(), body)
    with renamed(_NAMES, tuple if request.truncation == "auto" else request.places):  # turns that go move the others
        if request.truncation == "auto":
            model.known(request.model)
            made, asked = await fitted(model, made, asked)
        told = _told(request, asked.started.defaults)
        return await chat(model, made, asked, resume, AnswerFormat(RESPONSE, partial(_answer, told), "input"))


def chat_of(body: dict[str, Any], sent: bytes) -> ChatRequest:
    """The request of a chat that was translated from what a client `sent`. Raises RequestError."""
    try:
        request = ChatRequest.model_validate(body)
    except ValidationError as error:
        raise refusal(error.errors(include_url=False)[0], sent) from None
    request.check()
    return request


@contextmanager
def renamed(names: Mapping[str, str], places: Callable[[], Sequence[str]] = tuple) -> Iterator[None]:
    """What is refused of a chat is named as the client knows it: its fields by `names`, its turns by the `places` in
    the body that they came from. Known hole: a function or a word of the client's own that is called as such a field
    is renamed too, where a message quotes it.
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


def _answer(told: Mapping[str, Any], shape: ResponseShape, identity: str, created: int, _prompt: int) -> WritingShape:
    return ResponseAnswer(shape, identity, created, told)


def _told(request: ResponsesRequest, defaults: Mapping[str, float]) -> dict[str, Any]:
    """What a response repeats of its request. `defaults`: what the model's makers advise where it says nothing."""
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
