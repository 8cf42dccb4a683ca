"""`POST /v1/responses`: its body, and the chat that it asks for.

Nothing is kept, so what refers to an earlier response is refused, and `store` is false whatever was asked for.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PlainValidator

from paceline_workers.server.openai.chat_fields import MESSAGES_LIMIT, NAME, TOOLS_LIMIT, Effort, Parameters
from paceline_workers.server.openai.fields import FieldRoute
from paceline_workers.server.openai.prompt_logprobs import MOST
from paceline_workers.server.openai.responses.items import located_turns
from paceline_workers.server.openai.validation import Body, invalid

_LOGPROBS = "message.output_text.logprobs"
_INCLUDED = (_LOGPROBS, "reasoning.encrypted_content")
_PAIRS, _KEY, _VALUE = 16, 64, 512
_SAME = (
    "model", "stream", "temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "min_p", "logit_bias", "seed", "stop", "ignore_eos", "cache_salt", "structured_outputs", "chat_template_kwargs",
    "skip_special_tokens", "include_stop_str_in_output", "parallel_tool_calls", "include_reasoning",
)  # fmt: skip
"""Fields that mean what they mean in a chat, and are judged there."""


class FunctionTool(Body):
    """A function that is offered."""

    type: Literal["function"]
    name: str = Field(pattern=NAME)
    description: str | None = None
    parameters: Parameters = {}
    strict: bool | None = None

    def chat(self) -> dict[str, Any]:
        """As a chat has it."""
        own = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": {name: value for name, value in own.items() if value is not None}}


class ReasoningConfig(Body):
    """How much the model is to think. `summary` is harmless: none is made."""

    effort: Effort | None = None
    summary: Any = None


def _format(value: Any) -> dict[str, Any]:
    match value:
        case {"type": "text" | "json_object"} | {"type": "json_schema", "schema": dict()}:
            return dict(value)
    raise ValueError(
        'must be {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "name": ..., "schema": {...}}'
    )


class TextConfig(Body):
    """What the answer's text must be."""

    format: Annotated[dict[str, Any], PlainValidator(_format)] | None = None
    verbosity: Literal["medium"] | None = None


def _input(value: Any) -> str | list[Any]:
    if not isinstance(value, str | list) or not value:
        raise ValueError("must be a text or a list of items, and not empty")
    if isinstance(value, list) and len(value) > 2 * MESSAGES_LIMIT:
        raise ValueError(f"holds at most {2 * MESSAGES_LIMIT} items")
    return value


def _choice(value: Any) -> Any:
    if value in ("none", "auto", "required"):
        return value
    if isinstance(value, dict) and value.get("type") == "function":
        name = value.get("name")
        if isinstance(name, str) and name:
            return value
    raise ValueError('must be "none", "auto", "required" or {"type": "function", "name": ...}')


def _include(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(one in _INCLUDED for one in value):
        raise ValueError(f"may hold {' and '.join(_INCLUDED)}; nothing else is known here")
    return value


def _metadata(value: Any) -> dict[str, str]:
    pairs = value.items() if isinstance(value, dict) else [(None, None)]
    if len(pairs) > _PAIRS or not all(_short(key, _KEY) and _short(text, _VALUE) for key, text in pairs):
        raise ValueError(f"must be an object of at most {_PAIRS} texts of {_VALUE} characters, keys of {_KEY}")
    return dict(pairs)


def _short(value: Any, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most


class ResponsesRequest(Body):
    """`POST /v1/responses`."""

    route: ClassVar[str] = FieldRoute.RESPONSES

    model: str
    input: Annotated[str | list[Any], PlainValidator(_input)]
    instructions: str | None = None
    stream: bool = False
    max_output_tokens: int | None = Field(default=None, ge=1)
    text: TextConfig = TextConfig()
    reasoning: ReasoningConfig = ReasoningConfig()
    tools: list[FunctionTool] = Field(default=[], max_length=TOOLS_LIMIT)
    tool_choice: Annotated[Any, BeforeValidator(_choice)] = "auto"
    parallel_tool_calls: bool = True
    include: Annotated[list[str], PlainValidator(_include)] = []
    top_logprobs: int = Field(default=0, ge=0, le=MOST)
    truncation: Literal["auto", "disabled"] = "disabled"
    metadata: Annotated[dict[str, str], PlainValidator(_metadata)] = {}
    temperature: float = Field(default=1.0, ge=0, le=100)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    repetition_penalty: Any = None
    min_p: Any = None
    logit_bias: Any = None
    seed: Any = None
    stop: Any = None
    ignore_eos: Any = None
    cache_salt: Any = None
    structured_outputs: Any = None
    chat_template_kwargs: Any = None
    skip_special_tokens: Any = None
    include_stop_str_in_output: Any = None
    include_reasoning: Any = None

    def chat(self) -> dict[str, Any]:
        """The body of the chat that this asks for. Raises RequestError."""
        body: dict[str, Any] = {name: getattr(self, name) for name in _SAME if name in self.model_fields_set}
        body["messages"] = [turn for _, turn in located_turns(self.instructions, self.input)]
        body["tools"] = [tool.chat() for tool in self.tools]
        body["tool_choice"] = self._chat_choice()
        if self.max_output_tokens is not None:
            body["max_completion_tokens"] = self.max_output_tokens
        if self.text.format is not None:
            body["response_format"] = self._format(self.text.format)
        if self.reasoning.effort is not None:
            body["reasoning_effort"] = self.reasoning.effort
        if _LOGPROBS in self.include:
            body |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        return body

    def places(self) -> list[str]:
        """Where in the body each turn of the chat came from."""
        return [place for place, _ in located_turns(self.instructions, self.input)]

    def check(self) -> None:
        """What no field can tell alone. Raises RequestError."""
        super().check()
        if self.top_logprobs and _LOGPROBS not in self.include:
            raise invalid(f"`top_logprobs` is for requests whose `include` holds {_LOGPROBS}.", "top_logprobs")

    def _chat_choice(self) -> Any:
        if isinstance(self.tool_choice, str):
            return self.tool_choice
        return {"type": "function", "function": {"name": self.tool_choice["name"]}}

    def _format(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Of a schema that stands beside its name, as a chat has it within."""
        if wanted.get("type") != "json_schema":
            return wanted
        return {"type": "json_schema", "json_schema": {name: value for name, value in wanted.items() if name != "type"}}
