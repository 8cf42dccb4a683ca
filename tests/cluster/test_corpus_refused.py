"""What the API server alone refuses: every faulty manifest of the corpus, sent once, and every rule.

An update is validated by the server as a creation is; one faulty update of each kind shows that ours is.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import httpx
import pytest
from tests.cluster.harness.workbench import Workbench
from tests.cluster.served import Document, Refusal, created, placed, removed, replaced, serving
from tests.core.objects.corpus import Invalid, invalid, valid
from tests.every import cases

from paceline_core.cel import holds
from paceline_core.objects import KINDS
from paceline_core.objects.fields import FIXES
from paceline_core.objects.rules import RULES, Rule, places

pytestmark = pytest.mark.real

MESSAGES = {rule.message for rule in RULES}
REFUSED = [case for case in invalid() if case.server == "refuses"]
PRUNED = [case for case in invalid() if case.server == "prunes"]
UNSERVED = [case for case in invalid() if case.server == "serves no such kind"]
CHANGED = {case.document["kind"]: case for case in REFUSED if case.field.startswith("spec.")}
BASES = {"InferenceService": "minimal", "Tenant": "tenant", "InferenceRoute": "route-minimal"}
PROMISE_RULES = [rule for rule in RULES if rule.path.startswith("spec.classes.")]


@pytest.fixture(scope="module")
def api(apiserver: Workbench) -> Iterator[httpx.Client]:
    with serving(apiserver) as client:
        yield client


@pytest.fixture(scope="module")
def answers(api: httpx.Client) -> dict[str, Document | Refusal]:
    """What the server answers to each faulty manifest, by its name in the corpus."""
    return {case.name: created(api, placed(case.document), dry=True) for case in REFUSED}


@pytest.fixture(scope="module")
def bases(api: httpx.Client) -> Iterator[dict[str, Document]]:
    """A stored object of each kind, for updates to go wrong on."""
    stored = {kind: created(api, _base(kind)) for kind in (*BASES, "AcceleratorProfile")}
    assert all(isinstance(found, dict) for found in stored.values()), stored
    found = {kind: document for kind, document in stored.items() if isinstance(document, dict)}
    yield found
    for document in found.values():
        removed(api, document)


def test_at_least_eighty_faults_are_refused_by_the_server_alone() -> None:
    assert len(REFUSED) >= 80
    assert len(REFUSED) + len(PRUNED) + len(UNSERVED) == len(invalid())


@cases("case", REFUSED)
def test_a_faulty_manifest_is_refused_for_its_one_field(answers: dict[str, Document | Refusal], case: Invalid) -> None:
    _assert_refused(answers[case.name], case)


def test_a_faulty_update_of_each_kind_is_tried() -> None:
    assert CHANGED.keys() == KINDS.keys()


@cases("case", CHANGED.values())
def test_a_good_object_cannot_become_the_faulty_one(
    api: httpx.Client, bases: dict[str, Document], case: Invalid
) -> None:
    stored = bases[case.document["kind"]]
    changed = {**case.document, "metadata": {"name": stored["metadata"]["name"]}}
    _assert_refused(replaced(api, stored, placed(changed)), case)


@cases("case", PRUNED)
def test_what_the_server_does_not_know_is_dropped_and_the_rest_is_stored(api: httpx.Client, case: Invalid) -> None:
    """The known gap: an API server prunes typos and nulls without a word; `paceline lint` and `up` name them."""
    found = created(api, placed(case.document), dry=True)
    assert isinstance(found, dict), found
    assert _has(case.document, case.field)
    assert not _has(found, case.field)


@cases("case", UNSERVED)
def test_a_kind_or_version_that_is_not_ours_has_no_place_on_the_server(api: httpx.Client, case: Invalid) -> None:
    served = api.get("/apis/paceline.dev").json()
    versions = {entry["groupVersion"] for entry in served["versions"]}
    kinds = {entry["kind"] for entry in api.get("/apis/paceline.dev/v1alpha1").json()["resources"]}
    assert case.document["apiVersion"] not in versions or case.document["kind"] not in kinds


def test_every_rule_has_a_manifest_that_the_server_takes_and_one_that_it_refuses(
    answers: dict[str, Document | Refusal],
) -> None:
    """By its CEL: the rules of the promise stand at every class and metric, see the next test."""
    taken = {rule.cel for document in valid().values() for rule in RULES if _speaks(rule, document)}
    refused: set[str] = set()
    for case in REFUSED:
        found = answers[case.name]
        assert isinstance(found, Refusal)
        refused |= {rule.cel for rule in RULES for cause in found.causes if _said(rule, case.document, *cause)}
    assert {rule.cel for rule in RULES} - taken == set()
    assert {rule.cel for rule in RULES} - refused == set()


@cases("rule", PROMISE_RULES)
def test_every_class_and_metric_is_held_to_the_rules_of_the_promise(api: httpx.Client, rule: Rule) -> None:
    good, bad = (
        _values(rule, valid().values()),
        _values(rule, [c.document for c in invalid() if c.message in rule.message]),
    )
    kept = next(value for value in good if holds(rule.cel, value))
    breaks = next(value for value in bad if not holds(rule.cel, value))
    assert isinstance(created(api, _grafted(rule.path, kept), dry=True), dict)
    found = created(api, _grafted(rule.path, breaks), dry=True)
    assert isinstance(found, Refusal)
    assert rule.message in found.words(f"{rule.path}{rule.field}")


def _assert_refused(found: Document | Refusal, case: Invalid) -> None:
    assert isinstance(found, Refusal), "the server took it"
    assert found.status == 422
    assert case.field in found.fields, found
    told = [message for message in (*MESSAGES, *FIXES.values()) if case.message in message]
    assert not told or any(message in found.words(case.field) for message in told), found
    said = "\n".join(words for _, words in found.causes)
    assert "should match" not in said
    assert "type conversion" not in said
    if any(message in FIXES.values() for message in told):
        assert len(found.causes) == 1, found


def _base(kind: str) -> Document:
    """A valid object, under a name that nothing else here has."""
    name = BASES.get(kind, "accelerator")
    document = placed(valid()[name])
    return {**document, "metadata": {**document["metadata"], "name": "corpus-base"}}


def _speaks(rule: Rule, document: Document) -> bool:
    """Whether a rule has something to judge in a document, and holds there."""
    return rule.kind == document["kind"] and any(holds(rule.cel, value) for _, value in places(document, rule.path))


def _said(rule: Rule, document: Document, field: str, words: str) -> bool:
    same_place = re.sub(r"\[\d+\]", "[]", field) == f"{rule.path}{rule.field}".removeprefix(".")
    return rule.kind == document["kind"] and same_place and rule.message in words


def _has(document: Document, field: str) -> bool:
    """Whether there is something at `spec.pools[0].replicas.min`."""
    node: Any = document
    for step in re.findall(r"[^.\[\]]+", field):
        if isinstance(node, dict) and step not in node:
            return False
        node = node[int(step)] if isinstance(node, list) else node[step]
    return True


def _values(rule: Rule, documents: Any) -> list[Any]:
    """What the corpus has where a rule of the same words stands: at its own class or metric, then at any other."""
    alike = sorted((other for other in RULES if other.cel == rule.cel), key=lambda other: other.path != rule.path)
    return [
        value
        for other in alike
        for document in documents
        if other.kind == document["kind"]
        for _, value in places(document, other.path)
    ]


def _grafted(path: str, value: Any) -> Document:
    """The least service with one value put in at a path of fields."""
    document = placed(valid()["minimal"])
    node = document
    *parents, last = path.split(".")
    for name in parents:
        node = node.setdefault(name, {})
    node[last] = deepcopy(value)
    return document
