import json
from typing import Any

import pytest
from tests.core.objects.corpus import Invalid, invalid, kind_of, valid
from tests.every import cases

from paceline_core.manifests import check
from paceline_core.objects import KINDS, ManifestError, read, validate
from paceline_core.objects.schema import structural, walk


@cases("name", valid())
def test_a_valid_manifest_is_taken_and_nothing_of_it_is_lost(name: str) -> None:
    document = valid()[name]
    taken = check(document)
    assert json.loads(taken.model_dump_json(exclude_unset=True)) == document


@cases("name", valid())
def test_what_is_taken_from_a_person_is_read_back_the_same_from_a_server(name: str) -> None:
    document = valid()[name]
    assert read(kind_of(document), document) == validate(document)


@cases("case", invalid())
def test_an_invalid_manifest_is_refused_for_its_one_fault_with_the_fix(case: Invalid) -> None:
    with pytest.raises(ManifestError) as refused:
        check(case.document)
    assert [problem.field for problem in refused.value.problems] == [case.field]
    assert case.message in refused.value.message


def test_the_corpus_has_every_field_of_every_kind() -> None:
    written = {(document["kind"], path) for document in valid().values() for path in _paths(document, "")}
    for name, kind in KINDS.items():
        known = {path for path, _ in walk(structural(kind)) if path.startswith(("spec", "status"))}
        assert known - {path for written_kind, path in written if written_kind == name} == set()


def test_the_corpus_has_valid_and_invalid_manifests_of_all_four_kinds() -> None:
    assert {document["kind"] for document in valid().values()} == set(KINDS)
    assert {case.document["kind"] for case in invalid()} >= set(KINDS)
    assert len(valid()) >= 22
    assert len(invalid()) >= 25


def test_no_two_invalid_manifests_are_the_same() -> None:
    texts = [json.dumps(case.document, sort_keys=True) for case in invalid()]
    assert len(set(texts)) == len(texts)


def _paths(value: Any, path: str) -> set[str]:
    """Every path of a document in the schema's form; whether a map has fields or values, only the schema knows."""
    found = {path}
    if isinstance(value, dict):
        found.add(f"{path}{{}}")
        for key, item in value.items():
            found |= _paths(item, f"{path}.{key}" if path else key)
    if isinstance(value, list):
        for item in value:
            found |= _paths(item, f"{path}[]")
    return found
