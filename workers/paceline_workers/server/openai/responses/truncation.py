"""`truncation: "auto"`: a conversation that is too long loses its oldest turns until the context has room for it.

Whole turns go, from the beginning: first exchanges (a user's turn and all up to the next one), then what followed the
last user's turn, an assistant's turn with the results of its calls at a time. So no result stands without its call, and
what is left begins with a user's turn. Instructions, turns of the roles `system` and `developer`, the last user's turn
and the newest step behind it stay: where they are too long alone, the request is refused as without it.

Nothing says in the answer what went. Known hole: a stream that goes on at a worker with another context length goes on
behind another prompt.
"""

from collections.abc import Sequence
from dataclasses import replace

from paceline_workers.server.openai.jobs import JobInput
from paceline_workers.server.openai.lengths import most_counted
from paceline_workers.server.openai.messages import ChatMessage
from paceline_workers.server.openai.requests import ChatRequest
from paceline_workers.server.openai.served import ServedModel

_KEPT = frozenset({"system", "developer"})
_LONG = 64 << 10
"""Bytes of a body whose chat takes milliseconds to render."""


def droppable(roles: Sequence[str]) -> list[list[int]]:
    """The places of the turns that may go, in groups that go together, the first to go first. Pure."""
    places = [place for place, role in enumerate(roles) if role not in _KEPT]
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
    """The chat without as many of its oldest turns as must go; the gateway's keys are those of the whole one.

    Raises RequestError.
    """
    groups = droppable([message.role for message in request.messages])
    if not groups or await _fits(model, request, request.messages, asked):
        return request, asked
    fewest, most = 1, len(groups)
    if not await _fits(model, request, _without(request.messages, groups), asked):
        fewest = most  # it is refused for what may not go, and nothing more is encoded for it
    while fewest < most:
        middle = (fewest + most) // 2
        if await _fits(model, request, _without(request.messages, groups[:middle]), asked):
            most = middle
        else:
            fewest = middle + 1
    kept = request.model_copy(update={"messages": _without(request.messages, groups[:most])})
    return kept, replace(asked, caller=replace(asked.caller, prefix=None))


def _without(messages: list[ChatMessage], groups: Sequence[Sequence[int]]) -> list[ChatMessage]:
    gone = {place for group in groups for place in group}
    return [message for place, message in enumerate(messages) if place not in gone]


async def _fits(model: ServedModel, request: ChatRequest, messages: list[ChatMessage], asked: JobInput) -> bool:
    """Whether the context has room for these turns and for the answer; a text far too long for it is not encoded."""
    if len(asked.body) > _LONG:
        await asked.turn()
    how, context = request.rendering(request.documents, request.reasoning_effort), asked.started.max_model_len
    text, room = model.render(messages, request.offered, how), context - (request.limit or 1)
    if model.tokenizer.least(text) > room or len(text) > most_counted(context):
        return False
    return len(await model.tokenizer.encode_chat(text, request.salt(asked.caller.tenant))) <= room
