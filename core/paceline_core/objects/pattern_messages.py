"""Patterns of a definition as rules with a message: an API server answers a pattern with itself, a rule with words.

Each field of `spec` that has a pattern gets a rule with the words of `FIXES` in its place, so both sides say the same.
Rules that convert a text (`duration(self)`) hold where it is malformed: its own rule tells that, and the server's words
about a failed conversion would be a second line. In CEL `a || b` holds where `a` fails and `b` is true.
Invariant: the definition refuses what the patterns refuse.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from paceline_core.objects.fields import FIXES
from paceline_core.objects.schema import Schema, at, walk

_RULES: Final = "x-kubernetes-validations"
_CONVERTED: Final = re.compile(r"\b(?:duration|quantity)\((self[.\w]*)\)")


def with_messages(schema: Schema) -> Schema:
    """The same schema as an API server should have it."""
    served = deepcopy(schema)
    nodes = [(path, node) for path, node in walk(served) if path.startswith("spec")]
    for _, node in nodes:
        for rule in node.get(_RULES, ()):
            rule["rule"] = _guarded(rule["rule"], node)
    for path, node in nodes:
        if "pattern" in node:
            node[_RULES] = [_rule(path, node.pop("pattern")), *node.get(_RULES, ())]
    return served


def _rule(path: str, pattern: str) -> dict[str, str]:
    if pattern not in FIXES:
        raise ValueError(f"{path}: FIXES does not say what to write for {pattern}")
    return {"rule": _matches("self", pattern), "message": FIXES[pattern]}


def _matches(value: str, pattern: str) -> str:
    return f"{value}.matches(r'{pattern}')"


def _guarded(rule: str, node: Schema) -> str:
    converted = dict.fromkeys(_CONVERTED.findall(rule))
    guards = [guard for value in converted for guard in _formed(value, node)]
    return f"({rule}) || !({' && '.join(guards)})" if guards else rule


def _formed(value: str, node: Schema) -> Iterator[str]:
    """That a value below `self` is well-formed, if it is there."""
    steps = value.split(".")
    found: dict[str, Any] = at(node, tuple(steps[1:])) or {}
    if "pattern" in found:
        absent = [f"!has({'.'.join(steps[:end])})" for end in range(2, len(steps) + 1)]
        yield f"({' || '.join((*absent, _matches(value, found['pattern'])))})"
