"""Structured output as OpenAI and vLLM request it, converted to the one string that the engine follows.

OpenAI: `response_format`. vLLM: `structured_outputs`, and earlier `guided_json`, `_regex`, `_choice`, `_grammar`.
vLLM's white-space options become the schema's `x-guidance`, which the engine's grammar follows.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from paceline_workers.engine.sampling.grammar import LONGEST
from paceline_workers.server.openai.validation import Body, invalid

CHOICES_LIMIT = 256


class StructuredFields(Body):
    """The fields that request structured output; at most one takes effect."""

    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None

    @property
    def requested(self) -> tuple[str, str]:
        """The requested grammar and the field that requests it; both "" if no field does. Raises RequestError."""
        constraints = []
        if self.response_format is not None:
            constraints.append((_format(self.response_format), "response_format"))
        if self.structured_outputs is not None:
            constraints.append((_structured(self.structured_outputs), "structured_outputs"))
        kinds = ("json", "regex", "choice", "grammar")
        guided = [(kind, value) for kind in kinds if (value := getattr(self, f"guided_{kind}")) is not None]
        constraints += [(_kind(kind, value, f"guided_{kind}"), f"guided_{kind}") for kind, value in guided]
        named = [(text, field) for text, field in constraints if text]
        if len(named) > 1:
            raise invalid(f"`{named[1][1]}` and `{named[0][1]}` cannot be followed both; send one.", named[1][1])
        return named[0] if named else ("", "")


def _format(value: Any) -> str:
    match value:
        case {"type": "text"}:
            return ""
        case {"type": "json_object"}:
            return "json"
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema}}:
            return f"json_schema:{json.dumps(schema)}"
    raise invalid(
        '`response_format` must be {"type": "text"}, {"type": "json_object"} or '
        '{"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}.', "response_format"
    )  # fmt: skip


def _structured(value: Any) -> str:
    constraints = {kind: of for kind, of in value.items() if of is not None} if isinstance(value, dict) else {}
    spaces = _spaces(constraints.pop("whitespace_pattern", None), constraints.pop("disable_any_whitespace", False))
    if len(constraints) != 1 or not constraints.keys() <= _KINDS.keys():
        raise invalid(f"`structured_outputs` must hold one of {', '.join(_KINDS)}.", "structured_outputs")
    ((kind, value_of),) = constraints.items()
    return _spaced(_kind(kind, value_of, f"structured_outputs.{kind}"), spaces)


def _spaces(pattern: Any, none: Any) -> Mapping[str, Any]:
    if not isinstance(none, bool):
        raise invalid("`structured_outputs.disable_any_whitespace` must be true or false.", "structured_outputs")
    if pattern is None:
        return {"whitespace_flexible": False} if none else {}
    if none or not isinstance(pattern, str):
        words = "must be a regular expression, and not together with `disable_any_whitespace`"
        raise invalid(f"`structured_outputs.whitespace_pattern` {words}.", "structured_outputs")
    return {"whitespace_pattern": pattern}


def _spaced(grammar: str, spaces: Mapping[str, Any]) -> str:
    """The grammar with these white-space options; unchanged if it is not a JSON schema, for the grammar check."""
    if not spaces:
        return grammar
    kind, _, text = grammar.partition(":")
    if not kind.startswith("json"):
        raise invalid("`structured_outputs` has white space to tell of JSON alone.", "structured_outputs")
    if len(text) > LONGEST:
        return grammar  # the grammar check refuses it, and reading it would take long
    try:
        schema = json.loads(text or '{"type": "object"}')
    except (ValueError, RecursionError):
        return grammar
    return f"json_schema:{json.dumps(schema | {'x-guidance': spaces})}" if isinstance(schema, dict) else grammar


def _kind(kind: str, value: Any, param: str) -> str:
    try:
        return _KINDS[kind](value)
    except ValueError as error:
        raise invalid(f"`{param}` {error}.", param) from None


def _schema(value: Any) -> str:
    if not isinstance(value, dict | str):
        raise ValueError("must be a JSON schema, as an object or as text")  # noqa: TRY004 - an answer, not a fault
    return f"json_schema:{value if isinstance(value, str) else json.dumps(value)}"


def _text(prefix: str) -> Callable[[Any], str]:
    def take(value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise ValueError("must be a text that is not empty")
        return f"{prefix}:{value}"

    return take


def _choices(value: Any) -> str:
    """One of several texts: an alternative of string literals, which Lark writes as JSON does."""
    if not isinstance(value, list) or not 0 < len(value) <= CHOICES_LIMIT:
        raise ValueError(f"must be a list of 1 to {CHOICES_LIMIT} texts")
    if not all(isinstance(choice, str) and choice for choice in value):
        raise ValueError("must hold texts that are not empty")
    return "lark:start: " + " | ".join(json.dumps(choice, ensure_ascii=False) for choice in value)


def _object(value: Any) -> str:
    if value is not True:
        raise ValueError("must be true")
    return "json"


_KINDS: Mapping[str, Callable[[Any], str]] = {
    "json": _schema,
    "regex": _text("regex"),
    "choice": _choices,
    "grammar": _text("lark"),
    "json_object": _object,
}
