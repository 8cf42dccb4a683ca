"""SECURITY.md's table of tokens on a real API server: what the holder of each may do, and a list of what it may not.

Rights are asked of the authorizer; what an admission policy decides is tried, in the name of the account.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from tests.cluster.harness.audit import service_account
from tests.cluster.harness.workbench import Workbench
from tests.cluster.operators import ROOT, Home, await_true, home
from tests.cluster.rights import PARTS, TOLD_S, bound, may

from paceline_core.kube import key_namespace_of

pytestmark = pytest.mark.real
HOME, KEYS, TEAM, SYSTEM, ALL = "paceline's namespace", "the keys' namespace", "a team's", "kube-system", ""
Act = tuple[str, str, str, str]
"""Where, verb, group/resource, name."""


@dataclass(frozen=True, slots=True)
class Holder:
    """What SECURITY.md says of one token."""

    account: str
    may: tuple[Act, ...]
    may_not: tuple[Act, ...]


NO_SECRETS = tuple(
    (where, verb, "secrets", "") for where in (HOME, TEAM, SYSTEM, ALL) for verb in ("get", "list", "watch")
)
HOLDERS = {
    "the operator": Holder(
        "paceline-operator",
        (
            (ALL, "create", "apps/deployments", ""),
            (SYSTEM, "patch", "apps/deployments", "coredns"),
            (ALL, "patch", "services", ""),
            (TEAM, "patch", "configmaps", "paceline-trust"),
            (TEAM, "delete", "networking.k8s.io/networkpolicies", "paceline-workers"),
            (HOME, "create", "secrets", ""),
            (HOME, "patch", "secrets", "paceline-signing-key-gateway"),
            (ALL, "patch", "paceline.dev/inferenceservices/status", ""),
        ),
        (
            *NO_SECRETS,
            (KEYS, "list", "secrets", ""),
            (KEYS, "create", "secrets", ""),
            (HOME, "patch", "secrets", "redis-password"),
            (TEAM, "create", "secrets", ""),
            (SYSTEM, "patch", "configmaps", "coredns"),
            (SYSTEM, "delete", "configmaps", "coredns"),
            (SYSTEM, "patch", "serviceaccounts", "default"),
            (TEAM, "delete", "networking.k8s.io/networkpolicies", "deny-all"),
            (ALL, "create", "pods", ""),
            (ALL, "update", "apps/deployments/scale", ""),
            (ALL, "patch", "paceline.dev/inferenceservices", ""),
            (ALL, "create", "paceline.dev/tenants", ""),
            (ALL, "create", "namespaces", ""),
        ),
    ),
    "the autoscaler": Holder(
        "paceline-autoscaler",
        (
            (ALL, "update", "apps/deployments/scale", ""),
            (SYSTEM, "update", "apps/deployments/scale", "coredns"),
            (ALL, "get", "apps/deployments", ""),
            (ALL, "list", "autoscaling/horizontalpodautoscalers", ""),
            (ALL, "patch", "paceline.dev/inferenceservices/status", ""),
            (ALL, "list", "pods", ""),
            (HOME, "patch", "configmaps", "paceline-scaling.team.chat"),
            (HOME, "delete", "configmaps", "paceline-scaling.team.chat"),
        ),
        (
            *NO_SECRETS,
            (KEYS, "list", "secrets", ""),
            (TEAM, "create", "configmaps", ""),
            (TEAM, "patch", "configmaps", "paceline-trust"),
            (SYSTEM, "patch", "configmaps", "coredns"),
            (SYSTEM, "get", "configmaps", "coredns"),
            (KEYS, "create", "configmaps", ""),
            (ALL, "patch", "apps/deployments", ""),
            (ALL, "list", "apps/deployments", ""),
            (ALL, "update", "autoscaling/horizontalpodautoscalers", ""),
            (ALL, "create", "pods", ""),
            (ALL, "delete", "pods", ""),
            (ALL, "patch", "paceline.dev/inferenceservices", ""),
            (HOME, "patch", "paceline.dev/tenants/status", ""),
        ),
    ),
    "a gateway": Holder(
        "paceline-gateway",
        (
            (KEYS, "list", "secrets", ""),
            (KEYS, "watch", "secrets", ""),
            (ALL, "list", "paceline.dev/inferenceservices", ""),
            (ALL, "watch", "discovery.k8s.io/endpointslices", ""),
            (HOME, "patch", "paceline.dev/tenants/status", ""),
        ),
        (
            *NO_SECRETS,
            (KEYS, "create", "secrets", ""),
            (KEYS, "patch", "secrets", ""),
            (KEYS, "delete", "secrets", ""),
            (HOME, "get", "secrets", "paceline-signing-key-gateway"),
            (HOME, "get", "secrets", "redis-password"),
            (HOME, "get", "configmaps", "paceline-trust"),
            (TEAM, "patch", "paceline.dev/tenants/status", ""),
            (HOME, "patch", "paceline.dev/tenants", ""),
            (ALL, "patch", "paceline.dev/inferenceservices", ""),
            (ALL, "list", "pods", ""),
            (ALL, "update", "apps/deployments/scale", ""),
        ),
    ),
    "the small Prometheus": Holder(
        "paceline-prometheus",
        ((ALL, "list", "pods", ""), (ALL, "watch", "pods", "")),
        (*NO_SECRETS, (KEYS, "list", "secrets", ""), (HOME, "get", "configmaps", ""), (ALL, "get", "pods/log", "")),
    ),
}


@pytest.fixture(scope="module")
def place(apiserver: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with home(apiserver, tmp_path_factory.mktemp("tokens")) as made, bound(apiserver, made.namespace):
        yield made


@pytest.fixture
def api(apiserver: Workbench) -> Iterator[httpx.Client]:
    with apiserver.machine.api() as client:
        yield client


@pytest.mark.parametrize("who", HOLDERS)
def test_a_tokens_holder_may_do_what_the_page_says_and_not_what_it_denies(
    api: httpx.Client, place: Home, who: str
) -> None:
    holder = HOLDERS[who]
    user = service_account(place.namespace, holder.account)
    spaces = {HOME: place.namespace, KEYS: key_namespace_of(place.namespace), TEAM: "default"}

    def allowed(act: Act) -> bool:
        where, verb, resource, name = act
        group, _, plain = (
            resource.partition("/")
            if "." in resource or resource.startswith(("apps/", "autoscaling/"))
            else ("", "", resource)
        )
        return may(api, user, verb, group, plain, spaces.get(where, where), name)

    assert [act for act in holder.may if not allowed(act)] == []
    assert [act for act in holder.may_not if allowed(act)] == []


@pytest.mark.parametrize("verb", ["create", "patch", "delete"])
@pytest.mark.parametrize("name", ["paceline-trust", "paceline-signing-keys", "paceline-gateway", "paceline-scaling"])
def test_of_pacelines_own_configmaps_the_autoscaler_writes_learned_state_alone(
    api: httpx.Client, place: Home, name: str, verb: str
) -> None:
    path = f"/api/v1/namespaces/{place.namespace}/configmaps"
    as_autoscaler = {"impersonate-user": service_account(place.namespace, "paceline-autoscaler")}
    state = f"paceline-scaling.team.{verb}-{name}"
    refused: dict[str, httpx.Response] = {}
    await_true(
        "the policy is in force", lambda: _tried(api, path, as_autoscaler, "create", "probe").status_code == 403, TOLD_S
    )
    for each in (name, state):
        if verb != "create":
            api.post(path, json={"metadata": {"name": each}, "data": {"a": "b"}})
        refused[each] = _tried(api, path, as_autoscaler, verb, each)
        api.delete(f"{path}/{each}")
    assert refused[name].status_code == 403
    assert "writes only ConfigMaps whose names begin with paceline-scaling." in refused[name].text
    assert refused[state].is_success, refused[state].text
    api.delete(f"{path}/probe")


def _tried(api: httpx.Client, path: str, headers: dict[str, str], verb: str, name: str) -> httpx.Response:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "c"}}
    if verb == "create":
        return api.post(path, headers=headers, json=body)
    if verb == "delete":
        return api.delete(f"{path}/{name}", headers=headers)
    return api.patch(
        f"{path}/{name}", headers={**headers, "content-type": "application/merge-patch+json"}, json={"data": {"a": "c"}}
    )


def test_the_page_has_a_row_for_every_token() -> None:
    rows = re.findall(r"^\| \*\*(.+?)\*\*", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    assert set(HOLDERS) <= set(rows)
    assert len(rows) >= len(HOLDERS) + 4
    assert {holder.account for holder in HOLDERS.values()} == {f"paceline-{part}" for part in PARTS}
