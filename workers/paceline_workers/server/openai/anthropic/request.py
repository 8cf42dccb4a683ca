"""`POST /v1/messages`: its body, and the chat that it asks for."""

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator

from paceline_workers.server.openai.body import Body, invalid
from paceline_workers.server.openai.fields import Route
from paceline_workers.server.openai.messages import MESSAGES_LIMIT
from paceline_workers.server.openai.tools import NAME, TOOLS_LIMIT

_SAME = ("model", "stream", "temperature", "top_p", "top_k", "chat_template_kwargs")
"""Fields that mean what they mean in a chat, and are judged there."""
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class Tool(Body):
    """A function that is offered."""

    name: str = Field(pattern=NAME)
    description: str | None = None
    input_schema: dict[str, Any]

    def chat(self) -> dict[str, Any]:
        """As a chat has it."""
        own = {"name": self.name, "parameters": self.input_schema}
        return {"type": "function", "function": own | ({"description": self.description} if self.description else {})}


class ToolChoice(Body):
    """Which tool is to be called."""

    type: Literal["auto", "any", "none", "tool"]
    name: str = ""
    disable_parallel_tool_use: bool = False


class Thinking(Body):
    """Whether the model is to think. How much of it is the model's own matter."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int = 0


def _system(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, dict) and isinstance(one.get("text"), str) for one in value):
        return "".join(one["text"] for one in value)
    raise ValueError('must be a text or a list of {"type": "text", "text": ...}')


class MessagesRequest(Body):
    """`POST /v1/messages`."""

    route: ClassVar[str] = Route.MESSAGES

    model: str
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=MESSAGES_LIMIT)
    max_tokens: int = Field(ge=1)
    system: Annotated[str, PlainValidator(_system)] = ""
    stream: bool = False
    stop_sequences: list[str] = []
    temperature: Any = None
    top_p: Any = None
    top_k: Any = None
    tools: list[Tool] = Field(default=[], max_length=TOOLS_LIMIT)
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    chat_template_kwargs: Any = None

    def chat(self) -> dict[str, Any]:
        """The body of the chat that this asks for. Raises RequestError."""
        body: dict[str, Any] = {name: getattr(self, name) for name in _SAME if name in self.model_fields_set}
        turns: list[dict[str, Any]] = [{"role": "system", "content": self.system}] if self.system else []
        names: dict[str, str] = {}
        for place, message in enumerate(self.messages):
            turns += _turns(message, f"messages[{place}]", names)
        body |= {"messages": turns, "max_tokens": self.max_tokens, "tools": [tool.chat() for tool in self.tools]}
        if self.stop_sequences:
            body["stop"] = self.stop_sequences
        if self.thinking is not None:
            on = {"enable_thinking": self.thinking.type != "disabled"}
            body["chat_template_kwargs"] = on | (self.chat_template_kwargs or {})
        choice = self.tool_choice
        if choice is not None:
            named = {"type": "function", "function": {"name": choice.name}}
            body["tool_choice"] = _CHOICES.get(choice.type, named)
            body["parallel_tool_calls"] = not choice.disable_parallel_tool_use
        return body


def _turns(message: dict[str, Any], where: str, names: dict[str, str]) -> list[dict[str, Any]]:
    """A message as turns: the results of tools stand before what else it holds, each in a turn of its own."""
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        raise invalid(f'`{where}.role` must be "user" or "assistant".', f"{where}.role")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list):
        raise invalid(f"`{where}.content` must be a text or a list of blocks.", f"{where}.content")
    turn: dict[str, Any] = {"role": role, "content": ""}
    results: list[dict[str, Any]] = []
    for place, block in enumerate(blocks):
        at = f"{where}.content[{place}]"
        match (role, block):
            case (_, {"type": "text", "text": str(text)}):
                turn["content"] += text
            case ("assistant", {"type": "thinking", "thinking": str(text)}):
                turn["reasoning_content"] = turn.get("reasoning_content", "") + text
            case ("assistant", {"type": "tool_use", "id": str(identity), "name": str(name), "input": dict(given)}):
                names[identity] = name
                function = {"name": name, "arguments": json.dumps(given, ensure_ascii=False)}
                turn.setdefault("tool_calls", []).append({"id": identity, "type": "function", "function": function})
            case ("user", {"type": "tool_result", "tool_use_id": str(identity)}):
                told = _result(block.get("content"), at)
                own = {"role": "tool", "tool_call_id": identity, "content": told}
                results.append(own | ({"name": names[identity]} if identity in names else {}))
            case _:
                words = "text, of an assistant thinking and tool_use, of a user tool_result"
                raise invalid(f"`{at}` must be a whole block of a known type: {words}.", at)
    return [*results, turn] if not results or turn["content"] else results


def _result(content: Any, where: str) -> str:
    try:
        return "" if content is None else _system(content)
    except ValueError as error:
        raise invalid(f"`{where}.content` {error}.", f"{where}.content") from None
