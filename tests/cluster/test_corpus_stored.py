"""What the API server takes: stored and read back, every valid manifest is what its author wrote, plus the defaults."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from tests.cluster.harness.workbench import Workbench
from tests.cluster.served import DEFINITIONS, Document, created, got, path_of, placed, removed, serving, status_put
from tests.core.objects.corpus import kind_of, valid
from tests.every import cases

from paceline_core.objects import (
    KINDS,
    InferenceRoute,
    InferenceService,
    Tenant,
    read,
    resolve,
    resolve_route,
    resolve_tenant,
    revision,
    validate,
)
from paceline_core.objects.crd import crd
from paceline_core.objects.metadata import Object
from paceline_core.objects.schema import Schema, structural, walk

pytestmark = pytest.mark.real

DEFAULTS = {
    ("InferenceService", "spec.pools[].role"): "both",
    ("InferenceService", "spec.pools[].spot"): False,
    ("InferenceService", "spec.pools[].volumes[].readOnly"): True,
    ("InferenceService", "spec.scaling"): {},
    ("InferenceService", "spec.scaling.policy"): "slo",
    ("InferenceService", "spec.rollout"): {},
    ("InferenceService", "spec.rollout.strategy"): "rolling",
    ("InferenceService", "spec.rollout.gpus"): "surge",
    ("InferenceService", "spec.filters[].failure"): "closed",
    ("InferenceService", "spec.telemetry"): {},
    ("InferenceService", "spec.telemetry.logPrompts"): False,
    ("Tenant", "spec.onStoreFailure"): "open",
    ("InferenceRoute", "spec.backends[].when"): "always",
    ("InferenceRoute", "spec.degrade.trigger"): "overload",
}


@pytest.fixture(scope="module")
def api(apiserver: Workbench) -> Iterator[httpx.Client]:
    with serving(apiserver) as client:
        yield client


@pytest.fixture(scope="module")
def stored(api: httpx.Client) -> dict[str, tuple[Document, Document]]:
    """(what was sent, what is read back) of every valid manifest, by its name in the corpus."""
    found = {}
    for name in valid():
        with _kept(api, name) as found[name]:
            pass
    return found


def test_the_defaults_of_this_version_never_change() -> None:
    """If this fails, objects that are stored already would read differently: the change is wrong, not the table."""
    found = {
        (name, path): node["default"]
        for name, kind in KINDS.items()
        for path, node in walk(structural(kind))
        if "default" in node and path.startswith(("spec", "status"))
    }
    assert {key: found.get(key) for key in DEFAULTS} == DEFAULTS
    assert set(found) == set(DEFAULTS)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_definition_is_established_within_the_cost_budget_of_its_rules(api: httpx.Client, kind: type[Object]) -> None:
    conditions = api.get(f"{DEFINITIONS}/{crd(kind)['metadata']['name']}").json()["status"]["conditions"]
    held = {condition["type"]: condition["status"] for condition in conditions}
    assert held["Established"] == held["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in held


@cases("name", valid())
def test_a_valid_manifest_is_stored_as_written_plus_the_defaults(
    stored: dict[str, tuple[Document, Document]], name: str
) -> None:
    sent, found = stored[name]
    schema = structural(kind_of(sent))
    assert found["spec"] == _with_defaults(sent["spec"], schema["properties"]["spec"])
    assert found.get("status") == sent.get("status")
    for part in ("labels", "annotations"):
        assert found["metadata"].get(part) == sent["metadata"].get(part)


@cases("name", valid())
def test_what_is_stored_means_what_was_written(stored: dict[str, tuple[Document, Document]], name: str) -> None:
    """Revision and resolved values: what every part of paceline acts on."""
    sent, found = stored[name]
    born = {name: found["metadata"][name] for name in ("uid", "creationTimestamp", "generation")}
    written = validate({**sent, "metadata": {**sent["metadata"], **born}})
    assert _meaning(read(kind_of(found), found)) == _meaning(written)


@cases("name", ["minimal", "engine", "route", "tenant", "accelerator"])
def test_an_object_written_back_as_it_was_read_is_no_change(api: httpx.Client, name: str) -> None:
    with _kept(api, name) as (_, found):
        answer = api.put(path_of(found), json=found)
        assert answer.is_success, answer.text
        assert answer.json()["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


@contextmanager
def _kept(api: httpx.Client, name: str) -> Iterator[tuple[Document, Document]]:
    """(what was sent, what is read back) of a valid manifest, status too; removed afterwards."""
    sent = _own(placed(valid()[name]))
    found = created(api, sent)
    assert isinstance(found, dict), found
    try:
        if "status" in sent:
            status_put(api, found, sent["status"])
        yield sent, got(api, found)
    finally:
        removed(api, found)


def _own(document: Document) -> Document:
    """Profiles belong to the whole cluster, where others may have made one of that name."""
    if document["kind"] == "AcceleratorProfile":
        document["metadata"]["name"] = f"corpus-{document['metadata']['name']}"
    return document


def _meaning(found: Any) -> Any:
    if isinstance(found, InferenceService):
        return revision(found), resolve(found)
    if isinstance(found, Tenant):
        return resolve_tenant(found)
    return resolve_route(found) if isinstance(found, InferenceRoute) else found.spec


def _with_defaults(value: Any, schema: Schema) -> Any:
    """What the API server's defaulting makes of a value: absent fields with a default, all the way down."""
    if isinstance(value, list):
        return [_with_defaults(item, schema["items"]) for item in value]
    if not isinstance(value, dict):
        return value
    fields = schema.get("properties", {})
    absent = {name: node["default"] for name, node in fields.items() if "default" in node and name not in value}
    return {
        name: _with_defaults(item, fields[name]) if name in fields else item
        for name, item in {**value, **absent}.items()
    }
