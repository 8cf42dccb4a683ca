import json
from copy import deepcopy
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.objects.corpus import valid

from paceline_core.errors import InvalidInput
from paceline_core.manifests import check
from paceline_core.objects import FieldError, InferenceService, ManifestError, read, validate
from paceline_core.objects.fields import FIXES
from paceline_core.units import DURATION_PATTERN

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def minimal(**spec: Any) -> dict[str, Any]:
    document = deepcopy(valid()["minimal"])
    document["spec"] |= spec
    return document


def found_in(document: Any) -> tuple[FieldError, ...]:
    try:
        check(document)
    except ManifestError as error:
        return error.problems
    return ()


def problems(document: Any) -> list[str]:
    return [str(problem) for problem in found_in(document)]


def test_every_fault_is_told_at_once() -> None:
    document = minimal(scaling={"polcy": "slo"}, pools=[{"name": "main", "accelerator": "C", "spot": "yes"}])
    assert problems(document) == [
        "spec.pools[0].accelerator: 'C' is malformed: use lower-case letters, digits and dashes, like my-name",
        "spec.pools[0].spot: must be a boolean, not the text 'yes'",
        "spec.scaling.polcy: unknown field; did you mean policy?",
    ]


def test_broken_rules_are_told_once_every_field_is_well_formed() -> None:
    pool = {"name": "main", "accelerator": "cpu", "replicas": {"min": 4, "max": 2}}
    faulty = minimal(pools=[{**pool, "spot": "yes"}], scaling={"polcy": "slo"}, telemetry={"tracing": None})
    del faulty["apiVersion"]
    assert [problem.field for problem in found_in(faulty)] == [
        "apiVersion",
        "spec.telemetry.tracing",
        "spec.pools[0].spot",
        "spec.scaling.polcy",
    ]
    assert [problem.field for problem in found_in(minimal(pools=[pool]))] == ["spec.pools[0].replicas.min"]


def test_of_another_groups_object_only_its_version_is_said() -> None:
    document = minimal(predictor={}) | {"apiVersion": "serving.kserve.io/v1beta1"}
    assert [problem.field for problem in found_in(document)] == ["apiVersion"]


def test_an_error_reads_as_one_line_a_fault_and_names_the_first() -> None:
    with pytest.raises(InvalidInput) as refused:
        validate(minimal(pool=1, model={}))
    assert refused.value.field == "spec.model.source"
    assert str(refused.value).splitlines()[1] == "spec.pool: unknown field; did you mean pools?"


def test_of_choices_those_are_listed_that_are_served() -> None:
    cache = {"kvCache": {"dtype": "fp7"}}
    model = {"source": "builtin://demo", "quantization": "fp7"}
    assert problems(minimal(rollout={"strategy": "blueGreen"})) == [
        "spec.rollout.strategy: 'blueGreen' is unknown; write rolling"
    ]
    assert problems(minimal(engine=cache, model=model)) == [
        "spec.model.quantization: 'fp7' is unknown; write none",
        "spec.engine.kvCache.dtype: 'fp7' is not one of auto, fp32, bf16, fp8, int8; did you mean fp8?",
    ]


def test_a_size_of_page_that_is_none_is_told_with_those_of_gpus() -> None:
    (said,) = problems(minimal(engine={"kvCache": {"pageTokens": 48}}, pools=[{"name": "main", "accelerator": "h100"}]))
    assert said == (
        "spec.engine.kvCache.pageTokens: must be a power of two from 8 to 1024, on GPUs from 16 to 128, like 64"
    )


def test_an_unknown_field_that_is_like_no_other_lists_what_there_is() -> None:
    assert problems(minimal(telemetry={"zzz": 1})) == [
        "spec.telemetry.zzz: unknown field; the fields here are tracing, logPrompts"
    ]


def test_a_field_at_the_wrong_place_is_told_where_it_belongs() -> None:
    classes = [f"spec.classes.{name}.maxTokens" for name in ("interactive", "batch", "offline")]
    slo = "spec.classes.batch.slo"
    table: dict[str, tuple[dict[str, Any], str]] = {
        "spec.drainTimeout": ({"drainTimeout": "5m"}, "did you mean spec.rollout.drainTimeout?"),
        "spec.draintimeout": ({"draintimeout": "5m"}, "did you mean spec.rollout.drainTimeout?"),
        "spec.dtype": ({"dtype": "bf16"}, "did you mean spec.engine.kvCache.dtype?"),
        "spec.replicas": ({"replicas": 2}, "did you mean spec.pools[].replicas?"),
        "spec.labels": ({"labels": {}}, "did you mean metadata.labels?"),
        "spec.maxTokens": ({"maxTokens": 2}, f"did you mean {classes[0]}, {classes[1]} or {classes[2]}?"),
        "spec.classes.batch.p95": (
            {"classes": {"batch": {"p95": "1s"}}},
            f"did you mean {slo}.ttft.p95, {slo}.tpot.p95 or {slo}.e2e.p95?",
        ),
        "spec.pools[0].min": (
            {"pools": [{"name": "main", "accelerator": "cpu", "min": 2}]},
            "did you mean spec.pools[0].replicas.min?",
        ),
        "spec.runtimes": ({"runtimes": {}}, "did you mean runtime?"),
    }
    for field, (spec, hint) in table.items():
        assert problems(minimal(**spec)) == [f"{field}: unknown field; {hint}"]
    assert problems({**minimal(), "pools": []}) == ["pools: unknown field; did you mean spec.pools?"]


def test_a_name_that_stands_at_many_places_or_is_like_nothing_here_lists_the_fields_of_its_place() -> None:
    for name in ("name", "quorum", "drainage"):
        (said,) = problems(minimal(**{name: "x"}))
        assert said.startswith(f"spec.{name}: unknown field; the fields here are model, runtime, engine, "), said


def test_a_number_out_of_bounds_is_told_its_bound_and_is_not_called_malformed() -> None:
    table: dict[str, tuple[dict[str, Any], str]] = {
        "spec.rollout.drainTimeout": ({"rollout": {"drainTimeout": "25h"}}, "must be from 1s to 24h, like 5m"),
        "spec.classes.batch.holdTimeout": (
            {"classes": {"batch": {"holdTimeout": "99999999h"}}},
            f"'99999999h' is out of bounds: {FIXES[DURATION_PATTERN]}",
        ),
        "spec.classes.batch.slo.e2e.p95": (
            {"classes": {"batch": {"slo": {"e2e": {"p95": "99999999h"}}}}},
            f"'99999999h' is out of bounds: {FIXES[DURATION_PATTERN]}",
        ),
        "spec.classes.batch.sloWindow": (
            {"classes": {"batch": {"sloWindow": "1000d"}}},
            "'1000d' is out of bounds: write whole days like 28d, from 1d to 999d, not 4w",
        ),
        "spec.pools[0].resources.requests.cpu": (
            {"pools": [{"name": "main", "accelerator": "cpu", "resources": {"requests": {"cpu": "20000"}}}]},
            "'20000' is out of bounds: write cores like 500m, 0.5 or 4, below 10000 and to the thousandth",
        ),
    }
    for field, (spec, said) in table.items():
        assert problems(minimal(**spec)) == [f"{field}: {said}"]


def test_a_missing_list_of_pools_is_told_with_one_that_can_be_copied() -> None:
    document = minimal()
    del document["spec"]["pools"]
    (said,) = problems(document)
    assert said.startswith("spec.pools: is required: Sets of equal replicas, 1 to 8; ")
    assert said.endswith("; write it like [{name: main, accelerator: cpu}]")
    del document["spec"]
    (said,) = problems(document)
    assert said.startswith("spec: is required: What is wished; write it like {model: ")
    assert problems({**document, "spec": None}) == ["spec: is empty: give it a value, or remove the line"]
    assert problems(minimal(pools=[])) == ["spec.pools: must have at least 1 entry, not 0"]


def test_what_is_no_map_or_no_list_is_told_what_belongs_there() -> None:
    assert problems(minimal(classes={"batch": {"slo": {"tpot": "500ms"}}})) == [
        "spec.classes.batch.slo.tpot: must be a map of fields, not the text '500ms'; its fields are p50, p90, p95, p99"
    ]
    pools = {"name": "main", "accelerator": "cpu"}
    assert problems(minimal(pools=pools)) == [
        "spec.pools: must be a list, not a map; begin each of its entries with a dash"
    ]


def test_bytes_as_a_bare_number_are_asked_for_with_a_unit() -> None:
    (said,) = problems(minimal(engine={"kvCache": {"hostOffloadBytes": 80}}))
    assert said.startswith(
        "spec.engine.kvCache.hostOffloadBytes: must be a string, not 80; write a quantity of bytes like 512Mi"
    )


def test_a_name_outside_of_metadata_is_told_its_place() -> None:
    assert problems({**minimal(), "name": "chat"}) == ["name: unknown field; did you mean metadata.name?"]


def test_the_names_of_python_are_no_names_in_a_manifest() -> None:
    assert problems(minimal(model={"source": "builtin://demo", "served_name": "x"})) == [
        "spec.model.served_name: unknown field; did you mean servedName?"
    ]


def test_a_number_in_quotes_is_not_a_number() -> None:
    assert problems(minimal(engine={"maxSeqs": "8"})) == [
        "spec.engine.maxSeqs: must be a whole number, not the text '8'"
    ]


@pytest.mark.parametrize("value", ["text", 3, True, []])
def test_a_map_is_asked_for_in_words(value: Any) -> None:
    (problem,) = problems(minimal(classes=value))
    assert problem.startswith("spec.classes: must be a map of fields, not ")


def test_a_text_over_its_limit_is_refused_with_the_limit() -> None:
    assert problems(minimal(runtime={"args": ["x" * 5000]})) == [
        "spec.runtime.args[0]: must have at most 4096 characters, not 5000"
    ]


def test_a_list_whose_entries_are_all_at_fault_is_not_called_too_short() -> None:
    assert len(problems(minimal(pools=[{"name": "MAIN", "accelerator": "cpu"}]))) == 1


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_is_refused(number: float) -> None:
    (problem,) = problems(minimal(classes={"batch": {"availability": number}}))
    assert problem.startswith("spec.classes.batch.availability: must be a finite number")


def test_what_json_cannot_express_is_refused() -> None:
    assert "JSON cannot express" in problems(minimal(model={"source": date(2026, 1, 1)}))[0]


def test_a_document_that_holds_itself_is_refused() -> None:
    document = minimal()
    document["spec"]["pools"].append(document)
    assert "JSON cannot express" in problems(document)[0]


@pytest.mark.parametrize("document", [None, [], "text", 3])
def test_what_is_no_map_is_refused(document: Any) -> None:
    assert problems(document) == ["must be a map with apiVersion, kind, metadata and spec"]


def test_a_document_without_metadata_says_what_is_missing() -> None:
    document = minimal()
    del document["metadata"]
    assert problems(document) == ["metadata: is required: Kubernetes's object metadata"]


@given(JSON)
def test_any_spec_is_either_taken_or_refused_with_reasons(spec: Any) -> None:
    assert all(problem.message for problem in found_in({**minimal(), "spec": spec}))


@given(JSON)
def test_any_value_of_any_field_is_either_taken_or_refused_with_reasons(value: Any) -> None:
    for field in ("model", "engine", "pools", "classes", "scaling"):
        found = found_in(minimal(**{field: value}))
        assert all(problem.field.startswith(f"spec.{field}") for problem in found if problem.field)


def test_an_older_reader_ignores_what_a_newer_writer_added() -> None:
    document = minimal(future={"field": 1})
    document["metadata"]["future"] = 1
    assert read(InferenceService, document).spec == validate(minimal()).spec


def test_a_status_that_cannot_be_read_does_not_hide_the_object() -> None:
    document = {**minimal(), "status": {"slo": [{"observed": "2.3s"}]}}
    assert read(InferenceService, document) == read(InferenceService, minimal())


def test_a_reader_says_what_it_cannot_understand() -> None:
    with pytest.raises(ManifestError, match=r"spec\.model: is required"):
        read(InferenceService, {"metadata": {"name": "x"}, "spec": {"pools": []}})


def test_an_object_cannot_be_changed() -> None:
    service = validate(minimal())
    with pytest.raises(ValueError, match="frozen"):
        service.metadata.name = "other"  # type: ignore[misc]  # that is the point


def test_a_profile_belongs_to_the_cluster_and_all_else_to_a_namespace() -> None:
    assert validate(valid()["accelerator"]).key == "h100"
    assert validate(valid()["minimal"]).key == "default/chat"
    assert validate(valid()["tenant"]).key == "paceline-system/team-a"


def test_a_document_survives_a_round_trip_through_json() -> None:
    for document in valid().values():
        text = validate(document).model_dump_json(exclude_unset=True)
        assert validate(json.loads(text)) == validate(document)
