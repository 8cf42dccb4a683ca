"""Fields of a chat that its prompt depends on, beside its turns: the same where a prompt is made and counted."""

from typing import Any

from pydantic import Field

from paceline_workers.server.openai.prompt_fields import DOCUMENTS_LIMIT, Effort, TemplateFields
from paceline_workers.server.openai.tools import TOOLS_LIMIT, Tool, ToolChoice
from paceline_workers.server.openai.validation import invalid


class ChatFields(TemplateFields):
    """What the template is told of tools, documents and effort."""

    tools: list[Tool] = Field(default=[], max_length=TOOLS_LIMIT)
    tool_choice: ToolChoice = "auto"
    documents: list[dict[str, Any]] = Field(default=[], max_length=DOCUMENTS_LIMIT)
    reasoning_effort: Effort | None = None

    @property
    def offered(self) -> list[Tool]:
        """The tools that may be called."""
        return [] if self.tool_choice == "none" else self.tools

    @property
    def forced(self) -> str | None:
        """The function that must be called, "" for any of them, None where none must."""
        return self.tool_choice[1:] if self.tool_choice[0] == "=" else "" if self.tool_choice == "required" else None

    def check(self) -> None:
        """What no field can tell alone. Raises RequestError."""
        super().check()
        names = {tool.function.name for tool in self.tools}
        if self.forced is not None and not (self.forced in names if self.forced else names):
            wanted = f"the function `{self.forced[:64]}`" if self.forced else "a function"
            raise invalid(f"`tool_choice` wants {wanted}, which `tools` does not hold.", "tool_choice")
