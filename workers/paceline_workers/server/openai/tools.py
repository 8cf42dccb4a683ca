"""Tools in a chat's request: what is offered, what may be chosen, and the calls of earlier turns."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator

from paceline_workers.server.openai.validation import Body

TOOLS_LIMIT = 128
CALLS_LIMIT = 128
NAME = r"^[A-Za-z0-9_.-]{1,64}$"


def _of_object(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise ValueError('must be the schema of an object, with "type": "object", since arguments have names')
    return schema


Parameters = Annotated[dict[str, Any], AfterValidator(_of_object)]


class Function(Body):
    """A function that is offered; `parameters` is the JSON schema of its arguments."""

    name: str = Field(pattern=NAME)
    description: str | None = None
    parameters: Parameters = {}


class Tool(Body):
    """OpenAI's wrapping."""

    type: Literal["function"]
    function: Function

    def plain(self) -> dict[str, Any]:
        """As chat templates expect it: what was sent, without what was null."""
        return self.model_dump(exclude_unset=True)


class CalledFunction(Body):
    """What an earlier turn called; arguments are JSON text of an object."""

    name: str = Field(min_length=1, max_length=64)
    arguments: str = "{}"

    def plain(self) -> dict[str, Any]:
        """Templates write the arguments themselves, so they get the object; what is none stays text."""
        try:
            arguments = json.loads(self.arguments)
        except (ValueError, RecursionError):
            arguments = self.arguments
        return {"name": self.name, "arguments": arguments if isinstance(arguments, dict) else self.arguments}


class ToolCall(Body):
    """A call in an assistant's turn."""

    id: str = Field(default="", max_length=128)
    type: Literal["function"] = "function"
    function: CalledFunction

    def plain(self) -> dict[str, Any]:
        """As chat templates expect it."""
        return {"id": self.id, "type": self.type, "function": self.function.plain()}


def _choice(value: Any) -> str:
    if value in ("none", "auto", "required"):
        return str(value)
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    if isinstance(name, str) and name:
        return f"={name}"
    raise ValueError('must be "none", "auto", "required" or {"type": "function", "function": {"name": ...}}')


ToolChoice = Annotated[str, PlainValidator(_choice)]
"""none, auto, required, or `=name` for one function."""
