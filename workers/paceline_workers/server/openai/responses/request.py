"""The body of `POST /v1/responses`, and its translation to a chat.

Nothing is stored, so a reference to an earlier response is refused, and `store` is false whatever the request says.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PlainValidator

from paceline_workers.server.openai.chat_fields import MESSAGES_LIMIT, NAME, TOOLS_LIMIT, Effort, Parameters
from paceline_workers.server.openai.fields import FieldRoute
from paceline_workers.server.openai.prompt_logprobs import MOST
from paceline_workers.server.openai.validation import Body, invalid

Turn = dict[str, Any]
IDENTITY, FUNCTION = 128, 64
"""The most characters of a call's id and of its function's name, as in a chat."""
_KINDS = ("message", "reasoning", "function_call", "function_call_output")
_TEXTS = frozenset({"input_text", "output_text", "text", "reasoning_text", "summary_text"})


def located_turns(instructions: str | None, given: str | Sequence[Any]) -> list[tuple[str, Turn]]:
    """The input as turns of a chat, each with its path in the body. Raises RequestError naming the item.

    Reasoning, an assistant's message and the calls around it form one turn, as models write them. A call's output
    becomes a turn of role `tool` with the name of the called function. Pure.
    """
    turns: list[Turn] = [] if instructions is None else [{"role": "system", "content": instructions}]
    places = ["instructions"] * len(turns)
    if isinstance(given, str):
        return list(zip([*places, "input"], [*turns, {"role": "user", "content": given}], strict=True))
    names: dict[str, str] = {}
    for place, item in enumerate(given):
        where = f"input[{place}]"
        if not isinstance(item, dict):
            raise invalid(f"`{where}` must be an object.", where)
        kind = item.get("type") or "message"
        if kind not in _KINDS:
            words = f"`{where}.type` must be one of {', '.join(_KINDS)}; others are not known here."
            raise invalid(words, f"{where}.type")
        _take(turns, kind, item, where, names)
        places += [where] * (len(turns) - len(places))
    return list(zip(places, turns, strict=True))


def _take(turns: list[Turn], kind: str, item: dict[str, Any], where: str, names: dict[str, str]) -> None:
    """Append an item, or add it to the assistant's unfinished turn; `names`: the function of each call id."""
    last = turns[-1] if turns and turns[-1]["role"] == "assistant" else None
    match kind:
        case "message":
            role, content = _text(item, "role", where), _content(item.get("content"), f"{where}.content")
            if role == "assistant" and last is not None and (last.get("tool_calls") or not last["content"]):
                last["content"] += content
            else:
                turns.append({"role": role, "content": content})
        case "reasoning":
            thought = _content(item.get("content") or item.get("summary") or "", f"{where}.content")
            turns.append({"role": "assistant", "content": "", "reasoning_content": thought})
        case "function_call":
            identity, name = _text(item, "call_id", where, IDENTITY), _text(item, "name", where, FUNCTION)
            names[identity] = name
            if last is None:
                last = {"role": "assistant", "content": ""}
                turns.append(last)
            function = {"name": name, "arguments": _text(item, "arguments", where)}
            last.setdefault("tool_calls", []).append({"id": identity, "type": "function", "function": function})
        case _:
            identity = _text(item, "call_id", where, IDENTITY)
            turn = {"role": "tool", "content": _content(item.get("output"), f"{where}.output")}
            turns.append(turn | {"tool_call_id": identity} | ({"name": names[identity]} if identity in names else {}))


def _text(item: dict[str, Any], name: str, where: str, most: int | None = None) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise invalid(f"`{where}.{name}` must be a text.", f"{where}.{name}")
    if most is not None and len(value) > most:
        raise invalid(f"`{where}.{name}` holds at most {most} characters.", f"{where}.{name}")
    return value


def _content(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise invalid(f"`{where}` must be a text or a list of parts.", where)
    texts = []
    for place, part in enumerate(value):
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("refusal" if kind == "refusal" else "text") if isinstance(part, dict) else None
        if not isinstance(text, str) or not (kind == "refusal" or kind in _TEXTS):
            at = f"{where}[{place}]"
            raise invalid(f'`{at}` must be {{"type": "input_text", "text": ...}}; this model takes text only.', at)
        texts.append(text)
    return "".join(texts)


_LOGPROBS = "message.output_text.logprobs"
_INCLUDED = (_LOGPROBS, "reasoning.encrypted_content")
_PAIRS, _KEY, _VALUE = 16, 64, 512
_SAME = (
    "model", "stream", "temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "min_p", "logit_bias", "seed", "stop", "ignore_eos", "cache_salt", "structured_outputs", "chat_template_kwargs",
    "skip_special_tokens", "include_stop_str_in_output", "parallel_tool_calls", "include_reasoning",
)  # fmt: skip
"""Fields with the same meaning as in a chat; the chat's model validates them."""


class FunctionTool(Body):
    """A function that the model may call."""

    type: Literal["function"]
    name: str = Field(pattern=NAME)
    description: str | None = None
    parameters: Parameters = {}
    strict: bool | None = None

    def chat(self) -> dict[str, Any]:
        """The tool in a chat's form."""
        own = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": {name: value for name, value in own.items() if value is not None}}


class ReasoningConfig(Body):
    """How much the model thinks. `summary` has no effect: no summary is made."""

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
    """The format of the answer's text."""

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
    limited = [(part, most) for pair in pairs for part, most in zip(pair, (_KEY, _VALUE), strict=True)]
    if len(pairs) > _PAIRS or not all(isinstance(part, str) and len(part) <= most for part, most in limited):
        raise ValueError(f"must be an object of at most {_PAIRS} texts of {_VALUE} characters, keys of {_KEY}")
    return dict(pairs)


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
        """The body of the equivalent chat. Raises RequestError."""
        body: dict[str, Any] = {name: getattr(self, name) for name in _SAME if name in self.model_fields_set}
        body["messages"] = [turn for _, turn in located_turns(self.instructions, self.input)]
        body["tools"] = [tool.chat() for tool in self.tools]
        choice, form = self.tool_choice, self.text.format
        body["tool_choice"] = (
            choice if isinstance(choice, str) else {"type": "function", "function": {"name": choice["name"]}}
        )
        if self.max_output_tokens is not None:
            body["max_completion_tokens"] = self.max_output_tokens
        if form is not None and form.get("type") == "json_schema":  # a chat nests what is beside the name here
            form = {"type": "json_schema", "json_schema": {name: of for name, of in form.items() if name != "type"}}
        if form is not None:
            body["response_format"] = form
        if self.reasoning.effort is not None:
            body["reasoning_effort"] = self.reasoning.effort
        if _LOGPROBS in self.include:
            body |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        return body

    def places(self) -> list[str]:
        """The path in the body of each turn of the chat."""
        return [place for place, _ in located_turns(self.instructions, self.input)]

    def check(self) -> None:
        super().check()
        if self.top_logprobs and _LOGPROBS not in self.include:
            raise invalid(f"`top_logprobs` is for requests whose `include` holds {_LOGPROBS}.", "top_logprobs")
