"""All faults of a document at once: what is wrong by itself, and the rules that are broken whatever becomes of that."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.objects.corpus import Invalid, invalid, valid

from paceline_core.objects import KINDS, ManifestError, Problem, validate
from paceline_core.objects.rules import RULES

Loc = tuple[str | int, ...]
RULES_SAY = {rule.message for rule in RULES}
CASES = [case for case in invalid() if case.document.get("kind") in KINDS and isinstance(case.document["spec"], dict)]


def faults(document: Any) -> list[Problem]:
    try:
        validate(document)
    except ManifestError as error:
        return list(error.problems)
    return []


def fields(document: Any) -> list[str]:
    return [problem.field for problem in faults(document)]


def copy(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(document))
    return found


def service(**spec: Any) -> dict[str, Any]:
    found = copy(valid()["minimal"])
    found["spec"] |= spec
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_misspelt_field_elsewhere_hides_no_fault(case: Invalid) -> None:
    document = copy(case.document)
    document["metadata"]["zzz"] = 1
    assert sorted(fields(document)) == sorted([case.field, "metadata.zzz"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_empty_value_elsewhere_hides_no_fault(case: Invalid) -> None:
    document = copy(case.document)
    document["spec"].setdefault("telemetry", {})["zzz"] = None
    assert case.field in fields(document)


def test_a_rule_a_type_and_an_unknown_field_are_told_in_one_go() -> None:
    pools = [{"name": "main", "accelerator": "cpu", "spot": "yes", "replicas": {"min": 4, "max": 2}}]
    document = service(pools=pools, scaling={"polcy": "slo"}, engine={"kvCache": {"pageTokens": 48}})
    del document["apiVersion"]
    assert fields(document) == [
        "apiVersion",
        "spec.pools[0].spot",
        "spec.scaling.polcy",
        "spec.engine.kvCache.pageTokens",
        "spec.pools[0].replicas.min",
    ]


def test_of_another_groups_object_only_its_version_is_said() -> None:
    document = service(predictor={}) | {"apiVersion": "serving.kserve.io/v1beta1"}
    assert fields(document) == ["apiVersion"]


@pytest.mark.parametrize("name", valid())
def test_a_field_that_is_malformed_or_misspelt_breaks_no_rule(name: str) -> None:
    for loc in leaves(valid()[name]["spec"], ("spec",)):
        for wrong in spoilt(valid()[name], loc):
            told = [problem.message in RULES_SAY for problem in faults(wrong)]
            assert not any(told) or all(told), faults(wrong)  # all: a map takes any name, and the rule is about names


def leaves(value: Any, loc: Loc) -> Iterator[Loc]:
    """Places of all that is no map and no list."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not items:
        yield loc
    for step, item in items:
        yield from leaves(item, (*loc, step))


def spoilt(document: dict[str, Any], loc: Loc) -> Iterator[dict[str, Any]]:
    """The document with a value of no use at `loc`: of another type, empty; or with the field under another name."""
    useless: tuple[Any, ...] = ({"zzz": {}}, [[]], None)
    for value in useless:
        changed = copy(document)
        at(changed, loc[:-1])[loc[-1]] = value
        yield changed
    if isinstance(loc[-1], str):
        renamed = copy(document)
        parent = at(renamed, loc[:-1])
        parent["zzz"] = parent.pop(loc[-1])
        yield renamed


def at(document: Any, loc: Loc) -> Any:
    for step in loc:
        document = document[step]
    return document
