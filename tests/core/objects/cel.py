"""Evaluate a rule's CEL on plain JSON, with the two list functions that Kubernetes adds to the language."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel


def evaluate(rule: str, value: Any) -> bool:
    """What the API server would decide; an error in evaluation is a refusal there, and here."""
    result = _program(rule).evaluate({"self": json_to_cel(value)})
    return bool(result)


@cache
def _program(rule: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(rule), functions={"isSorted": _is_sorted, "sum": _sum})


def _is_sorted(items: Iterable[celtypes.IntType]) -> celtypes.BoolType:
    numbers = [int(item) for item in items]
    return celtypes.BoolType(numbers == sorted(numbers))


def _sum(items: Iterable[celtypes.IntType]) -> celtypes.IntType:
    return celtypes.IntType(sum(int(item) for item in items))
