"""Words of others as messages show them: short, and nothing that a terminal would act on; and the word that was meant.

A word is close to another if few letters are added, lost, changed or swapped: one in short words, at most three.
"""

from collections.abc import Sequence
from typing import Final

_SHOWN: Final = 40
_MOST_EDITS: Final = 3


def printable(text: str) -> str:
    """What a terminal would act on or begin a line with, escaped."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def truncate(value: object) -> str:
    """As text of at most 40 characters."""
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def one_spelling(word: str) -> str:
    """`served_name`, `served-name` and `servedName` alike."""
    return word.lower().replace("_", "").replace("-", "")


def closest(word: str, choices: Sequence[str], most: int = _MOST_EDITS) -> str:
    """The first of the choices that fewest edits make of the word, "" if none is within its limit."""
    wanted = one_spelling(word)
    found, limit = "", min(most, (len(wanted) + 2) // 4)
    for choice in choices:
        spelt = one_spelling(choice)
        if abs(len(spelt) - len(wanted)) <= limit and (count := edits(wanted, spelt)) <= limit:
            found, limit = choice, count - 1
    return found


def edits(one: str, other: str) -> int:
    """Letters to add, drop, change or swap with a neighbour until both are the same."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, start=1):
        line = [row]
        for column, against in enumerate(other, start=1):
            count = min(last[column] + 1, line[-1] + 1, last[column - 1] + (letter != against))
            if row > 1 < column and letter == other[column - 2] and one[row - 2] == against:
                count = min(count, before[column - 2] + 1)
            line.append(count)
        before, last = last, line
    return last[-1]
