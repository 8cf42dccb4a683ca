"""The faults of a document, in messages that name the field and the fix instead of a library's terms.

An API server answers a broken pattern with the pattern, so each field of `spec` with a pattern gets a rule with the
message from `FIXES`: both sides report the same. Rules that convert a text (`duration(self)`) hold for a malformed one,
since its own rule reports that. In CEL `a || b` holds where `a` fails and `b` is true.
Invariant: the definition refuses what the patterns refuse.

Messages list only the choices that this version implements. The API only grows, so the others stay in the schema, and
`launch.unsupported` refuses them by name.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import ErrorDetails

from paceline_core.errors import InvalidInput
from paceline_core.objects.fields import FIXES, OVERSIZED
from paceline_core.objects.metadata import Object
from paceline_core.objects.schema import Schema, at, elsewhere, field_path, structural, walk
from paceline_core.objects.service import Strategy
from paceline_core.objects.service_runtime import KVDtype, Quantization
from paceline_core.units import QUANTITY_PATTERN, closest, counted, printable, truncate

QUANTIZATIONS: Final[tuple[Quantization, ...]] = ("none",)
STRATEGIES: Final[tuple[Strategy, ...]] = ("rolling",)
KV_DTYPES: Final[tuple[KVDtype, ...]] = ("auto", "fp32", "bf16", "fp8", "int8")
SERVED: Final[Mapping[str, tuple[str, ...]]] = {
    "spec.model.quantization": QUANTIZATIONS,
    "spec.engine.kvCache.dtype": KV_DTYPES,
    "spec.rollout.strategy": STRATEGIES,
}
"""Field -> choices."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault. `field` is a path such as `spec.pools[0].name`, empty for the document itself."""

    field: str
    message: str

    def __str__(self) -> str:
        return printable(f"{self.field}: {self.message}" if self.field else self.message)


class ManifestError(InvalidInput):
    """A manifest is refused: `problems` are all its faults, at least one; `context` says which document it was."""

    def __init__(self, problems: Sequence[FieldError], context: str = "") -> None:
        self.problems = tuple(problems)
        self.context = context
        prefix = f"{context}: " if context else ""
        super().__init__(self.problems[0].field, self.problems[0].message)
        self.args = ("\n".join(f"{prefix}{problem}" for problem in self.problems),)


def explain(errors: Sequence[ErrorDetails], kind: type[Object]) -> list[FieldError]:
    """Translate pydantic's errors with the kind's schema at their paths."""
    # pydantic also calls a list too short if all its entries are wrong
    return [
        _explained(error, kind)
        for error in errors
        if error["type"] != "too_short" or len(error["input"]) < error["ctx"]["min_length"]
    ]


def _is_oversized(error: ErrorDetails, kind: type[Object]) -> bool:
    """Whether a text has the right form but a larger number than its field's pattern allows."""
    if error["type"] not in ("string_pattern_mismatch", "string_too_long") or len(error["input"]) > _MOST_DIGITS:
        return False
    pattern = (at(structural(kind), tuple(error["loc"])) or {}).get("pattern")
    return pattern in OVERSIZED and re.fullmatch(OVERSIZED[pattern], error["input"]) is not None


def _explained(error: ErrorDetails, kind: type[Object]) -> FieldError:
    loc, schema = tuple(error["loc"]), structural(kind)
    context = error.get("ctx", {})
    if error["type"] == "twin":
        loc = (*loc, context["index"])
    if error["type"] == "extra_forbidden":
        return FieldError(field_path(schema, loc), _unknown(kind, tuple(loc[:-1]), str(loc[-1])))
    node, field = at(schema, loc) or {}, field_path(schema, loc)
    if field in SERVED:
        node = {**node, "enum": SERVED[field]}
    if _is_oversized(error, kind):
        return FieldError(field, f"{truncate(repr(error['input']))} is out of bounds: {FIXES[node['pattern']]}")
    say = _SAYINGS.get(error["type"])
    return FieldError(field, say(error["input"], context, node) if say else error["msg"])


def did_you_mean(word: str, choices: Sequence[str]) -> str:
    """`; did you mean replicas?` when one of the choices is close, else nothing."""
    found = closest(word, choices)
    return f"; did you mean {found}?" if found else ""


def misread(value: Any) -> str:
    """The plain words that YAML reads as this flag or as null where text is expected; "" for other values."""
    if value is None:
        return "; YAML reads null, ~ and an empty value so: write text in quotes"
    if isinstance(value, bool):
        words = "yes, on, y and true" if value else "no, off, n and false"
        return f"; YAML reads {words} so: write text in quotes"
    return ""


def _unknown(kind: type[Object], parent: tuple[str | int, ...], name: str) -> str:
    """A spelling mistake of one letter first, then the same name at another path, then less similar names."""
    known = list((at(structural(kind), parent) or {}).get("properties", {}))
    close = closest(name, known, 1)
    meant = [close] if close else elsewhere(kind, parent, name)
    if not meant and (close := closest(name, known)):
        meant = [close]
    if not meant:
        return f"unknown field; the fields here are {_listed(known)}"
    return f"unknown field; did you mean {' or '.join(filter(None, (', '.join(meant[:-1]), meant[-1])))}?"


def _missing(_: Any, __: Mapping[str, Any], node: Schema) -> str:
    about = node.get("description", "")
    text, example = about.partition(". ")[0].rstrip("."), _EXAMPLE.search(about)
    return f"is required{f': {text}' if text else ''}{f'; write it like {example[1]}' if example else ''}"


def _choice(value: Any, _: Mapping[str, Any], node: Schema) -> str:
    choices = [str(choice) for choice in node.get("enum", ())]
    if not isinstance(value, str):
        return f"must be {'one of ' if len(choices) > 1 else ''}{_listed(choices)}, not {shown(value)}{misread(value)}"
    if len(choices) == 1:
        return f"{truncate(repr(value))} is unknown; write {choices[0]}"
    return f"{truncate(repr(value))} is not one of {_listed(choices)}{did_you_mean(value, choices)}"


def _pattern(value: Any, context: Mapping[str, Any], _: Schema) -> str:
    pattern = str(context["pattern"])
    return f"{truncate(repr(value))} is malformed: {FIXES.get(pattern, f'it must match {pattern}')}"


def _type(value: Any, _: Mapping[str, Any], node: Schema) -> str:
    wanted = {"object": "a map of fields", "array": "a list", "integer": "a whole number"}
    kind = node.get("type", "object")
    hint = ""
    if kind == "string":
        hint = _quoted(value, node)
    elif "properties" in node:
        hint = f"; its fields are {_listed(list(node['properties']))}"
    elif "items" in node and isinstance(value, dict):
        hint = "; begin each of its entries with a dash"
    return f"must be {wanted.get(kind, f'a {kind}')}, not {shown(value)}{hint}"


def _quoted(value: Any, node: Schema) -> str:
    """A hint for a number or flag where text is expected: quotes, or the fix if the plain value lacks a unit."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return misread(value)
    pattern = str(node.get("pattern", ""))
    wrong = pattern and (pattern == QUANTITY_PATTERN or re.search(pattern, str(value)) is None)
    return f"; {FIXES.get(pattern, f'it must match {pattern}')}" if wrong else f'; write it in quotes: "{value}"'


def _bound(word: str, key: str) -> Callable[[Any, Mapping[str, Any], Schema], str]:
    return lambda value, context, _: f"must be {word} {context[key]}, not {shown(value)}"


def _length(one: str, many: str, word: str, key: str) -> Callable[[Any, Mapping[str, Any], Schema], str]:
    return lambda value, context, _: f"must have at {word} {counted(context[key], one, many)}, not {len(value)}"


def shown(value: Any) -> str:
    """A value as messages show it, in the manifest's notation."""
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
            return f"the text {truncate(repr(value))}"
    return truncate(value)


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words) if words else "none"


_MOST_DIGITS: Final = 40
_EXAMPLE: Final = re.compile(r"Example: (.+?)\.?$")
_SAYINGS: Final[dict[str, Callable[[Any, Mapping[str, Any], Schema], str]]] = {
    "missing": _missing,
    "literal_error": _choice,
    "enum": _choice,
    "string_pattern_mismatch": _pattern,
    "greater_than": _bound("above", "gt"),
    "greater_than_equal": _bound("at least", "ge"),
    "less_than_equal": _bound("at most", "le"),
    "string_too_long": _length("character", "characters", "most", "max_length"),
    "string_too_short": _length("character", "characters", "least", "min_length"),
    "too_long": _length("entry", "entries", "most", "max_length"),
    "too_short": _length("entry", "entries", "least", "min_length"),
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

_RULES: Final = "x-kubernetes-validations"
_CONVERTED: Final = re.compile(r"\b(?:duration|quantity)\((self[.\w]*)\)")


def with_messages(schema: Schema) -> Schema:
    """The same schema with the message rules for an API server."""
    served = deepcopy(schema)
    nodes = [(path, node) for path, node in walk(served) if path.startswith("spec")]
    for _, node in nodes:
        for rule in node.get(_RULES, ()):
            converted = dict.fromkeys(_CONVERTED.findall(rule["rule"]))
            if guards := [guard for value in converted for guard in _formed(value, node)]:
                rule["rule"] = f"({rule['rule']}) || !({' && '.join(guards)})"
    for path, node in nodes:
        if "pattern" in node:
            pattern = node.pop("pattern")
            if pattern not in FIXES:
                raise ValueError(f"{path}: FIXES does not say what to write for {pattern}")
            node[_RULES] = [{"rule": _matches("self", pattern), "message": FIXES[pattern]}, *node.get(_RULES, ())]
    return served


def _matches(value: str, pattern: str) -> str:
    return f"{value}.matches(r'{pattern}')"


def _formed(value: str, node: Schema) -> Iterator[str]:
    """CEL: a value below `self`, if present, is well-formed."""
    steps = value.split(".")
    found: dict[str, Any] = at(node, tuple(steps[1:])) or {}
    if "pattern" in found:
        absent = [f"!has({'.'.join(steps[:end])})" for end in range(2, len(steps) + 1)]
        yield f"({' || '.join((*absent, _matches(value, found['pattern'])))})"
