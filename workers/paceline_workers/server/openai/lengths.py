"""How many tokens an answer may have, or why there is no room for any. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from paceline_core.errors import Code, RequestError

COUNTED_CHARACTERS = 1 << 18
COUNTED_PER_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Truncation:
    """Keep `tokens` of a prompt, on the left its end and on the right its begin."""

    tokens: int
    side: Literal["left", "right"] = "left"

    def cut(self, ids: Sequence[int], before: Sequence[int] = (), behind: Sequence[int] = ()) -> list[int]:
        """What is left of a prompt; the special tokens around it stay while there is room for more than them."""
        if len(ids) <= self.tokens:
            return list(ids)
        if self.tokens <= len(before) + len(behind):
            return self._kept(ids, self.tokens)
        text = ids[len(before) : len(ids) - len(behind)]
        return [*before, *self._kept(text, self.tokens - len(before) - len(behind)), *behind]

    def _kept(self, ids: Sequence[int], count: int) -> list[int]:
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


def _no_room(prompt: int, told: str, context: int, param: str) -> RequestError:
    rest = ", and one at least must remain for the output" if prompt == context else ""
    return _too_long(
        f"This model's maximum context length is {context} tokens. However, your {param} resulted in {told} "
        f"tokens{rest}. Please reduce the length of the {param}.", param
    )  # fmt: skip


def _too_long(message: str, param: str) -> RequestError:
    return RequestError(Code.CONTEXT_LENGTH_EXCEEDED, message, param=param)
