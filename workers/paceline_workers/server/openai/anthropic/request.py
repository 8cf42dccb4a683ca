"""Bodies of `POST /v1/messages` and `POST /v1/messages/count_tokens`, and the chat that they ask for.

An answer continues the last message where that is the assistant's and has a text.

Messages as turns of a chat: the results of tools stand before what else a message holds, each in a turn of its own.

Pure. A chat has no word for a call that failed, so the result of one begins with `Error`. Thinking that only its writer
can read (`redacted_thinking`) is left out. System messages that follow each other are one turn.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator

from paceline_core.wire.message import ATTRIBUTION
from paceline_workers.server.openai.chat_fields import (
    CALLS_LIMIT,
    MESSAGES_LIMIT,
    NAME,
    TOOLS_LIMIT,
    Effort,
    Parameters,
)
from paceline_workers.server.openai.fields import FieldRoute
from paceline_workers.server.openai.validation import Body, invalid

Turn = dict[str, Any]
IDENTITY, FUNCTION = 128, 64
"""Characters of a call's id and of its function's name, as in a chat."""


def turns_of(system: str, messages: Sequence[dict[str, Any]]) -> list[Turn]:
    """The chat of all messages. Raises RequestError naming the block."""
    turns: list[Turn] = [{"role": "system", "content": system}] if system else []
    names: dict[str, str] = {}
    for place, message in enumerate(messages):
        for turn in _turns(message, f"messages[{place}]", names):
            if turn["role"] == "system" and turns and turns[-1]["role"] == "system":
                turns[-1]["content"] += f"\n\n{turn['content']}"
            else:
                turns.append(turn)
    return turns


def text_of(value: Any) -> str:
    """A text, or the text of a list of blocks. Raises ValueError."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, dict) and isinstance(one.get("text"), str) for one in value):
        return "".join(one["text"] for one in value)
    raise ValueError('must be a text or a list of {"type": "text", "text": ...}')


def _turns(message: dict[str, Any], where: str, names: dict[str, str]) -> list[Turn]:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise invalid(f'`{where}.role` must be "user", "assistant" or "system".', f"{where}.role")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list):
        raise invalid(f"`{where}.content` must be a text or a list of blocks.", f"{where}.content")
    turn: Turn = {"role": role, "content": ""}
    results: list[Turn] = []
    for place, block in enumerate(blocks):
        at = f"{where}.content[{place}]"
        match (role, block):
            case (_, {"type": "text", "text": str(text)}):
                turn["content"] += text
            case ("assistant", {"type": "thinking", "thinking": str(text)}):
                turn["reasoning_content"] = turn.get("reasoning_content", "") + text
            case ("assistant", {"type": "redacted_thinking"}):
                pass
            case ("assistant", {"type": "tool_use", "id": str(identity), "name": str(name), "input": dict(given)}):
                names[_within(identity, f"{at}.id", IDENTITY)] = _within(name, f"{at}.name", FUNCTION)
                function = {"name": name, "arguments": json.dumps(given, ensure_ascii=False)}
                turn.setdefault("tool_calls", []).append({"id": identity, "type": "function", "function": function})
            case ("user", {"type": "tool_result", "tool_use_id": str(identity)}):
                text = _within(identity, f"{at}.tool_use_id", IDENTITY)
                own = {"role": "tool", "tool_call_id": text, "content": _result(block, at)}
                results.append(own | ({"name": names[identity]} if identity in names else {}))
            case _:
                words = "text, of an assistant thinking and tool_use, of a user tool_result"
                raise invalid(f"`{at}` must be a whole block of a known type: {words}.", at)
    if len(turn.get("tool_calls", ())) > CALLS_LIMIT:
        raise invalid(f"`{where}.content` holds at most {CALLS_LIMIT} blocks `tool_use`.", f"{where}.content")
    return [*results, turn] if not results or turn["content"] else results


def _within(text: str, where: str, most: int) -> str:
    if not 0 < len(text) <= most:
        raise invalid(f"`{where}` must have 1 to {most} characters.", where)
    return text


def _result(block: dict[str, Any], where: str) -> str:
    content = block.get("content")
    try:
        text = "" if content is None else text_of(content)
    except ValueError as error:
        raise invalid(f"`{where}.content` {error}.", f"{where}.content") from None
    failed = block.get("is_error")
    if not (failed is None or isinstance(failed, bool)):
        raise invalid(f"`{where}.is_error` must be true or false.", f"{where}.is_error")
    if not failed:
        return text
    return f"Error: {text}" if text else "Error"


_SAME = ("model", "stream", "temperature", "top_p", "top_k", "max_tokens", "chat_template_kwargs")
"""Fields that mean what they mean in a chat, and are judged there."""
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def _kind(value: Any) -> str:
    if value != "custom":
        raise ValueError('must be "custom" or left out; no other tool is known or run here')
    return str(value)


class AnthropicTool(Body):
    """A function that is offered."""

    type: Annotated[str, PlainValidator(_kind)] = "custom"
    name: str = Field(pattern=NAME)
    description: str | None = None
    input_schema: Parameters

    def chat(self) -> dict[str, Any]:
        """As a chat has it."""
        own = {"name": self.name, "parameters": self.input_schema}
        return {"type": "function", "function": own | ({"description": self.description} if self.description else {})}


class AnthropicToolChoice(Body):
    """Which tool is to be called."""

    type: Literal["auto", "any", "none", "tool"]
    name: str = ""
    disable_parallel_tool_use: bool = False


class ThinkingConfig(Body):
    """Whether the model is to think, and whether that is text. How much of it is the model's own matter."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int = 0
    display: Literal["summarized", "omitted"] = "summarized"


def _system(value: Any) -> str:
    """Without the block in which a client tells of itself: it differs in each request, so no prefix would last."""
    if isinstance(value, list):
        value = [one for one in value if not (isinstance(one, dict) and str(one.get("text")).startswith(ATTRIBUTION))]
    return text_of(value)


def _format(value: Any) -> dict[str, Any]:
    match value:
        case {"type": "json_schema", "schema": dict(schema)}:
            return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    raise ValueError('must be {"type": "json_schema", "schema": {...}}')


class OutputConfig(Body):
    """What the answer must be, and how much the model is to think about it."""

    format: Annotated[dict[str, Any] | None, PlainValidator(_format)] = None
    effort: Effort | None = None


class PromptRequest(Body):
    """What makes the prompt."""

    model: str
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=MESSAGES_LIMIT)
    system: Annotated[str, PlainValidator(_system)] = ""
    tools: list[AnthropicTool] = Field(default=[], max_length=TOOLS_LIMIT)
    tool_choice: AnthropicToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig = OutputConfig()
    chat_template_kwargs: dict[str, Any] = {}

    def check(self) -> None:
        """What no field can tell alone. Raises RequestError."""
        super().check()
        if self.tool_choice is not None and self.tool_choice.type == "tool" and not self.tool_choice.name:
            raise invalid('`tool_choice.name` is required where its type is "tool".', "tool_choice.name")

    def chat(self) -> dict[str, Any]:
        """The body of the chat that this asks for. Raises RequestError."""
        body: dict[str, Any] = {name: getattr(self, name) for name in _SAME if name in self.model_fields_set}
        turns = turns_of(self.system, self.messages)
        body |= {"messages": turns, "tools": [tool.chat() for tool in self.tools]}
        if turns[-1]["role"] == "assistant" and turns[-1]["content"] and "tool_calls" not in turns[-1]:
            body["continue_final_message"] = True
        if self.thinking is not None:
            on = {"enable_thinking": self.thinking.type != "disabled"}
            body["chat_template_kwargs"] = on | self.chat_template_kwargs
            body["include_reasoning"] = self.thinking.display != "omitted"
        if self.output_config.format is not None:
            body["response_format"] = self.output_config.format
        if self.output_config.effort is not None:
            body["reasoning_effort"] = self.output_config.effort
        choice = self.tool_choice
        if choice is not None:
            named = {"type": "function", "function": {"name": choice.name}}
            body["tool_choice"] = _CHOICES.get(choice.type, named)
            body["parallel_tool_calls"] = not choice.disable_parallel_tool_use
        return body


class MessagesRequest(PromptRequest):
    """`POST /v1/messages`."""

    route: ClassVar[str] = FieldRoute.MESSAGES

    max_tokens: int = Field(ge=1)
    stream: bool = False
    stop_sequences: list[str] = []
    temperature: Any = None
    top_p: Any = None
    top_k: Any = None

    def chat(self) -> dict[str, Any]:
        """The same, and how it is to be answered. Raises RequestError."""
        return super().chat() | ({"stop": self.stop_sequences} if self.stop_sequences else {})


class CountTokensRequest(PromptRequest):
    """`POST /v1/messages/count_tokens`."""

    route: ClassVar[str] = FieldRoute.COUNT_TOKENS
