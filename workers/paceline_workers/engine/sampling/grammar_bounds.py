"""Grammars refused before the library reads them, because they would take seconds or gigabytes. Pure.

The library follows `multipleOf` by its remainders and does not count that work: 99,991 takes 0.9 s, two of 9,973 and
9,967 that must both hold take minutes. A forced text is followed byte by byte when it begins: 60,000 take 50 ms a
request. Counts inside counts multiply.
Known hole: these are the known ones. Whatever else is costly, the limits of a check's process end (`grammar_process`).
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from math import lcm
from typing import Any

from paceline_workers.engine.sampling.json_schema import NAMED, QUOTED

MULTIPLE = 10_000
"""Largest `multipleOf` without its decimal point: 0.05 counts as 5. 50 ms on one core."""
LITERAL = 8_192
"""Characters of one text that is spelled out: a constant, a name, a stretch of an expression."""
REPEATS = 100_000
"""Counts of an expression that lie in each other, multiplied."""
OPTIONAL = 480
"""Properties of an object that are not required: any of them may come next, in four ways each, and the library follows
2,000 at one place. Reading 2,000 of them takes 0.4 s, and then no text gets beyond the first brace."""
_JOINS = {"$ref", "anyOf", "oneOf"}
_NUMBER = re.compile(r'"multipleOf"\s*:\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)', re.ASCII)
_COUNT = re.compile(r"\{(\d*)(?:,(\d*))?\}")
_BRACED = re.compile(r"\\[pPxuU]\{[^}]*\}|\\.", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_OPERATORS = re.compile(r"[|()\[\]{}*+?.\\]")
_LARK_TEXT = re.compile(r'"((?:\\.|[^"\\\n])*)"|/((?:\\.|[^/\\\n])+)/')


def schema_fault(schema: Mapping[str, Any]) -> str:
    """Return why a JSON schema is too costly, in words for the client; "" if no reason is known."""
    multiples: set[int] = set()
    together = False
    for path, node in _nodes(schema):
        if fault := _text_fault(path, node) or _width_fault(path, node):
            return fault
        multiple = node.get("multipleOf")
        if isinstance(multiple, int | float) and not isinstance(multiple, bool):
            if not multiple > 0:
                return f"`{path}multipleOf` is {multiple}, and must be more than 0"
            if (size := _size(str(multiple))) > MULTIPLE:
                return f"`{path}multipleOf` is {multiple}, and at most {MULTIPLE} without its decimal point is taken"
            multiples.add(size)
        together |= "allOf" in node or ("multipleOf" in node and not _JOINS.isdisjoint(node))
    if together and lcm(*multiples) > MULTIPLE:
        return f"its `multipleOf`, which `allOf` or `$ref` may join, have no common multiple up to {MULTIPLE}"
    return ""


def regex_fault(expression: str) -> str:
    """Return why a regular expression is too costly, or ""."""
    if (product := repeats(expression)) > REPEATS:
        return f"it repeats a part up to {product} times by counts within counts, and at most {REPEATS} is taken"
    if max(map(len, _OPERATORS.split(expression))) > LITERAL:
        return f"it spells out a text of more than {LITERAL} characters"
    return ""


def lark_fault(text: str) -> str:
    """Return why a grammar in Lark is too costly, with the schemas and expressions inside it, or ""."""
    sizes = {_size(number) for number in _NUMBER.findall(text)}
    if max(sizes, default=0) > MULTIPLE or ('"allOf"' in text and lcm(*sizes) > MULTIPLE):
        return f"a `multipleOf` in it, or several together, are over {MULTIPLE} without the decimal point"
    for literal, expression in _LARK_TEXT.findall(text):
        if len(literal) > LITERAL:
            return f"it spells out a text of more than {LITERAL} characters"
        if fault := regex_fault(expression):
            return fault
    return ""


def repeats(expression: str) -> int:
    """The largest product of counts that lie in each other: 6 for `(a{2}b{3}){2}`. What has no end counts as 1."""
    groups, last, at = [1], 1, 0
    while at < len(expression):
        found = _BRACED.match(expression, at) or _CLASS.match(expression, at) or _COUNT.match(expression, at)
        character = expression[at]
        at = found.end() if found else at + 1
        if found and character == "{":
            last *= max(int(number or 0) for number in (found[1][:9], (found[2] or "")[:9], "1"))
        elif character == "(":
            groups.append(1)
        elif character == ")" and len(groups) > 1:
            last = groups.pop()
        elif character not in "*+?":
            last = 1
        groups[-1] = max(groups[-1], last)
    return max(groups)


def _nodes(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every object of a schema and the path before its keys, without those that it quotes."""
    left: list[tuple[str, Any, bool]] = [("", schema, False)]
    while left:
        path, node, named = left.pop()
        if isinstance(node, dict):
            yield path, node
            inner = [(key, value) for key, value in node.items() if named or key not in QUOTED]
            left += [(f"{path}{key}.", value, not named and key in NAMED) for key, value in inner]
        elif isinstance(node, list):
            left += [(f"{path[:-1]}[{index}].", value, False) for index, value in enumerate(node)]


def _text_fault(path: str, node: Mapping[str, Any]) -> str:
    for key, value in node.items():
        if len(key) > LITERAL or (isinstance(value, str) and len(value) > LITERAL and key != "description"):
            return f"`{path}{key[:64]}` spells out a text of more than {LITERAL} characters"
        if isinstance(value, list) and any(isinstance(entry, str) and len(entry) > LITERAL for entry in value):
            return f"`{path}{key}` spells out a text of more than {LITERAL} characters"
    expressions = [node["pattern"]] if isinstance(node.get("pattern"), str) else []
    patterns = node.get("patternProperties")
    for expression in [*expressions, *(patterns if isinstance(patterns, dict) else ())]:
        if fault := regex_fault(expression):
            key = "pattern" if expression in expressions else "patternProperties"
            return f"`{path}{key}` is too costly: {fault}"
    return ""


def _width_fault(path: str, node: Mapping[str, Any]) -> str:
    named, required = node.get("properties"), node.get("required")
    if not isinstance(named, dict) or len(named) <= OPTIONAL:
        return ""
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    optional = len(named.keys() - needed)
    if optional <= OPTIONAL:
        return ""
    return f"`{path}properties` has {optional} that are not required, and at most {OPTIONAL} may follow one another"


def _size(number: str) -> int:
    """A decimal without its point and the zeros behind it: 5 for 0.05 and 0.050, 10 for 10.0, 4999999 for that."""
    try:
        value = Decimal(number).normalize()
    except ArithmeticError:  # more digits of an exponent than any number has
        return MULTIPLE + 1
    digits, exponent = value.as_tuple()[1:]
    if not isinstance(exponent, int):  # infinite, or no number
        return 1
    return int("".join(map(str, digits))) * 10 ** min(max(exponent, 0), 9) or 1
