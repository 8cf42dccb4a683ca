"""Each right of the operator, taken away: it is told where a person looks, and told no more when it is back.

One process lives through all cases; what it needs each right for is a table, which must name exactly the rights that
the chart gives. Rights to list and to watch are in test_rights_watches.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.cluster.harness.workbench import Workbench
from tests.cluster.operators import Home, Running, await_true, home, pool, service
from tests.cluster.rights import MENDED_S, TOLD_S, Manifest, Right, Roles, Stage

pytestmark = pytest.mark.real
Act = Callable[[Stage], None]
Holds = Callable[[Stage], bool]
LOOK_S = 25.0
"""A service's pods are looked at each 15 s."""
ELSEWHERE = {("inferenceservices/finalizers", "update"): "asked by clusters that enforce owner references"}


@dataclass(frozen=True, slots=True)
class Case:
    """What stands before, what needs the right, where its want is told, and what is so when it is back."""

    need: Act
    told: Callable[[Stage, Right], bool]
    done: Holds
    before: Act = lambda _: None
    within_s: float = TOLD_S


@pytest.fixture(scope="module")
def place(apiserver: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with home(apiserver, tmp_path_factory.mktemp("rights")) as made:
        yield made


@pytest.fixture(scope="module")
def running(place: Home) -> Iterator[Running]:
    with place.operator() as made:
        made.await_calm()
        place.bench.kubectl.apply(service("early", place.namespace))
        yield made


@pytest.fixture
def stage(place: Home, running: Running) -> Iterator[Stage]:
    with place.bench.namespace() as team, place.bench.machine.api() as api:
        yield Stage(place, running, team, api, len(running.lines))


def on_the_service(stage: Stage, right: Right) -> bool:
    status, reason, message = stage.condition()
    return (status, reason) == ("True", "Forbidden") and right.words in message


def early(stage: Stage) -> tuple[str, str, str]:
    """The service whose pods never come, and which is old enough for the operator to look for the reason."""
    return stage.condition("early", namespace=stage.place.namespace)


def about_pods(stage: Stage, right: Right) -> bool:
    return early(stage)[:2] == ("True", "Forbidden") and right.words in early(stage)[2]


def in_the_log(stage: Stage, right: Right) -> bool:
    return stage.logged(right.words)


def counted(kind: str) -> Callable[[Stage, Right], bool]:
    return lambda stage, right: stage.logged(right.words) and stage.errors(kind) > 0


def stands_by(stage: Stage, right: Right) -> bool:
    return stage.logged(right.words) and stage.running.value("paceline_operator_leader") == 0


def leads(stage: Stage) -> bool:
    return stage.running.value("paceline_operator_leader") == 1


def applied(stage: Stage, body: Manifest) -> None:
    stage.bench.kubectl.apply(body)


def a_service(stage: Stage, **spec: Any) -> None:
    stage.bench.kubectl.apply(service("chat", stage.team, **spec))


def two_pools(stage: Stage) -> None:
    a_service(stage, pools=[pool("main"), pool("spare")])
    await_true("two pools", lambda: ("Deployment", "chat-spare") in stage.children(), MENDED_S)


def a_whole_service(stage: Stage) -> None:
    a_service(stage)
    await_true("a whole service", lambda: whole(stage), MENDED_S)


def whole(stage: Stage) -> bool:
    names = {"chat-main", "chat-workers", "paceline-worker", "paceline-trust", "paceline-workers"}
    found = stage.children()
    return len(found) == 6 and {name for _, name in found} == names and stage.condition()[0] == "False"


def removed(stage: Stage) -> None:
    stage.bench.kubectl.within(stage.team)("delete", "pisvc", "chat", "--wait=false")


def empty(stage: Stage) -> bool:
    return not stage.children()


def one_pool(stage: Stage) -> bool:
    return ("Deployment", "chat-spare") not in stage.children() and stage.condition()[0] == "False"


def stranger(kind: str, name: str, version: str, **content: Any) -> Case:
    """Somebody else's object where ours belongs: to say whose it is, it must be read."""
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}

    def before(stage: Stage) -> None:
        stage.bench.kubectl.within(stage.team).apply(body)

    return Case(
        a_service,
        on_the_service,
        lambda stage: stage.condition()[1] != "Forbidden" and name in stage.condition()[2],
        before,
    )


def reported(kind: str, spec: Manifest) -> Case:
    """An object of one of the small kinds gets its status."""

    def body(stage: Stage) -> Manifest:
        scope = {} if kind == "AcceleratorProfile" else {"namespace": stage.team}
        api = "paceline.dev/v1alpha1"
        return {"apiVersion": api, "kind": kind, "metadata": {"name": stage.team, **scope}, "spec": spec}

    return Case(
        lambda stage: applied(stage, body(stage)),
        counted(kind),
        lambda stage: bool(stage.read(kind, stage.team).get("status", {}).get("conditions")),
    )


def forget_keys(stage: Stage) -> None:
    stage.bench.kubectl.within(stage.place.namespace)("delete", "configmap", "paceline-signing-keys")


def forget_keys_and_secret(stage: Stage) -> None:
    stage.bench.kubectl.within(stage.place.namespace)("delete", "secret", "paceline-signing-key-gateway")
    forget_keys(stage)


def keys_are_active(stage: Stage) -> bool:
    found = stage.read("ConfigMap", "paceline-signing-keys", stage.place.namespace).get("data", {})
    return str(found.get("keys.json", "")).count('"active"') == 2


def lose_the_lease(stage: Stage) -> None:
    stage.bench.kubectl.within(stage.place.namespace)("delete", "lease", "paceline-operator")


def nothing(_: Stage) -> None:
    pass


def lose_a_child(stage: Stage) -> None:
    stage.bench.kubectl.within(stage.team)("delete", "service", "chat-workers")


def told_of_a_child(stage: Stage) -> None:
    """The second time is the same event, once more, and written ten seconds after the first."""
    a_whole_service(stage)
    lose_a_child(stage)
    await_true("the loss is an event", lambda: "Created Service" in told_events(stage), TOLD_S)


def told_events(stage: Stage) -> str:
    return stage.bench.kubectl.within(stage.team)("get", "events", "--field-selector=reason=Created")


NEW = Case(a_service, on_the_service, whole)
LAST_GONE = Case(removed, counted("Namespace"), empty, a_whole_service)
SELECTOR = {"matchLabels": {"app": "theirs"}}
PODS = {"metadata": {"labels": {"app": "theirs"}}, "spec": {"containers": [{"name": "theirs", "image": "theirs:1"}]}}
CASES = {
    ("deployments", "create"): NEW,
    ("deployments", "patch"): NEW,
    ("deployments", "delete"): Case(a_service, on_the_service, one_pool, two_pools),
    ("deployments", "get"): stranger(
        "Deployment", "chat-main", "apps/v1", spec={"replicas": 0, "selector": SELECTOR, "template": PODS}
    ),
    ("services", "create"): NEW,
    ("services", "patch"): NEW,
    ("services", "get"): stranger("Service", "chat-workers", "v1", spec={"ports": [{"port": 80}]}),
    ("poddisruptionbudgets", "create"): NEW,
    ("poddisruptionbudgets", "patch"): NEW,
    ("poddisruptionbudgets", "get"): stranger(
        "PodDisruptionBudget", "chat-workers", "policy/v1", spec={"maxUnavailable": 1, "selector": SELECTOR}
    ),
    ("serviceaccounts", "create"): NEW,
    ("serviceaccounts", "patch"): NEW,
    ("serviceaccounts", "delete"): LAST_GONE,
    ("serviceaccounts", "get"): stranger("ServiceAccount", "paceline-worker", "v1"),
    ("configmaps", "create"): NEW,
    ("configmaps", "patch"): NEW,
    ("configmaps", "delete"): LAST_GONE,
    ("configmaps", "get"): stranger("ConfigMap", "paceline-trust", "v1", data={"jwks.json": "{}"}),
    ("networkpolicies", "create"): NEW,
    ("networkpolicies", "patch"): NEW,
    ("networkpolicies", "delete"): LAST_GONE,
    ("networkpolicies", "get"): stranger(
        "NetworkPolicy", "paceline-workers", "networking.k8s.io/v1", spec={"podSelector": SELECTOR}
    ),
    ("inferenceservices/status", "patch"): Case(a_service, counted("InferenceService"), whole),
    ("tenants/status", "patch"): reported("Tenant", {"services": ["*"]}),
    ("inferenceroutes/status", "patch"): reported(
        "InferenceRoute", {"model": "demo", "backends": [{"service": "chat"}]}
    ),
    ("acceleratorprofiles/status", "patch"): reported(
        "AcceleratorProfile", {"memory": "32Gi", "bandwidth": "40.5G", "teraflops": {"fp32": 0.5}}
    ),
    ("secrets", "patch"): Case(forget_keys, counted("SigningKeys"), keys_are_active),
    ("secrets", "create"): Case(forget_keys_and_secret, counted("SigningKeys"), keys_are_active),
    ("leases", "get"): Case(nothing, stands_by, leads),
    ("leases", "update"): Case(nothing, stands_by, leads),
    ("leases", "create"): Case(lose_the_lease, stands_by, leads),
    ("events", "create"): Case(lose_a_child, in_the_log, whole, a_whole_service),
    ("events", "patch"): Case(lose_a_child, in_the_log, whole, told_of_a_child, MENDED_S),
    ("pods", "list"): Case(nothing, about_pods, lambda stage: early(stage)[0] == "False", within_s=LOOK_S),
}


@pytest.mark.parametrize("right", CASES, ids=" ".join)
def test_a_missing_right_is_named_and_its_return_clears_it(right: tuple[str, str], stage: Stage) -> None:
    resource, verb = right
    case, roles = CASES[right], Roles.read(stage.place)
    lacking = next(each for each in roles.rights if (each.resource, each.verb) == right)
    case.before(stage)
    with roles.without(right):
        case.need(stage)
        await_true(f"it is told that it {lacking.words}", lambda: case.told(stage, lacking), case.within_s)
    await_true(f"all is well with {verb} {resource}", lambda: case.done(stage), MENDED_S)
    assert stage.running.process.poll() is None


def test_every_right_that_the_chart_gives_is_needed_for_something_here(place: Home) -> None:
    given = {(right.resource, right.verb) for right in Roles.read(place).rights}
    watched = {(resource, verb) for resource, verb in given if verb in {"list", "watch"}} - {("pods", "list")}
    assert given - watched - ELSEWHERE.keys() == CASES.keys()
