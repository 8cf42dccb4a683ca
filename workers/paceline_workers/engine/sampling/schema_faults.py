"""What the grammar library says of a schema, in the schema's own words. Pure.

The library names a keyword without its place, and its own types and options. What is not known here passes as it is.
Known hole: of several that have a keyword, the first one whose value is told, or else the first one, is named.
"""

import json
import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

from paceline_workers.engine.sampling.schemas import Schema, nodes, place

_UNFOLLOWED = re.compile(r'Unimplemented keys: \["([^"]+)"')
_WRONG = re.compile(r"Expected (.+) for '(\w+)', got (.+)")
_SIZES = re.compile(r"(\w+) \(([^()]+)\) is greater than (\w+) \(([^()]+)\)")
_KINDS = {
    "f64": "a number",
    "positive integer": "a whole number, 0 or more",
    "array": "a list",
    "string": "a text",
    "object": "an object",
}
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_NAMED = 3
"""Places in one message."""
_MOST = 10**18 - 128
"""Of a bound without another beside it: eighteen digits, which the library reads as a floating-point number."""


def in_words(notes: str, schema: Schema) -> str:
    """Why a schema cannot be followed: the path of what is wrong, and what to do about it."""
    if (found := _UNFOLLOWED.search(notes)) and (path := place(schema, found[1])):
        return f"no grammar can hold `{path}`; leave it out"
    if "coerce_one_of" in notes:
        places = _listed(f"`{path}oneOf`" for path, node in nodes(schema) if "oneOf" in node)
        return f"no grammar can hold that just one alternative of {places} fits, where several may; send `anyOf`"
    if found := _WRONG.search(notes):
        return f"`{_told(schema, found[2], found[3])}` must be {_KINDS.get(found[1], found[1])}, not {found[3]}"
    if found := _SIZES.search(notes):
        return f"`{_told(schema, found[1], found[2])}` ({found[2]}) must not be more than `{found[3]}` ({found[4]})"
    words = ""
    if "integer range" in notes:
        words = _range(schema)
    elif "'multipleOf' has too many digits" in notes:
        words = _digits(schema)
    return words or notes.removeprefix("Unsatisfiable schema: ")


def _listed(places: Iterable[str]) -> str:
    return " or ".join(islice(places, _NAMED))


def _told(schema: Schema, keyword: str, value: str) -> str:
    having = [(path, node[keyword]) for path, node in nodes(schema) if keyword in node]
    told = [path for path, has in having if json.dumps(has) == value]
    return f"{next(iter(told or [path for path, _ in having]), '')}{keyword}"


def _range(schema: Schema) -> str:
    for path, node in nodes(schema):
        for keyword in _BOUNDS:
            if _is_large(bound := node.get(keyword)):
                return f"`{path}{keyword}` is {str(bound)[:32]}, and whole numbers up to {_MOST} are followed"
    return ""


def _digits(schema: Schema) -> str:
    places = _listed(
        f"`{path}multipleOf` ({node['multipleOf']})"
        for path, node in nodes(schema)
        if isinstance(node.get("multipleOf"), float)
    )
    return f"no grammar can follow {places}: in binary digits it is too long; count whole numbers of a smaller unit"


def _is_large(bound: Any) -> bool:
    return isinstance(bound, int | float) and not -_MOST <= bound <= _MOST
