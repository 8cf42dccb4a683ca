"""Evaluates the CEL rules of the objects' definitions: the API server's rules, checked here.

The object is in the form that `validate` accepted: well-formed, without defaults, a number of a `double` field a float.
A rule is compiled at its first use. Kubernetes adds functions to CEL; those that the rules use are here.
Import this only where rules are evaluated: cel-python and its grammar take 0.2 s.
Known hole: a rule that cannot be evaluated counts as broken, with its own message; the API server says what failed.
"""

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

import celpy
from celpy.adapter import json_to_cel
from celpy.celtypes import BoolType, IntType
from celpy.evaluation import CELEvalError

from paceline_core.objects.field_errors import FieldError
from paceline_core.objects.metadata import Object
from paceline_core.objects.rules import RULES, Rule, places
from paceline_core.units import quantity

_KUBERNETES_FUNCTIONS: Final[dict[str, Any]] = {
    "isSorted": lambda items: BoolType(list(items) == sorted(items)),
    "sum": lambda items: IntType(sum(items)),
    "quantity": lambda text: quantity(str(text)),
    "isLessThan": lambda one, other: BoolType(one < other),
}


def violations(found: Object) -> list[FieldError]:
    document = found.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return list(broken((rule for rule in RULES if rule.kind == type(found).__name__), document))


def broken(rules: Iterable[Rule], document: Any) -> Iterator[FieldError]:
    for rule in rules:
        for place, value in places(document, rule.path):
            if not holds(rule.cel, value):
                yield FieldError(f"{place}{rule.field}".removeprefix("."), rule.message)


def holds(cel: str, value: Any) -> bool:
    """Whether an expression is true with plain JSON data as `self`."""
    try:
        return bool(_program(cel).evaluate({"self": json_to_cel(value)}))
    except CELEvalError:
        return False


@cache
def _program(cel: str) -> celpy.Runner:
    environment = _environment()
    return environment.program(environment.compile(cel), functions=_KUBERNETES_FUNCTIONS)


@cache
def _environment() -> celpy.Environment:
    """celpy raises the interpreter's recursion limit for the whole process; the rules do not need that."""
    limit = sys.getrecursionlimit()
    try:
        return celpy.Environment()
    finally:
        sys.setrecursionlimit(limit)
