"""Prompts and inputs: one text, one list of token ids, or a list of either; and their ids.

How many tokens an answer may have, or why there is no room for any. Pure.

The turns of a chat.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from paceline_core.errors import Code, RequestError
from paceline_workers.server.openai.tools import CALLS_LIMIT, ToolCall
from paceline_workers.server.openai.validation import Body, invalid
from paceline_workers.server.text.tokenizer import Tokenizer

COUNTED_CHARACTERS = 1 << 18
COUNTED_PER_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Truncation:
    """Keep `tokens` of a prompt, on the left its end and on the right its begin."""

    tokens: int
    side: Literal["left", "right"] = "left"

    def truncate(self, ids: Sequence[int], before: Sequence[int] = (), behind: Sequence[int] = ()) -> list[int]:
        """What is left of a prompt; the special tokens around it stay while there is room for more than them."""
        if len(ids) <= self.tokens:
            return list(ids)
        if self.tokens <= len(before) + len(behind):
            return self._slice(ids, self.tokens)
        text = ids[len(before) : len(ids) - len(behind)]
        return [*before, *self._slice(text, self.tokens - len(before) - len(behind)), *behind]

    def _slice(self, ids: Sequence[int], count: int) -> list[int]:
        return list(ids[len(ids) - count :] if self.side == "left" else ids[:count])


def room(prompt: int, asked: int | None, default: int | None, context: int, param: str) -> int:
    """Tokens to generate: `asked`, which may be none, else `default`, else what the context leaves.

    A default is cut to the room; an explicit wish that does not fit is refused, in OpenAI's words. Raises RequestError.
    """
    left = context - prompt
    if left < (asked != 0):
        raise _no_room(prompt, str(prompt), context, param)
    if asked is not None and asked > left:
        raise _too_long(
            f"This model's maximum context length is {context} tokens. However, you requested {prompt + asked} tokens "
            f"({prompt} in the {param}, {asked} in the completion). Please reduce the length of the {param} or "
            "completion.", param
        )  # fmt: skip
    return min(default or left, left) if asked is None else asked


def refuse_overlong(least: int, context: int, param: str, output: int = 1) -> None:
    """Refuse a prompt of `least` tokens or more, not encoded yet, that leaves no room anyway. Raises RequestError."""
    if least + output > context:
        raise _no_room(least, f"at least {least}", context, param)


def most_counted(context: int) -> int:
    """Characters of a text whose tokens are counted."""
    return max(COUNTED_CHARACTERS, COUNTED_PER_TOKEN * context)


def refuse_uncountable(text: str, context: int, param: str) -> None:
    """Refuse to count the tokens of a text that is far longer than any prompt here. Raises RequestError."""
    most = most_counted(context)
    if len(text) > most:
        words = f"`{param}` has {len(text)} characters; at most {most} are counted at a time. Send it in parts."
        raise RequestError(Code.INVALID_REQUEST, words, param=param)


def _no_room(prompt: int, detail: str, context: int, param: str) -> RequestError:
    rest = ", and one at least must remain for the output" if prompt == context else ""
    return _too_long(
        f"This model's maximum context length is {context} tokens. However, your {param} resulted in {detail} "
        f"tokens{rest}. Please reduce the length of the {param}.", param
    )  # fmt: skip


def _too_long(message: str, param: str) -> RequestError:
    return RequestError(Code.CONTEXT_LENGTH_EXCEEDED, message, param=param)


Input = str | list[int]


def inputs(value: Any, most: int) -> list[Input]:
    """Each as one of a list. Raises ValueError."""
    if is_ids(value):
        return [value]
    several = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) or is_ids(one) for one in several):
        raise ValueError("must be a text, a list of token ids, or a list of texts or of such lists")
    if len(several) > most:
        raise ValueError(f"holds at most {most} texts or lists of token ids")
    return several


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a text becomes ids: with the tokens that stand around a prompt, cut to a length.

    `output`: so many tokens at least must find room behind them. `text_tokens`: a text keeps so many tokens at its
    begin, those around it not counted; 0: all of them.
    """

    special: bool = True
    truncation: Truncation | None = None
    output: int = 1
    text_tokens: int = 0

    def check(self, one: Input, tokenizer: Tokenizer, context: int, name: str) -> None:
        """Refuse what is too long before it is encoded. Raises RequestError."""
        if self.truncation is None and not self.text_tokens:
            refuse_overlong(tokenizer.least(one) if isinstance(one, str) else len(one), context, name, self.output)
        elif isinstance(one, str):
            refuse_uncountable(one, context, name)

    def truncate(self, ids: list[int], tokenizer: Tokenizer, *, text: bool) -> list[int]:
        """The ids that are kept; who sends ids has put special tokens among them, or not."""
        if self.truncation is None and not (text and self.text_tokens):
            return ids
        around = tokenizer.around if text and self.special else ()
        if text and self.text_tokens:
            ids = Truncation(self.text_tokens + sum(map(len, around)), "right").truncate(ids, *around)
        return ids if self.truncation is None else self.truncation.truncate(ids, *around)


async def ids_of(
    tokenizer: Tokenizer, given: Sequence[Input], context: int, field: str, how: Encoding
) -> list[list[int]]:
    """The ids of each, in order. Raises RequestError naming the one that is wrong."""
    names = names_of(field, len(given))
    for one, name in zip(given, names, strict=True):
        how.check(one, tokenizer, context, name)
    all_ids = []
    texts = [one for one in given if isinstance(one, str)]
    async with contextlib.aclosing(tokenizer.encode_each(texts, special=how.special)) as encoded:
        for one, name in zip(given, names, strict=True):
            text = isinstance(one, str)
            ids = how.truncate(await anext(encoded) if isinstance(one, str) else one, tokenizer, text=text)
            room(len(ids), None if how.output else 0, None, context, name)
            _check(ids, tokenizer.size, name)
            all_ids.append(ids)
    return all_ids


def names_of(field: str, count: int) -> list[str]:
    """What each of several is called in a refusal."""
    return [field] if count == 1 else [f"{field}[{place}]" for place in range(count)]


def is_ids(value: Any) -> bool:
    """A list of whole numbers, perhaps none; fast, since there may be a million."""
    return isinstance(value, list) and set(map(type, value)) <= {int}


def _check(ids: list[int], size: int, name: str) -> None:
    if not ids:
        raise invalid(f"`{name}` must hold at least one token.", name)
    if min(ids) < 0 or max(ids) >= size:
        raise invalid(f"`{name}` holds a token id that is not in 0 to {size - 1}.", name)


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
