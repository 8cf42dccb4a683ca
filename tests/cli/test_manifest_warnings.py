"""What `lint` and `up` note: names in vain, names that two claim, fields that nothing acts on."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline_cli.commands.lint import examine
from paceline_local.manifests import read_local_manifests

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SYSTEM = "paceline-system"


def made(kind: str, name: str, spec: dict[str, Any], namespace: str = "default", **metadata: str) -> dict[str, Any]:
    metadata |= {"name": name, "namespace": namespace}
    return {"apiVersion": "paceline.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def service(name: str, served: str) -> dict[str, Any]:
    model = {"source": "builtin://demo", "servedName": served}
    return made("InferenceService", name, {"model": model, "pools": [{"name": "main", "accelerator": "cpu"}]})


def route(name: str = "public", **metadata: str) -> dict[str, Any]:
    return made("InferenceRoute", name, {"model": "m", "backends": [{"service": "chat"}]}, **metadata)


def wished(**more: Any) -> dict[str, Any]:
    found = route()
    return {**found, "spec": found["spec"] | more}


def tenant(*services: str, name: str = "team", namespace: str = SYSTEM) -> dict[str, Any]:
    return made("Tenant", name, {"services": list(services)}, namespace)


def noted(tmp_path: Path, *documents: dict[str, Any]) -> list[str]:
    """Beside the service chat: without the place, the same from both commands."""
    file = tmp_path / "file.yaml"
    file.write_text(yaml.safe_dump_all([service("chat", "demo"), *documents]))
    found = read_local_manifests([file], NOW).notes
    (judged,) = examine([file]).values()
    assert judged.notes == found
    assert judged.faults == ()
    return [note.partition("): ")[2] or note for note in found]


@pytest.mark.parametrize(
    ("spec", "idle"),
    [
        ({"cascade": {"first": "demo"}}, "spec.cascade"),
        ({"backends": [{"service": "chat"}, {"url": "https://api.example.com/v1"}]}, "spec.backends[1].url"),
        ({"backends": [{"service": "chat", "region": "eu"}]}, "spec.backends[0].region"),
    ],
)
def test_a_field_that_nothing_acts_on_is_noted(tmp_path: Path, spec: dict[str, Any], idle: str) -> None:
    assert noted(tmp_path, wished(**spec)) == [f"{idle} is not acted on by this version"]


@pytest.mark.parametrize(
    ("document", "note"),
    [
        (
            wished(backends=[{"service": "gone"}]),
            "spec.backends[0] is passed over: no InferenceService default/gone here",
        ),
        (wished(fallback=["gone"]), "spec.fallback names gone: no service or route of that name here"),
        (wished(degrade={"model": "gone"}), "spec.degrade.model names gone: no service or route of that name here"),
        (
            wished(matches=[{"tenants": ["gone"]}]),
            "spec.matches[0].tenants names gone: no such Tenant in paceline-system here",
        ),
        (
            wished(backends=[{"service": "chat", "model": "zz"}]),
            "spec.backends[0].model is zz, which default/chat does not answer to; write demo",
        ),
        (tenant("default/gone"), "spec.services names default/gone: no such InferenceService here"),
    ],
)
def test_a_name_in_vain_is_noted(tmp_path: Path, document: dict[str, Any], note: str) -> None:
    assert noted(tmp_path, document) == [note]


@pytest.mark.parametrize(
    "documents",
    [
        [wished(fallback=["demo", "chat", "default/chat"])],
        [wished(fallback=["other"]), made("InferenceRoute", "second", {**route()["spec"], "model": "other"})],
        [wished(matches=[{"tenants": ["team", "local"]}]), tenant("default/chat")],
        [wished(backends=[{"service": "chat", "model": "default/chat"}])],
        [tenant("other/*", "default/chat")],
    ],
)
def test_a_name_that_is_here_is_not_noted(tmp_path: Path, documents: list[dict[str, Any]]) -> None:
    assert noted(tmp_path, *documents) == []


def test_a_local_tenant_that_may_not_use_a_service_is_noted(tmp_path: Path) -> None:
    other = service("other", "other")
    (note,) = noted(tmp_path, other, tenant("default/other", name="local"))
    assert note == "the key that `paceline up` prints is this tenant's, which may not use default/chat"
    assert noted(tmp_path, other, tenant("default/*", name="local"), tenant("default/other")) == []


def sleepy(**scaling: Any) -> dict[str, Any]:
    found = service("sleepy", "sleepy")
    pools = [{"name": "main", "accelerator": "cpu", "replicas": {"min": 0, "max": 1}}]
    return {**found, "spec": found["spec"] | {"pools": pools, "scaling": scaling}}


def test_a_service_that_never_goes_to_its_zero_is_noted(tmp_path: Path) -> None:
    (note,) = noted(tmp_path, sleepy())
    assert note.endswith("the last replica never goes without spec.scaling.scaleToZero")
    assert noted(tmp_path, sleepy(scaleToZero={})) == noted(tmp_path, sleepy(policy="queue")) == []


def test_of_two_routes_of_one_model_the_one_that_is_never_asked_is_noted(tmp_path: Path) -> None:
    taken = ["the older route default/first answers every request for 'm'; change spec.model of one"]
    assert noted(tmp_path, route("second"), route("first")) == taken
    older = route("zebra", creationTimestamp="2025-01-01T00:00:00Z")
    assert noted(tmp_path, older, route("first")) == [taken[0].replace("first", "zebra")]


def test_a_route_for_some_requests_takes_nothing_from_a_younger_one(tmp_path: Path) -> None:
    some = wished(matches=[{"tenants": ["local"]}])
    assert noted(tmp_path, some, route("z")) == []


def test_lint_finds_in_one_file_what_another_names(tmp_path: Path) -> None:
    routes, services = tmp_path / "routes.yaml", tmp_path / "services.yaml"
    routes.write_text(yaml.safe_dump(route()))
    services.write_text(yaml.safe_dump(service("chat", "demo")))
    assert len(examine([routes])[str(routes)].notes) == 1
    assert [of.notes for of in examine([routes, services]).values()] == [(), ()]


def test_beside_a_faulty_file_nothing_is_called_missing(tmp_path: Path) -> None:
    routes, services = tmp_path / "routes.yaml", tmp_path / "services.yaml"
    routes.write_text(yaml.safe_dump(route()))
    services.write_text("kind: Pod")
    assert examine([routes, services])[str(routes)].notes == ()


def test_a_route_that_would_take_a_services_name_is_noted_and_one_of_its_own_namespace_is_not(tmp_path: Path) -> None:
    taking = {"spec": {"model": "demo", "backends": [{"service": "chat"}]}}
    assert noted(tmp_path, {**route(), **taking}) == []
    assert "the older service default/chat answers to 'demo'; change spec.model of one" in noted(
        tmp_path, {**route(namespace="evil"), **taking}
    )


@pytest.mark.parametrize(
    ("served", "note"),
    [
        ("default/chat", "'default/chat' is the full name of the service default/chat"),
        ("default/best", "names that begin with 'default/' belong to the namespace default"),
    ],
)
def test_a_name_of_another_namespace_is_noted(tmp_path: Path, served: str, note: str) -> None:
    thief = service("thief", served)
    thief["metadata"]["namespace"] = "evil"
    assert noted(tmp_path, thief) == [f"evil/thief: {note}; change spec.model.servedName"]
    public = {**route(namespace="evil"), "spec": {"model": served, "backends": [{"service": "thief"}]}}
    thief["spec"]["model"]["servedName"] = "mine"
    assert noted(tmp_path, thief, public) == [f"{note}; change spec.model"]


def test_a_served_name_that_is_another_services_full_name_is_noted_in_one_namespace_too(tmp_path: Path) -> None:
    note = "default/two: 'default/chat' is the full name of the service default/chat; change spec.model.servedName"
    assert noted(tmp_path, service("two", "default/chat")) == [note]
    assert noted(tmp_path, service("two", "default/two")) == []


def test_a_backend_that_stands_twice_is_noted_and_one_of_another_kind_is_not(tmp_path: Path) -> None:
    twice = wished(backends=[{"service": "chat"}, {"service": "chat", "weight": 3}])
    note = "spec.backends[1] is spec.backends[0] again; keep one of them, with the sum of their weights"
    assert noted(tmp_path, twice) == [note]
    assert noted(tmp_path, wished(backends=[{"service": "chat"}, {"service": "chat", "when": "overflow"}])) == []


def test_a_budget_below_what_min_costs_is_noted(tmp_path: Path) -> None:
    (note,) = noted(tmp_path, sleepy(scaleToZero={}, budget={"dollarsPerHour": "0.05"}))
    assert note == ("spec.scaling.budget.dollarsPerHour: 0.05 is below the 0.10 of one replica; raise it, or remove it")


def test_bytes_without_a_unit_are_noted_wherever_a_manifest_has_bytes(tmp_path: Path) -> None:
    found = service("small", "small")
    found["spec"]["engine"] = {"kvCache": {"hostOffloadBytes": "80"}}
    found["spec"]["pools"][0]["resources"] = {"requests": {"memory": "1", "cpu": "4"}, "limits": {"memory": "16Gi"}}
    profile = made("AcceleratorProfile", "mine", {"memory": "80", "bandwidth": "3350G", "teraflops": {"bf16": 312.0}})
    del profile["metadata"]["namespace"]
    fix = "write a unit, as in 16Gi or 3350G"
    assert noted(tmp_path, found, profile) == [
        f"spec.engine.kvCache.hostOffloadBytes: '80' is 80 bytes; {fix}",
        f"spec.pools[0].resources.requests.memory: '1' is 1 byte; {fix}",
        f"spec.memory: '80' is 80 bytes; {fix}",
    ]
    found["spec"]["engine"] = {"kvCache": {"hostOffloadBytes": "0"}}
    found["spec"]["pools"][0]["resources"] = {"requests": {"memory": "8589934592"}}
    assert noted(tmp_path, found) == []
