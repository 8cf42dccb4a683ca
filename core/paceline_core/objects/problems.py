"""What is wrong with a document, in words that name the field and the fix instead of a library's terms."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from pydantic_core import ErrorDetails

from paceline_core.errors import InvalidInput
from paceline_core.objects.fields import FIXES
from paceline_core.objects.schema import Schema, at, field_path
from paceline_core.objects.served import SERVED
from paceline_core.words import cut, printable


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault. `field` is a path such as `spec.pools[0].name`, empty for the document itself."""

    field: str
    message: str

    def __str__(self) -> str:
        return printable(f"{self.field}: {self.message}" if self.field else self.message)


class ManifestError(InvalidInput):
    """A manifest is refused: `problems` are all its faults, at least one; `context` says which document it was."""

    def __init__(self, problems: Sequence[Problem], context: str = "") -> None:
        self.problems = tuple(problems)
        self.context = context
        prefix = f"{context}: " if context else ""
        super().__init__(self.problems[0].field, self.problems[0].message)
        self.args = ("\n".join(f"{prefix}{problem}" for problem in self.problems),)


def explain(errors: Sequence[ErrorDetails], schema: Schema) -> list[Problem]:
    """Translate pydantic's errors with the help of the schema at their places."""
    return [_explained(error, schema) for error in errors if not is_echo(error)]


def is_echo(error: ErrorDetails) -> bool:
    """A list whose entries are all at fault is also called too short, though it is not."""
    return error["type"] == "too_short" and len(error["input"]) >= error["ctx"]["min_length"]


def _explained(error: ErrorDetails, schema: Schema) -> Problem:
    loc = tuple(error["loc"])
    context = error.get("ctx", {})
    if error["type"] == "twin":
        loc = (*loc, context["index"])
    if error["type"] == "extra_forbidden":
        return Problem(field_path(schema, loc), _unknown(str(loc[-1]), at(schema, loc[:-1]) or {}))
    node, field = at(schema, loc) or {}, field_path(schema, loc)
    if field in SERVED:
        node = {**node, "enum": SERVED[field]}
    say = _SAYINGS.get(error["type"])
    return Problem(field, say(error["input"], context, node) if say else error["msg"])


def did_you_mean(word: str, choices: Sequence[str]) -> str:
    """`; did you mean replicas?` when one of the choices is close, else nothing."""
    by_lower = {choice.lower(): choice for choice in choices}
    close = get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


def _unknown(name: str, parent: Schema) -> str:
    known = list(parent.get("properties", {}))
    return f"unknown field{did_you_mean(name, known) or f'; the fields here are {_listed(known)}'}"


def _missing(_: Any, __: Mapping[str, Any], node: Schema) -> str:
    about = node.get("description", "").partition(". ")[0].rstrip(".")
    return f"is required: {about}" if about else "is required"


def _choice(value: Any, _: Mapping[str, Any], node: Schema) -> str:
    choices = [str(choice) for choice in node.get("enum", ())]
    if len(choices) == 1:
        return f"{cut(repr(value))} is unknown; write {choices[0]}"
    return f"{cut(repr(value))} is not one of {_listed(choices)}{did_you_mean(str(value), choices)}"


def _pattern(value: Any, context: Mapping[str, Any], _: Schema) -> str:
    pattern = str(context["pattern"])
    return f"{cut(repr(value))} is malformed: {FIXES.get(pattern, f'it must match {pattern}')}"


def _type(value: Any, _: Mapping[str, Any], node: Schema) -> str:
    wanted = {"object": "a map of fields", "array": "a list", "integer": "a whole number"}
    kind = node.get("type", "object")
    hint = _quoted(value, node) if kind == "string" else ""
    return f"must be {wanted.get(kind, f'a {kind}')}, not {_shown(value)}{hint}"


def _quoted(value: Any, node: Schema) -> str:
    """How a number becomes the text that is wanted; a bare one is not, where a unit belongs to it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    pattern = str(node.get("pattern", ""))
    wrong = pattern and re.search(pattern, str(value)) is None
    return f"; {FIXES.get(pattern, f'it must match {pattern}')}" if wrong else f'; write it in quotes: "{value}"'


def _bound(word: str, key: str) -> Callable[[Any, Mapping[str, Any], Schema], str]:
    return lambda value, context, _: f"must be {word} {context[key]}, not {_shown(value)}"


def _length(noun: str, word: str, key: str) -> Callable[[Any, Mapping[str, Any], Schema], str]:
    return lambda value, context, _: f"must have at {word} {context[key]} {noun}, not {len(value)}"


def _shown(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case dict():
            return "a map"
        case list():
            return "a list"
        case bool():
            return str(value).lower()
        case str():
            return f"the text {cut(repr(value))}"
    return cut(value)


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words) if words else "none"


_SAYINGS: Final[dict[str, Callable[[Any, Mapping[str, Any], Schema], str]]] = {
    "missing": _missing,
    "literal_error": _choice,
    "enum": _choice,
    "string_pattern_mismatch": _pattern,
    "greater_than": _bound("above", "gt"),
    "greater_than_equal": _bound("at least", "ge"),
    "less_than_equal": _bound("at most", "le"),
    "string_too_long": _length("characters", "most", "max_length"),
    "string_too_short": _length("characters", "least", "min_length"),
    "too_long": _length("entries", "most", "max_length"),
    "too_short": _length("entries", "least", "min_length"),
    "finite_number": lambda value, _, __: f"must be a finite number, not {value}",
    **dict.fromkeys(
        (
            "string_type",
            "int_type",
            "int_from_float",
            "float_type",
            "bool_type",
            "tuple_type",
            "dict_type",
            "model_type",
        ),
        _type,
    ),
}
