"""A cross-field rule: one CEL expression, evaluated by the API server and, locally, by `paceline_core.cel`.

`path` names the values that the rule checks (`spec.pools[].replicas`: each of them); the expression sees one of them as
`self`, without defaults.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rule:
    """`field` is the faulty field, relative to the value (`.revision`); the message says what is wrong and the fix."""

    kind: str
    path: str
    cel: str
    message: str
    field: str = ""


def service_rule(path: str, cel: str, message: str, field: str = "") -> Rule:
    """A rule of InferenceService, the kind with most rules."""
    return Rule("InferenceService", path, cel, message, field)


def places(document: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value at `path` with its place: `spec.pools[]` yields `spec.pools[0]`, `spec.pools[1]`, ..."""
    found = [("", document)]
    for step in path.split(".") if path else ():
        name, is_list = step.removesuffix("[]"), step.endswith("[]")
        found = [(f"{at}.{name}".removeprefix("."), value[name]) for at, value in found if name in value]
        if is_list:
            found = [(f"{at}[{index}]", item) for at, value in found for index, item in enumerate(value)]
    yield from found
