"""Rewrites a JSON schema for the grammar library without changing its meaning, and explains the library's errors. Pure.

A `format` that the library does not support is only a note, JSON Schema's default: pydantic writes `path`, `binary` or
`ipvanyaddress`, OpenAPI `int32`. `uniqueItems` is removed where it has no effect, `propertyNames` becomes the
expression that names match, and pydantic's one expression with a look-ahead (a Decimal's) becomes one without.
The library refuses other unsupported keywords by name; `place` finds the path of one.
Known hole: `propertyNames` supports only listed names, names that match one expression or have a length.

The library's errors name a keyword without its path, and the library's own types and options; `in_words` puts them in
the schema's terms and leaves unknown messages unchanged. Known hole: if several keywords match, it names the first one
with the reported value, else the first one.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "unknown", "uri", "uuid"}
)
"""Those that the library supports."""
QUOTED = frozenset({"const", "default", "enum", "examples"})
NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
"""Under these keywords, keys are names that the schema's author chose."""
_EXPRESSIONS = {r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$": r"^[+-]?(\d+\.?\d*|\.\d+)$"}
_NOTES = frozenset({"$comment", "deprecated", "description", "examples", "title"})
Schema = dict[str, Any]


def readable(schema: Schema) -> Schema:
    """The schema, rewritten for the library."""
    changed: Schema = _changed(schema, lambda node: _read(node, schema))
    return changed


def place(schema: Schema, keyword: str) -> str:
    """The path of the first `keyword` that is one, "" if there is none."""
    return next((f"{path}{keyword}" for path, node in nodes(schema) if keyword in node), "")


def nodes(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every schema within a schema and the path before its keywords, except in values that it quotes."""
    left: list[tuple[str, Any]] = [("", schema)]
    while left:
        path, node = left.pop()
        if isinstance(node, dict):
            yield path, node
            left += [(f"{path}{'.'.join(names)}.", inner) for names, inner in _within(node)]
        elif isinstance(node, list):
            left += [(f"{path[:-1]}[{index}].", inner) for index, inner in enumerate(node)]


def _within(node: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, inner in node.items():
        if key in NAMED and isinstance(inner, dict):
            yield from (((key, name), one) for name, one in inner.items())
        elif key not in QUOTED:
            yield (key,), inner


def _changed(value: Any, change: Callable[[Schema], Schema]) -> Any:
    if isinstance(value, list):
        return [_changed(inner, change) for inner in value]
    if not isinstance(value, dict):
        return value
    return {key: _inner(key, inner, change) for key, inner in change(value).items()}


def _inner(key: str, inner: Any, change: Callable[[Schema], Schema]) -> Any:
    if key in QUOTED:
        return inner
    if key in NAMED and isinstance(inner, dict):
        return {name: _changed(one, change) for name, one in inner.items()}
    return _changed(inner, change)


def _read(node: Schema, root: Schema) -> Schema:
    read = dict(node)
    if isinstance(written := read.get("format"), str) and written not in FORMATS:
        del read["format"]
    if read.get("uniqueItems") is False or ("uniqueItems" in read and read.get("maxItems") in (0, 1)):
        del read["uniqueItems"]
    if isinstance(pattern := read.get("pattern"), str):
        read["pattern"] = _EXPRESSIONS.get(pattern, pattern)
    if "propertyNames" in read and not read.keys() & {"properties", "patternProperties"}:
        expression = _names(read["propertyNames"], root)
        if expression is not None:
            del read["propertyNames"]
            values = read.pop("additionalProperties", True)
            read |= {"patternProperties": {expression: values}, "additionalProperties": False}
    return read


def _names(names: Any, root: Schema) -> str | None:
    """The expression that all names match as a whole, None if there is no single one."""
    if isinstance(names, dict) and isinstance(reference := names.get("$ref"), str):
        definitions = root.get("$defs")
        names = definitions.get(reference.removeprefix("#/$defs/")) if isinstance(definitions, dict) else None
    if not isinstance(names, dict) or names.get("type", "string") != "string":
        return None
    match {key: value for key, value in names.items() if key not in _NOTES | {"type"}}:
        case {"enum": [*listed], **rest} if not rest and listed and all(isinstance(name, str) for name in listed):
            return f"^({'|'.join(map(re.escape, listed))})$"
        case {"const": str(name), **rest} if not rest:
            return f"^{re.escape(name)}$"
        case {"pattern": str(expression), **rest} if not rest:
            return expression
        case {**rest} if rest.keys() <= {"minLength", "maxLength"} and all(type(n) is int for n in rest.values()):
            return rf"^[\s\S]{{{rest.get('minLength', 0)},{rest.get('maxLength', '')}}}$"
    return None


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
"""The most paths in one message."""
_MOST = 10**18 - 128
"""The largest bound without another beside it: eighteen digits, which the library reads as a floating-point number."""


def in_words(notes: str, schema: Schema) -> str:
    """Why a schema cannot be followed: the path of the error, and the fix."""
    if (found := _UNFOLLOWED.search(notes)) and (path := place(schema, found[1])):
        return f"no grammar can hold `{path}`; leave it out"
    if "coerce_one_of" in notes:
        places = _listed(f"`{path}oneOf`" for path, node in nodes(schema) if "oneOf" in node)
        return f"no grammar can hold that just one alternative of {places} fits, where several may; send `anyOf`"
    if found := _WRONG.search(notes):
        return f"`{_path_of(schema, found[2], found[3])}` must be {_KINDS.get(found[1], found[1])}, not {found[3]}"
    if found := _SIZES.search(notes):
        return f"`{_path_of(schema, found[1], found[2])}` ({found[2]}) must not be more than `{found[3]}` ({found[4]})"
    words = ""
    if "integer range" in notes:
        words = _range(schema)
    elif "'multipleOf' has too many digits" in notes:
        words = _digits(schema)
    return words or notes.removeprefix("Unsatisfiable schema: ")


def _listed(places: Iterable[str]) -> str:
    return " or ".join(islice(places, _NAMED))


def _path_of(schema: Schema, keyword: str, value: str) -> str:
    having = [(path, node[keyword]) for path, node in nodes(schema) if keyword in node]
    matching = [path for path, has in having if json.dumps(has) == value]
    return f"{next(iter(matching or [path for path, _ in having]), '')}{keyword}"


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
