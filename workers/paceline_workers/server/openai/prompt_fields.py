"""Fields that say how a prompt comes to be: what a chat template is told, what is cut off, with whom it is cached."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from paceline_workers.server.openai.inputs import Truncation
from paceline_workers.server.openai.validation import Body, invalid
from paceline_workers.server.text.chat import Rendering

SALT_CHARACTERS = 1024
DOCUMENTS_LIMIT = 256
TEMPLATE_CHARACTERS = 1 << 16
RESERVED = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize"}
)
"""Variables of a template that have fields of their own, or none."""
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class CacheFields(Body):
    """Of prompts and inputs. Truncation: -1 keeps as many tokens as the model takes."""

    truncate_prompt_tokens: int | None = Field(default=None, ge=-1, lt=1 << 63)
    truncation_side: Literal["left", "right"] = "left"
    cache_salt: str = Field(default="", min_length=1, max_length=SALT_CHARACTERS)

    def salt(self, tenant: str) -> str:
        """What parts its pages from those of others: the tenant, and within it what the request says."""
        return f"{tenant}\n{self.cache_salt}" if self.cache_salt else tenant

    def truncation(self, context: int, output: int) -> Truncation | None:
        """To what a prompt is cut before an answer of so many tokens; None for nothing. Raises RequestError."""
        most, asked = context - output, self.truncate_prompt_tokens
        if asked is None:
            return None
        if most < 1:
            words = f"`truncate_prompt_tokens` has nothing to keep: {output} tokens of output are asked for, and the"
            raise invalid(f"{words} model's context has {context}.", "truncate_prompt_tokens")
        if not (asked == -1 or 1 <= asked <= most):
            words = f"`truncate_prompt_tokens` must be -1, or from 1 to {most}, which is what the context leaves."
            raise invalid(words, "truncate_prompt_tokens")
        return Truncation(most if asked < 0 else asked, self.truncation_side)


class TemplateFields(Body):
    """Of chats. Whoever continues a message need not say that no turn begins behind it."""

    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    add_special_tokens: bool | None = None
    chat_template: str | None = Field(default=None, min_length=1, max_length=TEMPLATE_CHARACTERS)
    chat_template_kwargs: dict[str, Any] = {}

    def check(self) -> None:
        """What no field can tell alone. Raises RequestError."""
        super().check()
        if self.continue_final_message and self.add_generation_prompt:
            words = (
                "`continue_final_message` goes on with a turn, `add_generation_prompt` begins one; send one of them."
            )
            raise invalid(words, "continue_final_message")
        if taken := sorted(RESERVED & self.chat_template_kwargs.keys()):
            words = f"`chat_template_kwargs` must not hold `{taken[0]}`; send it as a field, if it is one."
            raise invalid(words, "chat_template_kwargs")

    @property
    def begins_turn(self) -> bool:
        """The prompt ends where the assistant's turn begins."""
        return not self.continue_final_message if self.add_generation_prompt is None else self.add_generation_prompt

    def rendering(self, documents: Sequence[dict[str, Any]] = (), effort: Effort | None = None) -> Rendering:
        """What the template is told. Who asks for an effort turns thinking on or off where a template knows how."""
        variables = dict(self.chat_template_kwargs)
        if effort is not None:
            variables = {"enable_thinking": effort != "none", **variables, "reasoning_effort": effort}
        return Rendering(self.begins_turn, self.continue_final_message, tuple(documents), variables)
