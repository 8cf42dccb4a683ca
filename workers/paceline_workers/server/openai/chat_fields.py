"""The inputs of a chat's prompt: its turns, its tools and the variables of the template.

Generation and token counting share them.

Templates write tools, documents and the arguments of earlier calls as JSON, often indented: a million numbers nested
100 levels deep take 3 MB in a body and 500 MB when indented. So the number of values is bounded. Arguments are JSON
inside a string, which the bounds on the body's own JSON do not cover: 8 MB of `[],` there take 1.3 s to parse.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from paceline_core.errors import RequestError
from paceline_core.json_limits import shape_of
from paceline_workers.server.openai.validation import Body, invalid
from paceline_workers.server.text.chat import Rendering

MESSAGES_LIMIT = 2048
"""OpenAI's limit; a body full of empty messages would block the event loop for seconds."""
TOOLS_LIMIT = 128
CALLS_LIMIT = 128
DOCUMENTS_LIMIT = 256
TEMPLATE_CHARACTERS = 1 << 16
VALUES = 32_768
"""The most values of each kind in a request: 128 tools of 256 values."""
NAME = r"^[A-Za-z0-9_.-]{1,64}$"
RESERVED = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize"}
)
"""Template variables that have a request field, or that clients cannot set."""
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def _of_object(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise ValueError('must be the schema of an object, with "type": "object", since arguments have names')
    return schema


Parameters = Annotated[dict[str, Any], AfterValidator(_of_object)]


class Function(Body):
    """A function that the model may call; `parameters` is the JSON schema of its arguments."""

    name: str = Field(pattern=NAME)
    description: str | None = None
    parameters: Parameters = {}


class Tool(Body):
    """A tool in OpenAI's wrapping."""

    type: Literal["function"]
    function: Function


class CalledFunction(Body):
    """The function that an earlier turn called; `arguments` is the JSON text of an object."""

    name: str = Field(min_length=1, max_length=64)
    arguments: str = "{}"


class ToolCall(Body):
    """A call in an assistant's turn."""

    id: str = Field(default="", max_length=128)
    type: Literal["function"] = "function"
    function: CalledFunction

    def plain(self) -> dict[str, Any]:
        """The form that templates expect: they serialize arguments themselves, so the JSON text is parsed if it can."""
        arguments: Any = self.function.arguments
        try:
            read = json.loads(arguments)
        except (ValueError, RecursionError):
            read = None
        function = {"name": self.function.name, "arguments": read if isinstance(read, dict) else arguments}
        return {"id": self.id, "type": self.type, "function": function}


def _choice(value: Any) -> str:
    if value in ("none", "auto", "required"):
        return str(value)
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    if isinstance(name, str) and name:
        return f"={name}"
    raise ValueError('must be "none", "auto", "required" or {"type": "function", "function": {"name": ...}}')


def _content(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise ValueError("must be a text or a list of parts")  # noqa: TRY004 - pydantic turns ValueError into a 400
    for part in value:
        if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            raise ValueError('holds a part that is not {"type": "text", "text": ...}; this model takes text only')
    return "".join(part["text"] for part in value)


class ChatMessage(Body):
    """One turn; `content` joins the text of all its parts. A turn of role `tool` answers the call `tool_call_id`.

    `reasoning_content` (or `reasoning`) is the reasoning of an earlier assistant's turn.
    """

    role: str = Field(min_length=1, max_length=64)
    content: Annotated[str, BeforeValidator(_content)] = ""
    name: str | None = None
    tool_calls: list[ToolCall] = Field(default=[], max_length=CALLS_LIMIT)
    tool_call_id: str | None = Field(default=None, max_length=128)
    reasoning_content: str = ""
    reasoning: str = ""

    def check_at(self, place: str) -> None:
        """Only an assistant's turn may lack content, and only it may have calls. Raises RequestError."""
        if self.role == "assistant":
            return
        if "content" not in self.model_fields_set:
            raise invalid(f"`{place}.content` is required.", f"{place}.content")
        for name in ("reasoning_content", "reasoning", "tool_calls"):
            if getattr(self, name):
                raise invalid(f"`{place}.{name}` is for the role `assistant` alone.", f"{place}.{name}")

    def plain(self) -> dict[str, Any]:
        """The form that templates expect, with the reasoning under both of its names."""
        own: dict[str, Any] = {"role": self.role, "content": self.content}
        calls = [call.plain() for call in self.tool_calls]
        more = {"name": self.name, "tool_calls": calls, "tool_call_id": self.tool_call_id}
        more |= dict.fromkeys(("reasoning_content", "reasoning"), self.reasoning_content or self.reasoning)
        return own | {name: value for name, value in more.items() if value}


class ChatFields(Body):
    """With `continue_final_message`, `add_generation_prompt` may be left out.

    `tool_choice`: none, auto, required, or `=name` for one function.
    """

    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    add_special_tokens: bool | None = None
    chat_template: str | None = Field(default=None, min_length=1, max_length=TEMPLATE_CHARACTERS)
    chat_template_kwargs: dict[str, Any] = {}
    tools: list[Tool] = Field(default=[], max_length=TOOLS_LIMIT)
    tool_choice: Annotated[str, PlainValidator(_choice)] = "auto"
    documents: list[dict[str, Any]] = Field(default=[], max_length=DOCUMENTS_LIMIT)
    reasoning_effort: Effort | None = None

    @property
    def begins_turn(self) -> bool:
        """Whether the prompt ends with the start of the assistant's turn."""
        return not self.continue_final_message if self.add_generation_prompt is None else self.add_generation_prompt

    @property
    def forced(self) -> str | None:
        """The function that the model must call, "" for any function, None if it need not call."""
        return self.tool_choice[1:] if self.tool_choice[0] == "=" else "" if self.tool_choice == "required" else None

    def check(self) -> None:
        """Check rules that involve several fields. Raises RequestError."""
        if self.continue_final_message and self.add_generation_prompt:
            words = (
                "`continue_final_message` goes on with a turn, `add_generation_prompt` begins one; send one of them."
            )
            raise invalid(words, "continue_final_message")
        if taken := sorted(RESERVED & self.chat_template_kwargs.keys()):
            words = f"`chat_template_kwargs` must not hold `{taken[0]}`; send it as a field, if it is one."
            raise invalid(words, "chat_template_kwargs")
        names, forced = {tool.function.name for tool in self.tools}, self.forced
        if forced is not None and not (forced in names if forced else names):
            wanted = f"the function `{forced[:64]}`" if forced else "a function"
            raise invalid(f"`tool_choice` wants {wanted}, which `tools` does not hold.", "tool_choice")

    def rendering(self) -> Rendering:
        """The template's variables. `reasoning_effort` also turns thinking on or off where a template supports that."""
        variables, effort = dict(self.chat_template_kwargs), self.reasoning_effort
        if effort is not None:
            variables = {"enable_thinking": effort != "none", **variables, "reasoning_effort": effort}
        return Rendering(self.begins_turn, self.continue_final_message, tuple(self.documents), variables)

    def for_template(
        self, messages: Sequence[ChatMessage]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], Rendering]:
        """`messages`, the callable tools and the variables, in the form that templates expect. Raises RequestError."""
        check_arguments(call.function.arguments for message in messages for call in message.tool_calls)
        offered = [] if self.tool_choice == "none" else self.tools
        tools, how = [tool.model_dump(exclude_unset=True) for tool in offered], self.rendering()
        for name, value in (("tools", tools), ("documents", how.documents), ("chat_template_kwargs", how.variables)):
            check_values(name, value)
        return [message.plain() for message in messages], tools, how


def check_values(field: str, value: Any) -> None:
    """Raises RequestError if `value` holds more than VALUES values, not counting itself and keys."""
    count, left = 0, [value]
    while left:
        one = left.pop()
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()
        count += len(inner)
        if count > VALUES:
            raise _too_many(field)
        left.extend(inner)


def check_arguments(texts: Iterable[str]) -> None:
    """Raises RequestError if the arguments of all calls hold more than VALUES values; does not parse them."""
    body = ",".join(texts).encode(errors="replace")
    if body.count(b"[") + body.count(b"{") + body.count(b",") <= VALUES:
        return
    shape = shape_of(body)
    if shape.strings > VALUES or shape.containers + shape.commas > VALUES:
        raise _too_many("messages", "The arguments of the calls in ")


def _too_many(field: str, part: str = "") -> RequestError:
    return invalid(f"{part}`{field}` hold more than {VALUES} JSON values; send fewer.", field)
