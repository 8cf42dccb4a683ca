"""One operator process against a real API server, with the rights of the chart's role."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.harness.audit import Write
from tests.cluster.harness.workbench import Workbench
from tests.cluster.operators import Home, await_true, children, home, pool, service

pytestmark = pytest.mark.real
SHARED = {("ServiceAccount", "paceline-worker"), ("ConfigMap", "paceline-trust"), ("NetworkPolicy", "paceline-workers")}

EDITED = {"env": [{"name": "EDITED", "value": "yes"}]}


@pytest.fixture(scope="module")
def place(apiserver: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with home(apiserver, tmp_path_factory.mktemp("operators")) as made:
        yield made


@pytest.fixture
def team(apiserver: Workbench) -> Iterator[str]:
    with apiserver.namespace() as name:
        yield name


def expected(name: str, *pools: str) -> set[tuple[str, str]]:
    deployments = {("Deployment", f"{name}-{each}") for each in pools or ("main",)}
    return {("Service", f"{name}-workers"), ("PodDisruptionBudget", f"{name}-workers"), *deployments}


def deployment(place: Home, team: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = place.bench.kubectl.within(team).json("get", "deployment", name)
    return found


def conditions(place: Home, team: str, name: str) -> dict[str, dict[str, str]]:
    found = place.bench.kubectl.within(team).json("get", "pisvc", name).get("status", {}).get("conditions", [])
    return {each["type"]: each for each in found}


def written(place: Home, team: str, since: int) -> list[Write]:
    """What was written here; namespaces of earlier tests are still being taken down."""
    return [write for write in place.writes(since) if write.namespace in (team, place.namespace, "")]


def test_twenty_services_converge_and_the_next_process_writes_nothing(place: Home, team: str) -> None:
    names = [f"s{number}" for number in range(20)]
    with place.operator() as running:
        running.await_ready()
        place.bench.kubectl.apply(*(service(name, team) for name in names))
        wished = set().union(*(expected(name) for name in names)) | SHARED
        await_true("all children exist", lambda: set(children(place.bench, team)) == wished)
        await_true("all are reported", lambda: all("Accepted" in conditions(place, team, name) for name in names))
        running.await_calm()
        time.sleep(3)  # statuses are coalesced for two seconds
        running.await_calm()
        assert running.stop() == 0
    mark = place.bench.audit.mark()
    with place.operator() as running:
        running.await_calm()
        assert written(place, team, mark) == []


def test_an_edit_reaches_the_deployment_and_replicas_stay_the_autoscalers(place: Home, team: str) -> None:
    with place.operator() as running:
        running.await_ready()
        place.bench.kubectl.apply(service("chat", team))
        await_true("the pool is made", lambda: _owners(place, team) == {"paceline-operator"})
        place.bench.kubectl.within(team)("scale", "deployment/chat-main", "--replicas=4")
        before = deployment(place, team, "chat-main")["metadata"]["uid"]
        place.bench.kubectl.apply(service("chat", team, runtime=EDITED))
        await_true("the edit arrived", lambda: "EDITED" in str(deployment(place, team, "chat-main")["spec"]))
        after = deployment(place, team, "chat-main")
        assert (after["metadata"]["uid"], after["spec"]["replicas"]) == (before, 4)


def _owners(place: Home, team: str) -> set[str]:
    found = children(place.bench, team).get(("Deployment", "chat-main"))
    if found is None:
        return set()
    full = place.bench.kubectl.within(team).json("get", "deployment", "chat-main", "--show-managed-fields")
    fields = full["metadata"]["managedFields"]
    return {each["manager"] for each in fields if "f:replicas" in each["fieldsV1"].get("f:spec", {})}


def test_a_foreign_deployment_is_reported_and_never_adopted(place: Home, team: str) -> None:
    foreign = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat-main", "namespace": team},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "theirs"}},
            "template": {
                "metadata": {"labels": {"app": "theirs"}},
                "spec": {"containers": [{"name": "theirs", "image": "example/theirs:1"}]},
            },
        },
    }
    place.bench.kubectl.apply(foreign)
    before = deployment(place, team, "chat-main")
    with place.operator() as running:
        running.await_ready()
        place.bench.kubectl.apply(service("chat", team))
        await_true("it is reported", lambda: "chat-main" in str(conditions(place, team, "chat")))
        running.await_calm()
        after = deployment(place, team, "chat-main")
        assert (after["spec"], after["metadata"]["uid"]) == (before["spec"], before["metadata"]["uid"])
        assert "ownerReferences" not in after["metadata"]
        place.bench.kubectl.within(team)("delete", "deployment", "chat-main")
        place.bench.kubectl.apply(service("chat", team, runtime=EDITED))  # unasked it would look within 15 seconds
        await_true("ours takes its place", lambda: ("Deployment", "chat-main") in children(place.bench, team))


def test_a_child_deleted_while_nobody_looked_is_made_again(place: Home, team: str) -> None:
    with place.operator() as running:
        running.await_ready()
        place.bench.kubectl.apply(service("chat", team))
        await_true("all children exist", lambda: expected("chat") <= set(children(place.bench, team)))
    place.bench.kubectl.within(team)("delete", "service", "chat-workers")
    with place.operator() as running:
        running.await_ready()
        await_true("it is back", lambda: expected("chat") <= set(children(place.bench, team)))
        place.bench.kubectl.within(team)("delete", "pdb", "chat-workers")
        await_true("so is the next", lambda: expected("chat") <= set(children(place.bench, team)))


def test_a_change_and_its_reversal_while_the_operator_is_away_cost_no_write(place: Home, team: str) -> None:
    with place.operator() as running:
        running.await_ready()
        place.bench.kubectl.apply(service("chat", team))
        await_true("all children exist", lambda: expected("chat") <= set(children(place.bench, team)))
        await_true("it is reported", lambda: "Accepted" in conditions(place, team, "chat"))
        await_true("the controller has no more to say", lambda: _counted(place, team))
        running.await_calm()
        running.stop()
    made = children(place.bench, team)
    place.bench.kubectl.apply(service("chat", team, runtime=EDITED))
    place.bench.kubectl.apply(service("chat", team))
    mark = place.bench.audit.mark()
    with place.operator() as running:
        running.await_calm()
        await_true("the generation is seen", lambda: _observed(place, team))
        running.await_calm()
    assert {write.subresource for write in written(place, team, mark)} == {"status"}
    same = children(place.bench, team)
    assert {at: each["metadata"]["resourceVersion"] for at, each in same.items() if at[0] == "Deployment"} == {
        at: each["metadata"]["resourceVersion"] for at, each in made.items() if at[0] == "Deployment"
    }


def _counted(place: Home, team: str) -> bool:
    """Whether both pods, which no node takes, are in the Deployment's status: its version changes no more then."""
    found = deployment(place, team, "chat-main")
    status = found.get("status", {})
    told = [status.get(name) for name in ("observedGeneration", "updatedReplicas", "unavailableReplicas")]
    return told == [found["metadata"]["generation"], 2, 2]


def _observed(place: Home, team: str) -> bool:
    found = place.bench.kubectl.within(team).json("get", "pisvc", "chat")
    return bool(found["status"]["observedGeneration"] == found["metadata"]["generation"])


def test_a_service_deleted_and_made_again_at_once_gets_children_of_its_own(place: Home, team: str) -> None:
    kubectl = place.bench.kubectl
    with place.operator() as running:
        running.await_ready()
        kubectl.apply(service("chat", team))
        await_true("all children exist", lambda: expected("chat") <= set(children(place.bench, team)))
        kubectl.within(team)("delete", "pisvc", "chat", "--wait=false")
        kubectl.apply(service("chat", team))
        uid = kubectl.within(team).json("get", "pisvc", "chat")["metadata"]["uid"]
        await_true("the children are the younger one's", lambda: _owned(place, team) == {uid}, 90)


def _owned(place: Home, team: str) -> set[str]:
    found = children(place.bench, team)
    if not expected("chat") <= set(found):
        return set()
    return {ref["uid"] for at in expected("chat") for ref in found[at]["metadata"].get("ownerReferences", [])}


def test_a_pool_goes_with_the_spec_and_everything_with_the_service(place: Home, team: str) -> None:
    kubectl = place.bench.kubectl
    with place.operator() as running:
        running.await_ready()
        kubectl.apply(service("chat", team, pools=[pool("main"), pool("spare")]))
        await_true("two pools", lambda: expected("chat", "main", "spare") <= set(children(place.bench, team)))
        kubectl.apply(service("chat", team))
        await_true("one pool", lambda: set(children(place.bench, team)) == expected("chat") | SHARED)
        kubectl.within(team)("delete", "pisvc", "chat")
        await_true("nothing is left", lambda: not children(place.bench, team))


def test_a_missing_right_is_named_and_its_return_clears_it(place: Home, team: str) -> None:
    kubectl, role = place.bench.kubectl, f"{place.namespace}:paceline-operator"
    whole = kubectl.json("get", "clusterrole", role)["rules"]
    less = [{**rule, "verbs": [verb for verb in rule["verbs"] if verb != "create"]} for rule in whole]
    _set_rules(place, role, less)
    try:
        with place.operator() as running:
            running.await_ready()
            kubectl.apply(service("chat", team))
            await_true("it is named", lambda: _degraded(place, team)[:2] == ("True", "Forbidden"))
            assert 'cannot create resource "services"' in _degraded(place, team)[2]
            _set_rules(place, role, whole)
            await_true("it is cleared", lambda: _degraded(place, team)[0] == "False", 90)
    finally:
        _set_rules(place, role, whole)


def _set_rules(place: Home, role: str, rules: list[dict[str, Any]]) -> None:
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": role},
        "rules": rules,
    }
    place.bench.kubectl("replace", "--filename=-", manifest=json.dumps(body))


def _degraded(place: Home, team: str) -> tuple[str, str, str]:
    found = conditions(place, team, "chat").get("Degraded", {})
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def test_sigterm_ends_it_with_zero_and_frees_its_lease(place: Home) -> None:
    with place.operator() as running:
        running.await_calm()
        assert running.stop() == 0
    lease = place.bench.kubectl.within(place.namespace).json("get", "lease", "paceline-operator")
    assert lease["spec"]["holderIdentity"] == ""


def test_a_wrong_configuration_is_one_clear_line_and_status_two(tmp_path: Path, place: Home) -> None:
    broken = Home(place.bench, "no-such-thing", tmp_path)
    (tmp_path / "operator.kubeconfig").write_text("not: a kubeconfig\n")
    running = broken.start("one")
    assert running.process.wait(30) == 2
    assert running.lines.count("\n") == 1
    assert "kubeconfig" in running.lines


def test_signing_keys_are_made_and_trusted_without_a_right_to_read_secrets(place: Home) -> None:
    kubectl = place.bench.kubectl.within(place.namespace)
    with place.operator() as running:
        running.await_calm()
        await_true(
            "a key is there",
            lambda: "signing.key" in kubectl("get", "secret", "paceline-signing-key-gateway", "-o", "yaml"),
        )
        await_true("both are trusted", lambda: _trusted(place) == 2)


def _trusted(place: Home) -> int:
    """How many keys the pods beside the operator are told of."""
    found = children(place.bench, place.namespace).get(("ConfigMap", "paceline-trust"), {})
    return len(json.loads(found.get("data", {}).get("jwks.json", '{"keys": []}'))["keys"])
