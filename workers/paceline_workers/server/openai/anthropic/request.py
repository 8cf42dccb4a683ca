"""Bodies of `POST /v1/messages` and `POST /v1/messages/count_tokens`, and the chat that they ask for.

An answer goes on with the last message where that is the assistant's and has a text.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator

from paceline_core.wire.prefix import ATTRIBUTION
from paceline_workers.server.openai.anthropic.turns import text_of, turns_of
from paceline_workers.server.openai.body import Body, invalid
from paceline_workers.server.openai.fields import FieldRoute
from paceline_workers.server.openai.messages import MESSAGES_LIMIT
from paceline_workers.server.openai.prompt_fields import Effort
from paceline_workers.server.openai.tools import NAME, TOOLS_LIMIT, Parameters

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
    """Whether the model is to think, and whether that is told. How much of it is the model's own matter."""

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
