"""A call that must come: the grammar leaves nothing else, whatever form the model would choose, so text is JSON.

One function: the whole text is its arguments. Any function: the text is a list of `{"name": ..., "parameters": {...}}`.
Then each function's schema stands under `$defs` by the function's name, and its own `$ref`s point there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline_workers.server.tools.calls import Call, CallStart, Names, ParsedCalls, Syntax, call_of, value_at

Schemas = Mapping[str, Mapping[str, Any]]
_ANY: Mapping[str, Any] = {"type": "object"}
_QUOTED = {"const", "enum", "default", "examples"}
_NAMED = {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
"""Under these, keys are names of the schema's author."""


@dataclass(frozen=True, slots=True)
class Forced:
    """Calls of `name`, or of any function if it is ""."""

    name: str = ""
    markers: tuple[str, ...] = ()
    syntax: Syntax = field(default_factory=lambda: Syntax(""))

    def find(self, text: str, *, fresh: bool, called: bool, final: bool) -> CallStart:  # noqa: ARG002 - a call is all
        """At once, and after it nothing."""
        return CallStart(len(text)) if called or not fresh else CallStart(0, 0)

    def read(self, words: str, names: Names, *, final: bool) -> ParsedCalls | None:
        """The value, once it is whole."""
        found = value_at(words, len(words) - len(words.lstrip()))
        if found is None:
            return ParsedCalls((), len(words)) if final else None
        return ParsedCalls(self._calls(found[0], names), found[1])

    def call_id(self, random: str) -> str:
        """Nine letters and digits, which every family's template takes."""
        return random[:9]

    def _calls(self, value: Any, names: Names) -> tuple[Call, ...]:
        if self.name:
            return (Call(self.name, json.dumps(value, ensure_ascii=False)),) if isinstance(value, dict) else ()
        calls = [call_of(entry, names) for entry in value] if isinstance(value, list) else []
        return tuple(call for call in calls if call)


def schema_of(name: str, schemas: Schemas, most: int) -> Mapping[str, Any]:
    """What `Forced(name)` reads, as a JSON schema: at most `most` calls; `schemas` are those of their arguments."""
    if name:
        return schemas[name] or _ANY
    one = any_call(schemas, "parameters")
    definitions = one.pop("$defs")
    return {"type": "array", "minItems": 1, "maxItems": most, "items": one, "$defs": definitions}


def any_call(schemas: Schemas, key: str) -> dict[str, Any]:
    """A call of any of the functions: `{"name": ..., key: {...}}`."""
    definitions = {entry: _moved(own or _ANY, f"#/$defs/{entry}") for entry, own in schemas.items()}
    return {"anyOf": [_call(entry, key) for entry in schemas], "$defs": definitions}


def _call(name: str, key: str) -> Mapping[str, Any]:
    properties = {"name": {"const": name}, key: {"$ref": f"#/$defs/{name}"}}
    required = ["name", key]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _moved(value: Any, root: str) -> Any:
    """A schema that stood alone and stands at `root` now: its references, those in values that it quotes excepted."""
    if isinstance(value, list):
        return [_moved(inner, root) for inner in value]
    if not isinstance(value, Mapping):
        return value
    moved = {key: _within(key, inner, root) for key, inner in value.items()}
    reference = value.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = root + reference[1:]
    return moved


def _within(key: str, inner: Any, root: str) -> Any:
    if key in _QUOTED:
        return inner
    if key in _NAMED and isinstance(inner, Mapping):
        return {name: _moved(schema, root) for name, schema in inner.items()}
    return _moved(inner, root)
