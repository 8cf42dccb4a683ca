"""The CRDs hold what Kubernetes asks of a structural schema, and what keeps the cost of their rules bounded."""

import json
import re
from typing import Any

import pytest

from paceline_core.objects import API_VERSION, KINDS
from paceline_core.objects.crd import crd, judged
from paceline_core.objects.metadata import Object
from paceline_core.objects.schema import NO_DEFAULTS, Schema, at, child, field_path, structural, walk

ALLOWED = {
    "type", "format", "description", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum",
    "exclusiveMinimum", "minItems", "maxItems", "maxProperties", "required", "default", "properties", "items",
    "additionalProperties", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations",
}  # fmt: skip
SCALARS = {"string", "integer", "number", "boolean"}

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def nodes(kind: type[Object]) -> list[tuple[str, Schema]]:
    return [(path, node) for path, node in walk(judged(kind)) if path.startswith(("spec", "status"))]


@every_kind
def test_every_node_has_one_type_and_no_keyword_that_is_not_structural(kind: type[Object]) -> None:
    for path, node in walk(judged(kind)):
        assert node["type"] in {"object", "array", *SCALARS}, path
        assert set(node) <= ALLOWED, path
        assert not ("properties" in node and "additionalProperties" in node), path


@every_kind
def test_every_string_list_map_and_number_is_bounded(kind: type[Object]) -> None:
    bounds = {"string": "maxLength", "array": "maxItems", "integer": "maximum"}
    for path, node in nodes(kind):
        if node["type"] in bounds and "enum" not in node:
            assert bounds[node["type"]] in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path


@every_kind
def test_every_field_is_described_for_kubectl_explain(kind: type[Object]) -> None:
    for path, node in nodes(kind):
        if not path.endswith(("[]", "{}")):
            assert len(node["description"]) >= len("Requests."), path
            assert "\n" not in node["description"], path


@every_kind
def test_a_number_never_has_a_default_in_the_crd(kind: type[Object]) -> None:
    defaults = {path: node["default"] for path, node in nodes(kind) if "default" in node}
    assert all(isinstance(default, (str, bool)) or default == {} for default in defaults.values())
    assert not [path for path in defaults if path.startswith("status")]


def test_what_makes_up_the_revision_has_no_default_in_the_crd() -> None:
    defaults = [path for path, node in nodes(KINDS["InferenceService"]) if "default" in node]
    assert not [path for path in defaults if path.startswith(NO_DEFAULTS)]


@every_kind
def test_a_default_reaches_an_object_in_which_nothing_is_written(kind: type[Object]) -> None:
    for path, node in nodes(kind):
        if "default" not in node or "." not in path:
            continue
        parent_path = path.rpartition(".")[0]
        parent = next(found for place, found in nodes(kind) if place == parent_path)
        reached = "default" in parent or parent_path == "spec" or parent_path.endswith("[]") or _is_choice(parent_path)
        assert reached, path


def _is_choice(path: str) -> bool:
    """Absent means off for these, so their defaults must not bring them into being."""
    return path == "spec.degrade"


@every_kind
def test_a_list_that_is_a_map_has_required_scalar_keys(kind: type[Object]) -> None:
    for path, node in nodes(kind):
        for key in node.get("x-kubernetes-list-map-keys", ()):
            assert key in node["items"]["required"], path
            assert node["items"]["properties"][key]["type"] in SCALARS, path


def test_every_list_of_named_things_is_a_map_by_name() -> None:
    for kind in KINDS.values():
        for path, node in nodes(kind):
            if "name" in node.get("items", {}).get("required", ()):
                assert "name" in node.get("x-kubernetes-list-map-keys", ()), path


@every_kind
def test_every_pattern_means_the_same_to_go_rust_and_python(kind: type[Object]) -> None:
    """No look-around, no back-reference, no class that only some engines know; anchored at both ends."""
    for path, node in nodes(kind):
        pattern = node.get("pattern", "^$")
        assert re.compile(pattern)
        assert pattern.startswith("^"), path
        assert pattern.endswith("$"), path
        assert not re.search(r"\(\?|\\[1-9wdsbWDSB]", pattern), path


@every_kind
def test_every_column_shows_one_scalar_of_the_schema(kind: type[Object]) -> None:
    version = crd(kind)["spec"]["versions"][0]
    for column in version["additionalPrinterColumns"]:
        path = column["jsonPath"].removeprefix(".")
        if "[" in path or path.startswith("metadata."):
            continue
        node = at(structural(kind), path.split("."))
        assert node is not None, path
        assert node["type"] == column["type"], path


def test_the_columns_of_a_service_tell_its_promise_and_its_cost() -> None:
    version = crd(KINDS["InferenceService"])["spec"]["versions"][0]
    columns = version["additionalPrinterColumns"]
    names = [column["name"].upper() for column in columns if "priority" not in column]
    assert names == ["MODEL", "SERVED", "READY", "DESIRED", "SLO", "BURN", "REASON", "COST/H", "AGE"]
    assert [column["name"] for column in columns if column.get("priority") == 1] == ["Min", "Max", "Pools", "Endpoint"]


@every_kind
def test_a_definition_serves_one_version_with_a_status_subresource(kind: type[Object]) -> None:
    definition: dict[str, Any] = crd(kind)["spec"]
    (version,) = definition["versions"]
    assert f"{definition['group']}/{version['name']}" == API_VERSION
    assert version["subresources"] == {"status": {}}
    assert definition["names"]["categories"] == ["paceline"]
    assert definition["scope"] == ("Cluster" if kind.__name__ == "AcceleratorProfile" else "Namespaced")


def test_the_short_name_keeps_the_kind_apart_from_other_systems() -> None:
    assert crd(KINDS["InferenceService"])["spec"]["names"]["shortNames"] == ["pisvc"]


@every_kind
def test_a_definition_fits_the_annotation_of_client_side_apply(kind: type[Object]) -> None:
    assert len(json.dumps(crd(kind))) < 262_144


def test_building_the_crd_leaves_the_shared_schema_as_it_was() -> None:
    kind = KINDS["InferenceService"]
    before = json.dumps(structural(kind))
    judged(kind)
    assert json.dumps(structural(kind)) == before


def test_a_place_is_written_as_kubernetes_writes_it() -> None:
    schema = structural(KINDS["InferenceService"])
    assert field_path(schema, ("spec", "pools", 0, "nodeSelector", "zone")) == "spec.pools[0].nodeSelector[zone]"
    assert field_path(schema, ("spec", "nonsense", "deeper")) == "spec.nonsense.deeper"
    assert child(schema, 0) is None
