"""Durations, bytes and money: parsed from manifests, and written for them.

Also texts for messages: counts, quotations without control characters, spelling suggestions. A word is close to another
if few letters are added, removed, changed or swapped: one in short words, at most three.
"""

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

DURATION_PATTERN = r"^([0-9]{1,6}(ms|s|m|h))+$"  # six digits: CEL's durations end at 292 years
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$"
MONEY_PATTERN = r"^[0-9]+(\.[0-9]{1,6})?$"
CHARGE_PATTERN = r"^[0-9]+(\.[0-9]{1,9})?$"

_SHORTEST_S: Final = 0.0005
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_PART = re.compile(r"([0-9]+)(ms|s|m|h|d)")


def seconds(text: str) -> float:
    """`1m30s` -> 90.0; also days (`28d`), which only `sloWindow` allows. Raises ValueError."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration; write it like 500ms, 30s, 5m or 1h30m")
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)


def duration(value: float) -> str:
    """90.5 -> `1m30s500ms`: the exact inverse of `seconds` at millisecond resolution."""
    rest = round(value * 1000)
    out = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            out.append(f"{count}{unit}")
    return "".join(out) or "0s"


def brief(value: float) -> str:
    """For people: `420ms`, `2.3s`, `1m30s`, `<1ms`."""
    if 0 < value < _SHORTEST_S:
        return "<1ms"
    if 1 <= value < 60:
        return f"{value:.1f}".removesuffix(".0") + "s"
    return duration(value if value < 1 else round(value))


def counted(count: int, one: str, many: str = "") -> str:
    """`1 request`, `2 requests`; `many` for an irregular plural."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def quantity(text: str) -> int:
    """A Kubernetes quantity of bytes: `16Gi` -> 17179869184. Raises ValueError."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kMGT]i?|Ki)?", text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity; write it like 512Mi or 16Gi")
    return int(Decimal(match[1]) * _BYTES[match[2] or ""])


def cores(text: str) -> float:
    """A Kubernetes quantity of CPU: `500m` -> 0.5, `4` -> 4.0. Raises ValueError."""
    return int(text[:-1]) / 1000 if text.endswith("m") else float(text)


def dollars(text: str) -> Decimal:
    """A decimal string of US dollars: `2.35`. Raises ValueError."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not an amount in dollars; write it like 2.35") from None
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"{text!r} is not an amount in dollars; write it like 2.35")
    return amount


_SHOWN: Final = 40
_MOST_EDITS: Final = 3


def printable(text: str) -> str:
    """The text with control characters escaped, so that a terminal does not act on them."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def truncate(value: object, limit: int = _SHOWN) -> str:
    """The value as text of at most `limit` characters."""
    text = str(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def one_line(text: str, limit: int) -> str:
    """The text's words, one space apart, cut to the limit."""
    return truncate(" ".join(text.split()), limit)


def one_spelling(word: str) -> str:
    """The same key for `served_name`, `served-name` and `servedName`."""
    return word.lower().replace("_", "").replace("-", "")


def closest(word: str, choices: Sequence[str], most: int = _MOST_EDITS) -> str:
    """The choice with the fewest edits from the word, the first of several; "" if none is within its limit."""
    wanted = one_spelling(word)
    found, limit = "", min(most, (len(wanted) + 2) // 4)
    for choice in choices:
        spelt = one_spelling(choice)
        if abs(len(spelt) - len(wanted)) <= limit and (count := edits(wanted, spelt)) <= limit:
            found, limit = choice, count - 1
    return found


def edits(one: str, other: str) -> int:
    """The number of letters to add, drop, change or swap with a neighbour until both words are equal."""
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
