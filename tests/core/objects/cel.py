"""Evaluate a rule's CEL on plain JSON, with the functions of lists and quantities that Kubernetes adds to it."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel

from paceline_core.units import quantity


def evaluate(rule: str, value: Any) -> bool:
    """What the API server would decide; an error in evaluation is a refusal there, and here."""
    result = _program(rule).evaluate({"self": json_to_cel(value)})
    return bool(result)


@cache
def _program(rule: str) -> celpy.Runner:
    environment = celpy.Environment()
    functions: dict[str, Any] = {"isSorted": _is_sorted, "sum": _sum, "quantity": _quantity, "isLessThan": _is_less}
    return environment.program(environment.compile(rule), functions=functions)


def _is_sorted(items: Iterable[celtypes.IntType]) -> celtypes.BoolType:
    numbers = [int(item) for item in items]
    return celtypes.BoolType(numbers == sorted(numbers))


def _sum(items: Iterable[celtypes.IntType]) -> celtypes.IntType:
    return celtypes.IntType(sum(int(item) for item in items))


def _quantity(text: celtypes.StringType) -> celtypes.DoubleType:
    """Exact up to 2**53 bytes; what is larger is so for every rule."""
    return celtypes.DoubleType(quantity(str(text)))


def _is_less(one: celtypes.DoubleType, other: celtypes.DoubleType) -> celtypes.BoolType:
    return celtypes.BoolType(float(one) < float(other))
