"""Grammars of tool calls: calls in the model's format as an alternative to an answer, or mandatory calls.

The alternative is in llguidance's dialect of Lark, and only the worker writes it; a client cannot send this kind. Each
schema is on a line of its own, where the engine checks it. A marker that is a special token is written as its id, any
other is spelled out. Known hole: if calls have no marker (Llama), an answer whose schema also fits a call is read as
one.

Mandatory calls: the grammar allows nothing else, so the text is JSON, whatever format the model would choose. With one
function, the whole text is its arguments. With any function, it is a list of `{"name": ..., "parameters": {...}}`; each
function's schema is then under `$defs` by the function's name, and its own `$ref`s point there.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline_workers.server.tools.parser import Call, CallStart, Names, ParsedCalls, Syntax, call_of, value_at

Schemas = Mapping[str, Mapping[str, Any]]
_ANY: Mapping[str, Any] = {"type": "object"}
_QUOTED = {"const", "enum", "default", "examples"}
_NAMED = {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
"""Under these keywords, keys are names that the schema's author chose."""


@dataclass(frozen=True, slots=True)
class Forced:
    """Calls of `name`, or of any function if it is ""."""

    name: str = ""
    markers: tuple[str, ...] = ()
    syntax: Syntax = field(default_factory=lambda: Syntax(""))

    def find(self, text: str, *, fresh: bool, called: bool, final: bool) -> CallStart:  # noqa: ARG002 - a call is all
        """At the start of the text, and nothing after that."""
        return CallStart(len(text)) if called or not fresh else CallStart(0, 0)

    def read(self, words: str, names: Names, *, final: bool) -> ParsedCalls | None:
        """The value, once it is complete."""
        found = value_at(words, len(words) - len(words.lstrip()))
        if found is None:
            return ParsedCalls((), len(words)) if final else None
        return ParsedCalls(self._calls(found[0], names), found[1])

    def call_id(self, random: str) -> str:
        """Nine letters and digits, which every family's template accepts."""
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
    """Moves a schema to `root`: adapts its references, except in values that it quotes."""
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


Special = Callable[[str], int | None]
"""The id of a token that a grammar must name, None for any other text."""
_SPACES = {"x-guidance": {"whitespace_pattern": " ?"}}
_OBJECT: Mapping[str, Any] = {"type": "object"}
_PART = re.compile(r"\\.|[/%\n]", re.DOTALL)
_WRITTEN = {"/": r"\/", "%": r"\x25", "\n": r"\n"}


def alternative(answer: str, syntax: Syntax, schemas: Schemas, special: Special, *, most: int) -> str:
    """The grammar of `answer` (JSON or a regular expression) or of calls; of one call if `most` is 1.

    Raises ValueError if `answer` is of another kind.
    """
    rule = rule_of(answer)
    if rule is None:
        raise ValueError("only JSON and regular expressions can be followed beside `tools`")
    return "calls:" + "\n".join(
        ["start: answer | calls", f"answer: {rule}", *_calls(syntax, schemas, special, most > 1)]
    )


def rule_of(answer: str) -> str | None:
    """The grammar of JSON or of a regular expression as the body of a rule; None for another kind.

    Raises ValueError if a schema is invalid.
    """
    kind, _, text = answer.partition(":")
    if kind == "regex":
        return _regex(text)
    return _json(_schema(text)) if kind in ("json", "json_schema") else None


def _calls(syntax: Syntax, schemas: Schemas, special: Special, many: bool) -> Iterator[str]:
    opening, middle, closing = (spelled(text, special) for text in (syntax.opening, syntax.middle, syntax.closing))
    if syntax.named:
        yield "calls: call" + ("+" if many else "")
        yield "call: " + " | ".join(f"call_{place}" for place in range(len(schemas)))
        for place, (name, schema) in enumerate(schemas.items()):
            yield f"call_{place}: {opening} {json.dumps(name)} {middle} arguments_{place}"
            yield f"arguments_{place}: {_json(schema or _OBJECT)}"
        return
    if syntax.listed:
        more = '(", " one)*' if many else ""
        yield f'calls: {opening} "[" one {more} "]"'
    else:
        between = '"\\n"' if syntax.opening else '"; "'
        yield "calls: call" + (f" ({between} call)*" if many else "")
        yield f"call: {opening} one {closing}"
    yield f"one: {_json(any_call(schemas, syntax.key))}"


def spelled(text: str, special: Special) -> str:
    """A marker and the line ends around it, as a grammar writes them."""
    marker = text.strip()
    token = special(marker) if marker else None
    if token is None:
        return json.dumps(text) if text else ""
    before, after = text.split(marker)
    return " ".join(part for part in (spelled(before, special), f"<[{token}]>", spelled(after, special)) if part)


def _schema(text: str) -> Any:
    try:
        return json.loads(text) if text else _OBJECT
    except (ValueError, RecursionError):
        raise ValueError("its schema is not JSON") from None


def _json(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        raise ValueError("its schema must be a JSON object")  # noqa: TRY004 - the value is wrong, not a type in our code
    return f"%json {json.dumps({**_SPACES, **schema})}"


def _regex(text: str) -> str:
    """The expression between slashes, on one line; escapes `%`, which begins a schema in Lark."""
    if not text or (len(text) - len(text.rstrip("\\"))) % 2:
        raise ValueError("its regular expression is empty, or ends within an escape")
    return "/" + _PART.sub(lambda part: _WRITTEN.get(part[0][-1], part[0]), text) + "/"
