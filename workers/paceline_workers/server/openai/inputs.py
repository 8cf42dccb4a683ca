"""Prompts and inputs: one text, one list of token ids, or a list of either; and their ids."""

import contextlib
from collections.abc import Sequence
from typing import Any

from paceline_workers.server.openai.body import invalid
from paceline_workers.server.openai.lengths import refuse_overlong, room
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


async def ids_of(tokenizer: Tokenizer, given: Sequence[Input], context: int, field: str) -> list[list[int]]:
    """The ids of each, in order. Raises RequestError naming the one that is wrong."""
    names = names_of(field, len(given))
    for one, name in zip(given, names, strict=True):
        refuse_overlong(tokenizer.least(one) if isinstance(one, str) else len(one), context, name)
    all_ids = []
    texts = [one for one in given if isinstance(one, str)]
    async with contextlib.aclosing(tokenizer.encode_each(texts, special=True)) as encoded:
        for one, name in zip(given, names, strict=True):
            ids = await anext(encoded) if isinstance(one, str) else one
            room(len(ids), None, None, context, name)
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
