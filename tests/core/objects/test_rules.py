"""Every rule accepts something, rejects something, and fits an API server."""

import re
from collections.abc import Iterator
from typing import Any

from tests.core.objects.corpus import invalid, valid

from paceline_core.cel import holds
from paceline_core.objects import KINDS, ManifestError, validate
from paceline_core.objects.crd import judged
from paceline_core.objects.rules import RULES, Rule, places
from paceline_core.objects.schema import walk

Document = dict[str, Any]
FUNCTIONS = {
    "has", "all", "exists", "map", "sum", "size", "matches", "startsWith", "isSorted", "duration", "quantity",
    "isLessThan",
}  # fmt: skip


def judgements(document: Document) -> Iterator[tuple[Rule, bool]]:
    """Every rule that has something to judge in a document, and whether it holds; none where a field is faulty."""
    try:
        found = validate(document).model_dump(mode="json", by_alias=True, exclude_unset=True)
    except ManifestError:
        return
    for rule in RULES:
        if rule.kind == document["kind"]:
            yield from ((rule, holds(rule.cel, value)) for _, value in places(found, rule.path))


def test_every_rule_accepts_something_of_the_corpus() -> None:
    accepting = {rule.cel for document in valid().values() for rule, held in judgements(document) if held}
    assert {rule.cel for rule in RULES} - accepting == set()


def test_every_rule_rejects_something_of_the_corpus() -> None:
    rejecting = {rule.cel for case in invalid() for rule, held in judgements(case.document) if not held}
    assert {rule.cel for rule in RULES} - rejecting == set()


def test_every_class_and_metric_has_the_rules_of_the_promise() -> None:
    by_place = [rule.path for rule in RULES if rule.path.startswith("spec.classes")]
    for cls in ("interactive", "batch", "offline"):
        assert len([path for path in by_place if path.startswith(f"spec.classes.{cls}")]) == len(by_place) / 3


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
