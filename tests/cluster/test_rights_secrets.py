"""DESIGN §12 on a real API server with the chart's own roles: who reads Secrets, what nobody may, what a worker has."""

import base64
import secrets
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.cluster.harness.audit import service_account
from tests.cluster.harness.workbench import Workbench
from tests.cluster.operators import Home, await_true, home, service
from tests.cluster.rights import PARTS, READ, Manifest, Stage, bound, may

from paceline_core.kube import key_namespace_of

pytestmark = pytest.mark.real
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
NOBODY = (
    ("create", "", "pods/exec"),
    ("create", "", "pods/attach"),
    ("create", "", "pods/portforward"),
    ("update", "", "pods/ephemeralcontainers"),
    ("create", "", "pods"),
    ("create", "", "serviceaccounts/token"),
    ("get", "", "nodes/proxy"),
    ("impersonate", "", "users"),
    ("impersonate", "", "groups"),
    ("impersonate", "", "serviceaccounts"),
    ("escalate", "rbac.authorization.k8s.io", "roles"),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles"),
    ("bind", "rbac.authorization.k8s.io", "roles"),
    ("bind", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "rbac.authorization.k8s.io", "rolebindings"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("*", "*", "*"),
    ("*", "", "*"),
    ("*", "paceline.dev", "*"),
    ("get", "*", "*"),
    ("deletecollection", "apps", "deployments"),
)


@pytest.fixture(scope="module")
def place(apiserver: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with home(apiserver, tmp_path_factory.mktemp("secrets")) as made, bound(apiserver, made.namespace):
        yield made


@pytest.fixture
def api(apiserver: Workbench) -> Iterator[httpx.Client]:
    with apiserver.machine.api() as client:
        yield client


@pytest.fixture
def team(apiserver: Workbench) -> Iterator[str]:
    with apiserver.namespace() as name:
        yield name


def readable(api: httpx.Client, place: Home, part: str, *namespaces: str) -> set[tuple[str, str]]:
    """(namespace, verb) of every way in which a part may read Secrets; "" is all namespaces."""
    user = service_account(place.namespace, f"paceline-{part}")
    asked = [(namespace, verb) for namespace in namespaces for verb in READ]
    return {(namespace, verb) for namespace, verb in asked if may(api, user, verb, "", "secrets", namespace)}


def test_only_the_gateway_reads_secrets_and_only_where_tenants_keys_are(
    api: httpx.Client, place: Home, team: str
) -> None:
    keys = key_namespace_of(place.namespace)
    spaces = ("", keys, place.namespace, team, "kube-system", "default")
    found = {part: readable(api, place, part, *spaces) for part in PARTS}
    assert found.pop("gateway") == {(keys, verb) for verb in ("list", "watch")}
    assert not any(found.values()), found


def test_the_operator_reads_not_even_the_secrets_that_it_writes(api: httpx.Client, place: Home) -> None:
    user = place.user
    for name in ("paceline-signing-key-gateway", "paceline-signing-key-autoscaler"):
        assert may(api, user, "patch", "", "secrets", place.namespace, name)
        assert not any(may(api, user, verb, "", "secrets", place.namespace, name) for verb in (*READ, "delete"))
    assert not may(api, user, "patch", "", "secrets", place.namespace, "anything-else")


@pytest.mark.parametrize("part", PARTS)
def test_no_part_may_take_more_than_it_was_given(api: httpx.Client, place: Home, team: str, part: str) -> None:
    user = service_account(place.namespace, f"paceline-{part}")
    for verb, group, resource in NOBODY:
        spaces = [space for space in ("", place.namespace, team) if may(api, user, verb, group, resource, space)]
        assert spaces == [], f"{part} may {verb} {resource}.{group}"


def test_a_worker_pod_has_no_token_and_its_account_no_right(api: httpx.Client, place: Home, team: str) -> None:
    with place.operator() as running:
        place.bench.kubectl.apply(service("chat", team))
        running.await_ready()
        await_true("pods are made", lambda: len(pods(api, team)) == 2)
    for pod in pods(api, team):
        spec = pod["spec"]
        assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("paceline-worker", False)
        mounts = [mount["mountPath"] for each in spec["containers"] for mount in each["volumeMounts"]]
        assert mounts
        assert not any("serviceaccount" in path for path in mounts)
        assert not any("secret" in volume or "serviceAccountToken" in str(volume) for volume in spec["volumes"])
    worker = service_account(team, "paceline-worker")
    assert rules(api, worker, team) == rules(api, service_account(team, "no-such-account"), team)
    assert not any(may(api, worker, verb, "", "secrets", team) for verb in READ)
    assert rules(api, place.user, team) != rules(api, worker, team)  # the review does tell rights


def pods(api: httpx.Client, namespace: str) -> list[Manifest]:
    found: list[Manifest] = api.get(f"/api/v1/namespaces/{namespace}/pods").raise_for_status().json()["items"]
    return found


def rules(api: httpx.Client, user: str, namespace: str) -> Any:
    """Everything that an account may do in a namespace, as it would be told itself."""
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}"]
    headers = [("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups)]
    answer = api.post(RULES, headers=headers, json={"spec": {"namespace": namespace}}).raise_for_status()
    status = answer.json()["status"]
    return sorted(map(str, status["resourceRules"])), sorted(map(str, status["nonResourceRules"]))


def test_a_secrets_value_that_a_service_refers_to_is_seen_nowhere(api: httpx.Client, place: Home, team: str) -> None:
    canary = f"canary-{secrets.token_hex(16)}"
    kubectl = place.bench.kubectl.within(team)
    kubectl("create", "secret", "generic", "mine", f"--from-literal=token={canary}")
    source = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "token"}}}
    with place.operator(PACELINE_LOG_LEVEL="DEBUG") as running:
        stage = Stage(place, running.await_ready(), team, api, 0)
        place.bench.kubectl.apply(service("chat", team, runtime={"env": [source]}))
        await_true("it is reported", lambda: stage.condition()[0] == "False")
        kubectl("delete", "service", "chat-workers")
        await_true("it is mended", lambda: ("Service", "chat-workers") in stage.children())
        await_true("an event tells it", lambda: "Created" in kubectl("get", "events"))
        said = [running.lines, httpx.get(f"{running.url()}/metrics").text]
    kinds = "pisvc,events,configmaps,deployments,pods,services,serviceaccounts,networkpolicies,poddisruptionbudgets"
    said.append(kubectl("get", kinds, "--output=json", "--show-managed-fields"))
    assert '"mine"' in said[-1]
    hidden = (canary, base64.b64encode(canary.encode()).decode())
    assert hidden[1] in kubectl("get", "secret", "mine", "--output=json")
    assert not [word for word in hidden for text in said if word in text]
