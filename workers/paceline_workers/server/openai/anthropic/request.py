"""The bodies of `POST /v1/messages` and `POST /v1/messages/count_tokens`, and their translation to a chat.

If the last message is the assistant's and has text, the answer continues it. Tool results in a message come before its
other content, each as a separate turn. Consecutive system messages become one turn. Redacted thinking
(`redacted_thinking`), which only its author can read, is left out. A chat has no field for a failed call, so the result
of one begins with `Error`. Pure.
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
"""The most characters of a call's id and of its function's name, as in a chat."""


def turns_of(system: str, messages: Sequence[dict[str, Any]]) -> list[Turn]:
    """All messages as turns of a chat. Raises RequestError naming the block."""
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
    """A string, or the text of a list of blocks. Raises ValueError."""
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
"""Fields with the same meaning as in a chat; the chat's model validates them."""
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def _kind(value: Any) -> str:
    if value != "custom":
        raise ValueError('must be "custom" or left out; no other tool is known or run here')
    return str(value)


class AnthropicTool(Body):
    """A function that the model may call."""

    type: Annotated[str, PlainValidator(_kind)] = "custom"
    name: str = Field(pattern=NAME)
    description: str | None = None
    input_schema: Parameters

    def chat(self) -> dict[str, Any]:
        """The tool in a chat's form."""
        own = {"name": self.name, "parameters": self.input_schema}
        return {"type": "function", "function": own | ({"description": self.description} if self.description else {})}


class AnthropicToolChoice(Body):
    """Which tool the model must call."""

    type: Literal["auto", "any", "none", "tool"]
    name: str = ""
    disable_parallel_tool_use: bool = False


class ThinkingConfig(Body):
    """Whether the model thinks, and whether the client gets that text. The model decides how much it thinks."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int = 0
    display: Literal["summarized", "omitted"] = "summarized"


def _system(value: Any) -> str:
    """The system text without the block that identifies the client: it changes with each request and spoils caching."""
    if isinstance(value, list):
        value = [one for one in value if not (isinstance(one, dict) and str(one.get("text")).startswith(ATTRIBUTION))]
    return text_of(value)


def _format(value: Any) -> dict[str, Any]:
    match value:
        case {"type": "json_schema", "schema": dict(schema)}:
            return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    raise ValueError('must be {"type": "json_schema", "schema": {...}}')


class OutputConfig(Body):
    """The format of the answer, and how much the model thinks about it."""

    format: Annotated[dict[str, Any] | None, PlainValidator(_format)] = None
    effort: Effort | None = None


class PromptRequest(Body):
    """The fields that make up the prompt."""

    model: str
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=MESSAGES_LIMIT)
    system: Annotated[str, PlainValidator(_system)] = ""
    tools: list[AnthropicTool] = Field(default=[], max_length=TOOLS_LIMIT)
    tool_choice: AnthropicToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig = OutputConfig()
    chat_template_kwargs: dict[str, Any] = {}

    def check(self) -> None:
        """Check rules that involve several fields. Raises RequestError."""
        super().check()
        if self.tool_choice is not None and self.tool_choice.type == "tool" and not self.tool_choice.name:
            raise invalid('`tool_choice.name` is required where its type is "tool".', "tool_choice.name")

    def chat(self) -> dict[str, Any]:
        """The body of the equivalent chat. Raises RequestError."""
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
        """The body of the equivalent chat, with how to answer it. Raises RequestError."""
        return super().chat() | ({"stop": self.stop_sequences} if self.stop_sequences else {})


class CountTokensRequest(PromptRequest):
    """`POST /v1/messages/count_tokens`."""

    route: ClassVar[str] = FieldRoute.COUNT_TOKENS
