"""The turns of a chat."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from paceline_workers.server.openai.body import Body, invalid
from paceline_workers.server.openai.tools import CALLS_LIMIT, ToolCall

MESSAGES_LIMIT = 2048
"""OpenAI's own; a body full of empty messages would hold up the loop for seconds."""


def _content(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise ValueError("must be a text or a list of parts")  # noqa: TRY004 - pydantic turns ValueError into a 400
    return "".join(_part(part) for part in value)


def _part(part: Any) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise ValueError('holds a part that is not {"type": "text", "text": ...}; this model takes text only')


class ChatMessage(Body):
    """One turn; `content` is the text of all its parts. A turn of role `tool` answers the call `tool_call_id`.

    `reasoning_content`, or `reasoning`, is what an assistant thought before.
    """

    role: str = Field(min_length=1, max_length=64)
    content: Annotated[str, BeforeValidator(_content)] = ""
    name: str | None = None
    tool_calls: list[ToolCall] = Field(default=[], max_length=CALLS_LIMIT)
    tool_call_id: str | None = Field(default=None, max_length=128)
    reasoning_content: str = ""
    reasoning: str = ""

    def check_at(self, place: str) -> None:
        """Only an assistant's turn may be without content, and only it calls. Raises RequestError."""
        if self.role != "assistant" and "content" not in self.model_fields_set:
            raise invalid(f"`{place}.content` is required.", f"{place}.content")
        if self.role != "assistant" and self.thought:
            name = "reasoning_content" if self.reasoning_content else "reasoning"
            raise invalid(f"`{place}.{name}` is for the role `assistant` alone.", f"{place}.{name}")
        if self.role != "assistant" and self.tool_calls:
            raise invalid(f"`{place}.tool_calls` is for the role `assistant` alone.", f"{place}.tool_calls")

    @property
    def thought(self) -> str:
        """The reasoning, by either name."""
        return self.reasoning_content or self.reasoning

    def plain(self) -> dict[str, Any]:
        """As chat templates expect it; they know the reasoning by either name."""
        own: dict[str, Any] = {"role": self.role, "content": self.content}
        calls = [call.plain() for call in self.tool_calls]
        more = {"name": self.name, "tool_calls": calls, "tool_call_id": self.tool_call_id}
        more |= {"reasoning_content": self.thought, "reasoning": self.thought}
        return own | {name: value for name, value in more.items() if value}
