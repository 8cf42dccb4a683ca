"""Words of others as messages show them: short, and nothing that a terminal would act on."""

from typing import Final

_SHOWN: Final = 40


def printable(text: str) -> str:
    """What a terminal would act on or begin a line with, escaped."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def cut(value: object) -> str:
    """As text of at most 40 characters."""
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
