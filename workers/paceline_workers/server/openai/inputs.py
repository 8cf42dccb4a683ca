"""Prompts and inputs: one text, one list of token ids, or a list of either. Computes their ids and the tokens left for
output. Pure, except for the tokenizer.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from paceline_core.errors import Code, RequestError
from paceline_workers.server.openai.validation import Body, invalid
from paceline_workers.server.text.tokenizer import Tokenizer

COUNTED_CHARACTERS = 1 << 18
COUNTED_PER_TOKEN = 16
SALT_CHARACTERS = 1024
Input = str | list[int]


@dataclass(frozen=True, slots=True)
class Truncation:
    """Keep `tokens` of a prompt: side `left` drops its start, side `right` its end."""

    tokens: int
    side: Literal["left", "right"] = "left"

    def truncate(self, ids: Sequence[int], before: Sequence[int] = (), behind: Sequence[int] = ()) -> list[int]:
        """The truncated prompt; keeps the special tokens around it if there is room for more than them."""
        if len(ids) <= self.tokens:
            return list(ids)
        if self.tokens <= len(before) + len(behind):
            before = behind = ()
        text, count = ids[len(before) : len(ids) - len(behind)], self.tokens - len(before) - len(behind)
        return [*before, *(text[len(text) - count :] if self.side == "left" else text[:count]), *behind]


class CacheFields(Body):
    """How to truncate and to cache a prompt or an input. A truncation of -1 keeps as much as the model takes."""

    truncate_prompt_tokens: int | None = Field(default=None, ge=-1, lt=1 << 63)
    truncation_side: Literal["left", "right"] = "left"
    cache_salt: str = Field(default="", min_length=1, max_length=SALT_CHARACTERS)

    def salt(self, tenant: str) -> str:
        """The salt that separates its pages from others': the tenant, then the request's `cache_salt`."""
        return f"{tenant}\n{self.cache_salt}" if self.cache_salt else tenant

    def truncation(self, context: int, output: int) -> Truncation | None:
        """How to truncate a prompt before an answer of `output` tokens; None for not at all. Raises RequestError."""
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


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a text becomes ids: whether special tokens surround it, and how it is truncated.

    `output`: the least number of output tokens that must fit after the text. `text_tokens`: keep only this many tokens
    at the start of a text, not counting special tokens around it; 0 keeps all.
    """

    special: bool = True
    truncation: Truncation | None = None
    output: int = 1
    text_tokens: int = 0

    def check(self, one: Input, tokenizer: Tokenizer, context: int, name: str) -> None:
        """Refuse an input that is too long, before encoding it. Raises RequestError."""
        if self.truncation is None and not self.text_tokens:
            least = tokenizer.least(one) if isinstance(one, str) else len(one)
            if least + self.output > context:
                raise _no_room(least, f"at least {least}", context, name)
        elif isinstance(one, str):
            refuse_uncountable(one, context, name)

    async def chat_ids(self, text: str, tokenizer: Tokenizer, context: int, name: str, salt: str) -> list[int]:
        """The ids of a rendered chat; segments known for `salt` are not encoded again. Raises RequestError."""
        self.check(text, tokenizer, context, name)
        encoding = tokenizer.encode(text, special=True) if self.special else tokenizer.encode_chat(text, salt)
        return self.truncate(await encoding, tokenizer, text=True)

    def truncate(self, ids: list[int], tokenizer: Tokenizer, *, text: bool) -> list[int]:
        """The truncated ids. Ids from a client contain special tokens only if the client put them there."""
        if self.truncation is None and not (text and self.text_tokens):
            return ids
        around = tokenizer.around if text and self.special else ()
        if text and self.text_tokens:
            ids = Truncation(self.text_tokens + sum(map(len, around)), "right").truncate(ids, *around)
        return ids if self.truncation is None else self.truncation.truncate(ids, *around)


def room(prompt: int, asked: int | None, default: int | None, context: int, param: str) -> int:
    """The number of tokens to generate: `asked`, else `default` (both may be None), else what the context leaves.

    A default is cut to what the context leaves; an explicit number that does not fit raises RequestError, in OpenAI's
    words.
    """
    left = context - prompt
    if left < (asked != 0):
        raise _no_room(prompt, str(prompt), context, param)
    if asked is not None and asked > left:
        message = (
            f"This model's maximum context length is {context} tokens. However, you requested {prompt + asked} tokens "
            f"({prompt} in the {param}, {asked} in the completion). Please reduce the length of the {param} or "
            "completion."
        )
        raise RequestError(Code.CONTEXT_LENGTH_EXCEEDED, message, param=param)
    return min(default or left, left) if asked is None else asked


def _no_room(prompt: int, detail: str, context: int, param: str) -> RequestError:
    rest = ", and one at least must remain for the output" if prompt == context else ""
    message = (
        f"This model's maximum context length is {context} tokens. However, your {param} resulted in {detail} "
        f"tokens{rest}. Please reduce the length of the {param}."
    )
    return RequestError(Code.CONTEXT_LENGTH_EXCEEDED, message, param=param)


def most_counted(context: int) -> int:
    """The most characters of a text whose tokens the worker counts."""
    return max(COUNTED_CHARACTERS, COUNTED_PER_TOKEN * context)


def refuse_uncountable(text: str, context: int, param: str) -> None:
    """Refuse to count the tokens of a text far longer than any prompt can be. Raises RequestError."""
    most = most_counted(context)
    if len(text) > most:
        words = f"`{param}` has {len(text)} characters; at most {most} are counted at a time. Send it in parts."
        raise invalid(words, param)


def inputs(value: Any, most: int) -> list[Input]:
    """The value as a list of inputs. Raises ValueError."""
    if is_ids(value):
        return [value]
    several = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) or is_ids(one) for one in several):
        raise ValueError("must be a text, a list of token ids, or a list of texts or of such lists")
    if len(several) > most:
        raise ValueError(f"holds at most {most} texts or lists of token ids")
    return several


def is_ids(value: Any) -> bool:
    """Whether it is a list of integers, perhaps empty; fast, because there may be a million."""
    return isinstance(value, list) and set(map(type, value)) <= {int}


async def ids_of(
    tokenizer: Tokenizer, given: Sequence[Input], context: int, field: str, how: Encoding
) -> list[list[int]]:
    """The ids of each input, in order. Raises RequestError naming the wrong one."""
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
            if not ids:
                raise invalid(f"`{name}` must hold at least one token.", name)
            if min(ids) < 0 or max(ids) >= tokenizer.size:
                raise invalid(f"`{name}` holds a token id that is not in 0 to {tokenizer.size - 1}.", name)
            all_ids.append(ids)
    return all_ids


def names_of(field: str, count: int) -> list[str]:
    """The names of several inputs in a refusal."""
    return [field] if count == 1 else [f"{field}[{place}]" for place in range(count)]
