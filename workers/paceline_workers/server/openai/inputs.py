"""Prompts and inputs: one text, one list of token ids, or a list of either; and their ids."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline_workers.server.openai.body import invalid
from paceline_workers.server.openai.lengths import Truncation, refuse_overlong, refuse_uncountable, room
from paceline_workers.server.tokenizer import Tokenizer

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

    def cut(self, ids: list[int], tokenizer: Tokenizer, *, text: bool) -> list[int]:
        """The ids that are kept; who sends ids has put special tokens among them, or not."""
        if self.truncation is None and not (text and self.text_tokens):
            return ids
        around = tokenizer.around if text and self.special else ()
        if text and self.text_tokens:
            ids = Truncation(self.text_tokens + sum(map(len, around)), "right").cut(ids, *around)
        return ids if self.truncation is None else self.truncation.cut(ids, *around)


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
            ids = how.cut(await anext(encoded) if isinstance(one, str) else one, tokenizer, text=text)
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
