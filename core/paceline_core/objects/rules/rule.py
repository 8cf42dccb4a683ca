"""A cross-field rule: one line that the API server (CEL) and paceline (the predicate) both judge by.

`path` names the values that the rule is about (`spec.pools[].replicas`: each of them); both forms see one such value,
the predicate as plain JSON data without defaults. Invariant: for every well-formed value, CEL and predicate agree.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paceline_core.objects.field_errors import FieldError

Predicate = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """`field` is what is blamed, relative to the value (`.revision`); the message says what is wrong and the fix."""

    kind: str
    path: str
    cel: str
    message: str
    holds: Predicate
    field: str = ""


def service_rule(path: str, cel: str, message: str, holds: Predicate, field: str = "") -> Rule:
    """A rule of InferenceService, the kind that has most of them."""
    return Rule("InferenceService", path, cel, message, holds, field)


def broken(rules: Sequence[Rule], document: Any) -> list[FieldError]:
    """The rules that a well-formed document breaks, at every place where it breaks them."""
    return [
        FieldError(f"{place}{rule.field}".removeprefix("."), rule.message)
        for rule in rules
        for place, value in places(document, rule.path)
        if not rule.holds(value)
    ]


def places(document: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value at `path` with its place: `spec.pools[]` yields `spec.pools[0]`, `spec.pools[1]`, ..."""
    found = [("", document)]
    for step in path.split(".") if path else ():
        name, is_list = step.removesuffix("[]"), step.endswith("[]")
        found = [(f"{at}.{name}".removeprefix("."), value[name]) for at, value in found if name in value]
        if is_list:
            found = [(f"{at}[{index}]", item) for at, value in found for index, item in enumerate(value)]
    yield from found
