"""Every rule accepts something, rejects something, and says the same in CEL as in Python."""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core.objects.cel import evaluate
from tests.core.objects.corpus import invalid, valid
from tests.every import cases

from paceline_core.objects import KINDS, ManifestError, validate
from paceline_core.objects.crd import judged
from paceline_core.objects.rules import RULES, Rule, places
from paceline_core.objects.schema import at, structural, walk

Document = dict[str, Any]
MESSAGES = {rule.message for rule in RULES}
FUNCTIONS = {
    "has", "all", "exists", "map", "sum", "size", "matches", "startsWith", "isSorted", "duration", "quantity",
    "isLessThan",
}  # fmt: skip


def well_formed(document: Document) -> bool:
    """Rules are asked only about documents that the schema takes."""
    try:
        validate(document)
    except ManifestError as error:
        return {problem.message for problem in error.problems} <= MESSAGES
    return True


DOCUMENTS = [*valid().values(), *(case.document for case in invalid() if well_formed(case.document))]


def typed(rule: Rule, value: Any) -> Any:
    """As the server hands it to a rule: what the schema calls a number is one, also where JSON has a whole one."""
    loc = [part for step in rule.path.split(".") if step for part in ((step[:-2], 0) if "[]" in step else (step,))]
    node = at(structural(KINDS[rule.kind]), tuple(loc)) or {}
    return float(value) if node.get("type") == "number" else value


def judgements(document: Document) -> Iterator[tuple[Rule, str, Any]]:
    for rule in RULES:
        if rule.kind == document["kind"]:
            yield from ((rule, place, value) for place, value in places(document, rule.path))


def test_every_rule_accepts_something_of_the_corpus() -> None:
    holding = {
        rule.cel for document in valid().values() for rule, _, value in judgements(document) if rule.holds(value)
    }
    assert {rule.cel for rule in RULES} - holding == set()


def test_every_rule_rejects_something_of_the_corpus() -> None:
    broken = {rule.cel for document in DOCUMENTS for rule, _, value in judgements(document) if not rule.holds(value)}
    assert {rule.cel for rule in RULES} - broken == set()


def test_an_invalid_manifest_breaks_at_most_one_rule() -> None:
    for case in invalid():
        if well_formed(case.document):
            assert len([1 for rule, _, value in judgements(case.document) if not rule.holds(value)]) <= 1, case.name


def test_every_class_and_metric_has_the_rules_of_the_promise() -> None:
    by_place = [rule.path for rule in RULES if rule.path.startswith("spec.classes")]
    for cls in ("interactive", "batch", "offline"):
        assert len([path for path in by_place if path.startswith(f"spec.classes.{cls}")]) == len(by_place) / 3


@cases("index", range(len(DOCUMENTS)))
def test_cel_and_python_agree_on_the_corpus(index: int) -> None:
    for rule, place, value in judgements(DOCUMENTS[index]):
        assert evaluate(rule.cel, typed(rule, value)) == rule.holds(value), (place, rule.message)


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(st.data())
def test_cel_and_python_agree_on_recombined_documents(data: st.DataObject) -> None:
    """Fields are taken away, and parts of one document put into another of the kind."""
    document = deepcopy(data.draw(st.sampled_from(DOCUMENTS)))
    others = [other for other in DOCUMENTS if other["kind"] == document["kind"]]
    for _ in range(data.draw(st.integers(1, 3))):
        owner, key = data.draw(st.sampled_from(list(_slots(document["spec"]))))
        donors = [part[key] for other in others for part, other_key in _slots(other["spec"]) if other_key == key]
        if data.draw(st.booleans()):
            owner[key] = deepcopy(data.draw(st.sampled_from(donors)))
        else:
            del owner[key]
        if not document["spec"]:
            return
    if well_formed(document):
        for rule, place, value in judgements(document):
            assert evaluate(rule.cel, typed(rule, value)) == rule.holds(value), (place, rule.message)


def test_every_message_is_one_sentence_that_the_server_takes() -> None:
    for rule in RULES:
        assert 10 < len(rule.message) <= 2048
        assert "\n" not in rule.message
        assert not rule.message.endswith(".")


def test_rules_use_only_what_every_supported_kubernetes_has() -> None:
    for rule in RULES:
        called = set(re.findall(r"([A-Za-z]+)\(", re.sub(r"'[^']*'", "''", rule.cel)))
        assert called <= FUNCTIONS, rule.cel


def test_a_rule_blames_a_field_that_the_schema_knows() -> None:
    for rule in RULES:
        schema = dict(walk(judged(KINDS[rule.kind])))
        assert f"{rule.path}{rule.field}".removeprefix(".") in schema, rule.message


def test_every_list_that_a_rule_walks_is_short() -> None:
    """The cost of a rule is the product of what it walks; the API server estimates it from these bounds."""
    for rule in RULES:
        schema = dict(walk(judged(KINDS[rule.kind])))
        for macro in re.findall(r"self((?:\.[A-Za-z]+)*)\.(?:all|exists|map)\(", rule.cel):
            assert schema[f"{rule.path}{macro}"]["maxItems"] <= 256, rule.cel


def _slots(value: Any) -> Iterator[tuple[Document, str]]:
    """Every (map, key) below a value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield value, key
            yield from _slots(item)
    if isinstance(value, list):
        for item in value:
            yield from _slots(item)
