"""A pattern's field answers in words, on the API server as here, and in one line."""

from typing import Any

import pytest
from tests.core.objects.corpus import valid

from paceline_core.cel import holds
from paceline_core.objects import KINDS, ManifestError, validate
from paceline_core.objects.crd import crd, judged
from paceline_core.objects.field_errors import with_messages
from paceline_core.objects.fields import FIXES
from paceline_core.objects.metadata import Object
from paceline_core.objects.rules import places
from paceline_core.objects.schema import Schema, walk

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
RULES = "x-kubernetes-validations"


def served(kind: type[Object]) -> Schema:
    (version,) = crd(kind)["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


@every_kind
def test_every_pattern_of_a_spec_is_a_rule_with_the_fix_and_no_pattern(kind: type[Object]) -> None:
    before, after = dict(walk(judged(kind))), dict(walk(served(kind)))
    patterns = {path: node["pattern"] for path, node in before.items() if "pattern" in node and path.startswith("spec")}
    assert patterns
    for path, pattern in patterns.items():
        assert "pattern" not in after[path], path
        assert after[path][RULES][0] == {"rule": f"self.matches(r'{pattern}')", "message": FIXES[pattern]}, path


@every_kind
def test_every_rule_of_a_definition_holds_on_what_is_valid(kind: type[Object]) -> None:
    """As the server evaluates it, guards and pattern rules included."""
    judgements = 0
    for document in (one for one in valid().values() if one["kind"] == kind.__name__):
        for path, node in walk(served(kind)):
            if "{}" in path:
                continue
            for place, value in places(document, path):
                number = float(value) if node.get("type") == "number" else value
                for rule in node.get(RULES, ()):
                    judgements += 1
                    assert holds(rule["rule"], number), (place, rule)
    assert judgements > 5


def malformed(rules: list[dict[str, Any]], value: Any) -> list[str]:
    return [rule["message"] for rule in rules if not holds(rule["rule"], value)]


def test_a_malformed_duration_or_quantity_breaks_the_rule_of_its_own_field_alone() -> None:
    nodes = dict(walk(served(KINDS["InferenceService"])))
    for path, value, count in (
        ("spec.rollout.drainTimeout", "1.5s", 1),
        ("spec.classes.interactive.batchWindow", "soon", 1),
        ("spec.classes.interactive.slo.ttft", {"p50": "1.5s", "p95": "1s"}, 0),
        ("spec.classes.interactive.slo", {"ttft": {"p50": "1s"}, "e2e": {"p50": "1 s"}}, 0),
        ("spec.classes.interactive", {"batchWindow": "3 ms", "slo": {"ttft": {"p95": "1ms"}}}, 0),
        ("spec.engine.kvCache.hostOffloadBytes", "16 GB", 1),
        ("spec.engine.kvCache", {"hostOffloadBytes": "16 GB", "diskOffloadBytes": "1Gi"}, 0),
        ("spec.engine", {"prefixCache": False, "kvCache": {"hostOffloadBytes": "16 GB"}}, 0),
    ):
        assert len(malformed(nodes[path][RULES], value)) == count, path


def test_a_guard_lets_nothing_pass_that_is_well_formed_and_wrong() -> None:
    nodes = dict(walk(served(KINDS["InferenceService"])))
    for path, value in (
        ("spec.rollout.drainTimeout", "0s"),
        ("spec.classes.interactive.slo.ttft", {"p50": "2s", "p95": "1s"}),
        ("spec.engine.kvCache.hostOffloadBytes", "900Ti"),
        ("spec.engine.kvCache", {"hostOffloadBytes": "0", "diskOffloadBytes": "1Gi"}),
    ):
        assert len(malformed(nodes[path][RULES], value)) == 1, path


def test_here_and_there_the_words_are_the_same() -> None:
    document = {**valid()["minimal"]}
    document["spec"] = {**document["spec"], "rollout": {"drainTimeout": "1.5s"}}
    with pytest.raises(ManifestError) as refused:
        validate(document)
    nodes = dict(walk(served(KINDS["InferenceService"])))
    (words,) = malformed(nodes["spec.rollout.drainTimeout"][RULES], "1.5s")
    assert words in str(refused.value)
    assert "1500ms, not 1.5s" in words


def test_a_pattern_without_a_fix_is_an_error_at_generation() -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "string", "pattern": "^unheard-of$"}}}
    with pytest.raises(ValueError, match="FIXES"):
        with_messages(schema)
