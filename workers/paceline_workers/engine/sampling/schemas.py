"""A JSON schema in the words that the grammar library reads, with the same meaning. Pure.

A `format` that the library does not know is a note, as JSON Schema has it by default: pydantic writes `path`, `binary`
or `ipvanyaddress`, OpenAPI `int32`. `uniqueItems` goes where it says nothing, `propertyNames` becomes the expression
that names match, and the one expression with a look-ahead that pydantic wrote (a Decimal's) becomes one without.
Whatever else the library does not follow it refuses by the keyword; `place` finds where that stands.
Known hole: of `propertyNames`, only names that are listed, match one expression or have a length; others are refused.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "unknown", "uri", "uuid"}
)
"""Those that the library follows."""
QUOTED = frozenset({"const", "default", "enum", "examples"})
NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
"""Under these, keys are names of the schema's author."""
_EXPRESSIONS = {r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$": r"^[+-]?(\d+\.?\d*|\.\d+)$"}
_NOTES = frozenset({"$comment", "deprecated", "description", "examples", "title"})
Schema = dict[str, Any]


def readable(schema: Schema) -> Schema:
    """The same for the library."""
    changed: Schema = _changed(schema, lambda node: _read(node, schema))
    return changed


def place(schema: Schema, keyword: str) -> str:
    """The path of the first `keyword` that is one, "" if there is none."""
    return next((f"{path}{keyword}" for path, node in nodes(schema) if keyword in node), "")


def nodes(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every schema within a schema and the path before its keywords, without what it quotes."""
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
    """One level."""
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
    """What all names match as a whole, None where that is not one expression."""
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
