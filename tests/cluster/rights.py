"""The operator's rights as the chart renders them, taken away one at a time on a real API server and given back.

Every right is read from the roles in force, so that a new one is a new case at once. What is asked of the API server's
authorizer is asked as a SubjectAccessReview, since a changed role is in force a moment after it is stored.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
from tests.cluster.harness.audit import service_account
from tests.cluster.harness.workbench import Workbench
from tests.cluster.operators import ACCOUNT, ROOT, Home, Running, await_true

from paceline_core.kube import ObjectKey, key_namespace_of
from paceline_core.kube.client.resource import RESOURCES
from paceline_operator.state.child_cache import CHILD_KINDS

Manifest = dict[str, Any]
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TOLD_S = 10.0
MENDED_S = 30.0


PARTS = ("operator", "autoscaler", "gateway", "prometheus")
READ = ("get", "list", "watch")
RENDERED = (*(f"{part}/rbac" for part in PARTS), "gateway/keys", "autoscaler/admission")


@contextmanager
def bound(bench: Workbench, namespace: str) -> Iterator[None]:
    """The roles of every part as the chart renders them, the namespace of keys and the admission policy; in force."""
    files = [word for name in RENDERED for word in ("-s", f"templates/{name}.yaml")]
    roles = bench.helm()("template", "paceline", str(ROOT / "charts/paceline"), "-n", namespace, *files)
    bench.kubectl("apply", "--filename=-", manifest=roles)
    keys, gateway = key_namespace_of(namespace), service_account(namespace, "paceline-gateway")
    try:
        with bench.machine.api() as api:
            for verb in ("list", "watch"):
                allowed = partial(may, api, gateway, verb, "", "secrets", keys)
                await_true(f"the gateway may {verb} secrets", allowed, TOLD_S)
        yield
    finally:
        names = [f"{namespace}:paceline-{part}" for part in PARTS]
        bench.kubectl("delete", "clusterrole,clusterrolebinding", *names, "--ignore-not-found")
        policies = "validatingadmissionpolicy,validatingadmissionpolicybinding"
        bench.kubectl("delete", policies, f"paceline-autoscaler.{namespace}", "--ignore-not-found")
        bench.kubectl("delete", "namespace", keys, "--ignore-not-found", "--wait=false")


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource, perhaps on certain names only."""

    group: str
    resource: str
    verb: str
    names: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What the API server says of somebody who lacks it."""
        return f'cannot {self.verb} resource "{self.resource}"'


def rights_of(role: Manifest) -> list[Right]:
    """All of a role."""
    return [
        Right(group, resource, verb, tuple(rule.get("resourceNames", ())))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def role_of(rights: list[Right]) -> list[Manifest]:
    """The rules that give these."""
    return [
        {"apiGroups": [each.group], "resources": [each.resource], "verbs": [each.verb]}
        | ({"resourceNames": list(each.names)} if each.names else {})
        for each in rights
    ]


@dataclass(frozen=True, slots=True)
class Roles:
    """The two roles of one operator's account: of the cluster, and of its own namespace."""

    place: Home
    whole: tuple[Manifest, Manifest]

    @classmethod
    def read(cls, place: Home) -> "Roles":
        """As the chart's rendering stands in the API server."""
        kubectl = place.bench.kubectl
        cluster = kubectl.json("get", "clusterrole", f"{place.namespace}:{ACCOUNT}")
        return cls(place, (cluster, kubectl.within(place.namespace).json("get", "role", ACCOUNT)))

    @property
    def rights(self) -> list[Right]:
        """Everything that the operator may do."""
        return sorted({right for role in self.whole for right in rights_of(role)})

    @contextmanager
    def without(self, *verbs: tuple[str, str]) -> Iterator[None]:
        """Take (resource, verb) away; in force when the block begins, and back when it has ended."""
        self.set(*verbs)
        try:
            yield
        finally:
            self.set()

    def set(self, *taken: tuple[str, str]) -> None:
        """Give everything but these."""
        with self.place.bench.machine.api() as api:
            turned: list[Right] = []
            for role in self.whole:
                kept = [right for right in rights_of(role) if (right.resource, right.verb) not in taken]
                turned += set(rights_of(changed(api, role, role_of(kept)))) ^ set(kept)
            for right in turned:
                wished = (right.resource, right.verb) not in taken
                await_true(f"{right} is {wished}", lambda r=right, w=wished: self._may(api, r) == w, TOLD_S)  # type: ignore[misc]

    def _may(self, api: httpx.Client, right: Right) -> bool:
        name = right.names[0] if right.names else ""
        return may(api, self.place.user, right.verb, right.group, right.resource, self.place.namespace, name)


def changed(api: httpx.Client, role: Manifest, rules: list[Manifest]) -> Manifest:
    """Let a stored role have these rules; how it stood before."""
    metadata = role["metadata"]
    within = f"namespaces/{metadata['namespace']}/roles" if "namespace" in metadata else "clusterroles"
    path = f"/apis/rbac.authorization.k8s.io/v1/{within}/{metadata['name']}"
    before: Manifest = api.get(path).raise_for_status().json()
    answer = api.patch(path, headers={"content-type": "application/merge-patch+json"}, json={"rules": rules})
    assert answer.is_success, answer.text
    return {"rules": before.get("rules") or []}


def may(
    api: httpx.Client, user: str, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
) -> bool:
    """Whether the API server would let a user do it; no namespace: in all of them."""
    plain, _, sub = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": plain, "subresource": sub, "namespace": namespace, "name": name}
    groups = ["system:authenticated"]
    if user.startswith("system:serviceaccount:"):
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}"]
    answer = api.post(REVIEWS, json={"spec": {"user": user, "groups": groups, "resourceAttributes": asked}})
    assert answer.is_success, answer.text
    return bool(answer.json()["status"]["allowed"])


@dataclass(frozen=True, slots=True)
class Stage:
    """One case's namespace and the operator that is watched."""

    place: Home
    running: Running
    team: str
    api: httpx.Client
    said: int
    """How much the operator had said when the case began."""

    @property
    def bench(self) -> Workbench:
        """The cluster."""
        return self.place.bench

    def read(self, kind: str, name: str, namespace: str | None = None) -> Manifest:
        """An object, empty when there is none."""
        found = self.api.get(RESOURCES[kind].path(ObjectKey(self.team if namespace is None else namespace, name)))
        answer: Manifest = {} if found.status_code == httpx.codes.NOT_FOUND else found.raise_for_status().json()
        return answer

    def children(self) -> set[tuple[str, str]]:
        """Everything of the operator's in the case's namespace, by kind and name."""
        asked = {"labelSelector": "app.kubernetes.io/managed-by=paceline"}
        found: set[tuple[str, str]] = set()
        for kind in CHILD_KINDS:
            answer = self.api.get(RESOURCES[kind].collection(self.team), params=asked).raise_for_status()
            found |= {(kind, str(each["metadata"]["name"])) for each in answer.json()["items"]}
        return found

    def condition(self, name: str = "chat", namespace: str | None = None) -> tuple[str, str, str]:
        """Status, reason, message of Degraded."""
        found = self.read("InferenceService", name, namespace).get("status", {}).get("conditions", [])
        each: Manifest = next((one for one in found if one["type"] == "Degraded"), {})
        return each.get("status", ""), each.get("reason", ""), each.get("message", "")

    def logged(self, words: str) -> bool:
        """Whether the operator said it in this case."""
        return json.dumps(words)[1:-1] in self.running.lines[self.said :]

    def errors(self, kind: str) -> float:
        """How many passes over a kind failed for want of a right."""
        return labelled(self.running, "paceline_operator_reconcile_errors_total", kind, "Forbidden")


def labelled(running: Running, metric: str, *values: str) -> float:
    """A metric with these labels' values; 0 while there is none."""
    for line in httpx.get(f"{running.url()}/metrics").text.splitlines():
        if line.startswith(f"{metric}{{") and all(f'"{value}"' in line for value in values):
            return float(line.split()[-1])
    return 0.0
