"""The operator's plans against a real API server: what it stores of what we apply never differs from what we wish."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.cluster.harness.workbench import Workbench
from tests.cluster.served import Document, made_namespace, removed, serving
from tests.core.objects.corpus import valid
from tests.operator_plans.plan_factories import EMULATE, POOL, SETTINGS, service

from paceline_core.kube import ObjectKey
from paceline_core.kube.client.resource import RESOURCES
from paceline_operator.plans.children import differs
from paceline_operator.plans.inferenceservice import plan_service
from paceline_operator.plans.namespace import plan_namespace
from paceline_operator.plans.observe import observe_child
from paceline_operator.plans.types import (
    MANAGER,
    REPLICAS_MANAGER,
    Apply,
    Delete,
    NamespaceView,
    ObjectRef,
    ObservedChild,
    ReconcileInput,
)

pytestmark = pytest.mark.real

NAMESPACE = "team"
RICH = replace(
    SETTINGS,
    pull_secrets=("registry", "mirror"),
    metrics_namespaces=("monitoring",),
    log_level="DEBUG",
    pull_policy="Always",
)
SECRET = {"secretKeyRef": {"name": "tokens", "key": "hub", "optional": False}}
CARRIED = {
    name: value
    for name, value in valid()["pod-settings"]["spec"]["pools"][0].items()
    if name not in ("name", "accelerator")
}
"""Every field of a pool that its pods carry, from the corpus; with sizes that the server writes in another way."""
CARRIED["resources"] = {
    "requests": {"cpu": "0.5", "memory": "1500000k", "ephemeral-storage": "2048Mi"},
    "limits": {"memory": "4096Mi"},
}
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "environment": {
        "runtime": {
            "env": [
                {"name": "MONEY", "value": "$(HOME) costs $$5"},
                {"name": "EMPTY", "value": ""},
                {"name": "TOKEN", "valueFrom": SECRET},
            ]
        }
    },
    "emulated": {"engine": {"emulate": EMULATE, "maxModelLen": 8192}},
    "pages on disk": {
        "engine": {"kvCache": {"hostOffloadBytes": "1Gi", "diskOffloadBytes": "1025Mi"}},
        "classes": {"interactive": {"reservedPercent": 25}},
    },
    "in place": {"rollout": {"gpus": "inPlace", "drainTimeout": "90s500ms"}},
    "placed": {
        "pools": [
            {
                **POOL,
                "spot": True,
                "nodeSelector": {"zone": "a", "empty": ""},
                "tolerations": [
                    {"key": "gpu", "value": "", "effect": "NoExecute", "tolerationSeconds": 30},
                    {"operator": "Exists"},
                ],
            }
        ]
    },
    "carried": {"pools": [{**POOL, **CARRIED}]},
    "carried on spot": {"pools": [{**POOL, **CARRIED, "spot": True}]},
    "pools": {"pools": [POOL, {"name": "edge", "accelerator": "cpu", "replicas": {"min": 0, "max": 5}}]},
}


class Cluster:
    """Carries plans out, as the operator's shell does, without a shell."""

    def __init__(self, api: httpx.Client) -> None:
        self._api = api
        self.places: set[ObjectRef] = set()
        self.owners: dict[str, Document] = {}

    def wish(self, name: str = "chat", **spec: Any) -> Document:
        """A service whose owner is a real object, or the garbage collector would take its children."""
        if name not in self.owners:
            answer = self.apply(
                {**service(name), "metadata": {"name": name, "namespace": NAMESPACE}}, "user", force=True
            )
            assert answer.is_success, answer.text
            self.owners[name] = answer.json()
        return service(name, uid=self.owners[name]["metadata"]["uid"], **spec)

    def apply(self, body: Document, manager: str, *, force: bool) -> httpx.Response:
        key = ObjectKey(body["metadata"]["namespace"], body["metadata"]["name"])
        if body["kind"] != "InferenceService":
            self.places.add((body["kind"], key))
        return self._api.patch(
            RESOURCES[body["kind"]].path(key),
            params={"fieldManager": manager, "force": str(force).lower()},
            headers={"content-type": "application/apply-patch+yaml"},
            json=body,
        )

    def merge(self, place: ObjectRef, patch: Document) -> None:
        """What `kubectl patch --type merge` does."""
        answer = self._api.patch(
            RESOURCES[place[0]].path(place[1]),
            params={"fieldManager": "kubectl-patch"},
            headers={"content-type": "application/merge-patch+json"},
            json=patch,
        )
        assert answer.is_success, answer.text

    def got(self, place: ObjectRef) -> Document:
        answer = self._api.get(RESOURCES[place[0]].path(place[1]))
        assert answer.is_success, answer.text
        return {"kind": place[0], **answer.json()}

    def seen(self) -> dict[ObjectRef, ObservedChild]:
        return {place: observe_child(self.got(place)) for place in self.places}

    def remove(self, place: ObjectRef) -> None:
        self.places.discard(place)
        self._api.delete(RESOURCES[place[0]].path(place[1]))

    def view(self, manifest: Document) -> ReconcileInput:
        seen = self.seen()
        shared = {
            kind: live for (kind, _), live in seen.items() if kind in ("ServiceAccount", "ConfigMap", "NetworkPolicy")
        }
        return ReconcileInput(manifest, seen, shared, RICH, now=0.0, time="2026-01-01T00:00:00Z")

    def step(self, manifest: Document) -> int:
        """One reconcile of the namespace and the service; how many writes it took."""
        view = self.view(manifest)
        trust = {"k1": "AAAA"}
        actions = [
            *plan_namespace(NamespaceView(NAMESPACE, 1, view.shared, RICH, trust)).actions,
            *plan_service(view).actions,
        ]
        for action in actions:
            if isinstance(action, Delete):
                self.remove((action.kind, action.key))
                continue
            manager = MANAGER if isinstance(action, Apply) else REPLICAS_MANAGER
            answer = self.apply(action.manifest(), manager, force=isinstance(action, Apply) and action.force)
            assert answer.is_success, answer.text
        return len(actions)

    def converge(self, manifest: Document) -> None:
        for _ in range(4):
            if not self.step(manifest):
                return
        raise AssertionError("does not settle")


@pytest.fixture
def here(apiserver: Workbench) -> Iterator[Cluster]:
    with serving(apiserver) as api:
        made_namespace(api, NAMESPACE)
        cluster = Cluster(api)
        yield cluster
        for place in list(cluster.places):
            cluster.remove(place)
        for owner in cluster.owners.values():
            removed(api, owner)


@pytest.mark.parametrize("name", SPECS)
def test_what_is_stored_is_what_is_wished(here: Cluster, name: str) -> None:
    manifest = here.wish(**SPECS[name])
    here.converge(manifest)
    again = plan_service(replace(here.view(manifest), children={}))
    wished = [action.child for action in again.actions if isinstance(action, Apply)]
    assert len(wished) >= 3
    assert not [child.key for child in wished if differs(child, here.seen()[child.place])]


@pytest.mark.parametrize("name", SPECS)
def test_a_field_set_and_unset_leaves_what_never_had_it(here: Cluster, name: str) -> None:
    here.converge(here.wish())
    before = {place: live.content for place, live in here.seen().items()}
    here.converge(here.wish(**SPECS[name]))
    back = here.wish()
    here.converge(back)
    assert {place: live.content for place, live in here.seen().items() if place in before} == before


FOREIGN: dict[str, dict[str, Any]] = {
    "Service chat-workers": {"selector": {"foo": "bar"}},
    "PodDisruptionBudget chat-workers": {"selector": {"matchLabels": {"foo": "bar"}}},
    "NetworkPolicy paceline-workers": {"podSelector": {"matchLabels": {"foo": "bar"}}},
    "Deployment chat-main": {"template": {"spec": {"nodeSelector": {"foo": "bar"}}}},
}


@pytest.mark.parametrize("child", FOREIGN)
def test_a_key_that_somebody_adds_to_a_selector_is_taken_away_by_one_apply(here: Cluster, child: str) -> None:
    manifest = here.wish(pools=[{**POOL, "nodeSelector": {"zone": "a"}}])
    here.converge(manifest)
    _scale(here, 1)
    kind, name = child.split()
    place = (kind, ObjectKey(NAMESPACE, name))
    before = here.seen()[place].content
    here.merge(place, {"spec": FOREIGN[child]})
    assert here.seen()[place].content != before
    assert here.step(manifest) == 1
    assert here.seen()[place].content == before
    assert here.step(manifest) == 0


def test_replicas_belong_to_the_autoscaler_once_they_are_handed_over(here: Cluster) -> None:
    here.converge(here.wish())
    _scale(here, 4)
    here.converge(here.wish(runtime={"env": [{"name": "A", "value": "b"}]}))
    assert _replicas(here) == (4, True)


def test_replicas_that_nobody_moved_are_handed_over_with_the_first_edit_and_stay(here: Cluster) -> None:
    here.converge(here.wish())
    assert _replicas(here) == (1, False)
    here.converge(here.wish(runtime={"env": [{"name": "A", "value": "b"}]}))
    assert _replicas(here) == (1, True)
    here.converge(here.wish())
    assert _replicas(here) == (1, True)


def _replicas(here: Cluster) -> tuple[int, bool]:
    """What the pool has, and whether the field is anybody's beside the operator."""
    place = ("Deployment", ObjectKey(NAMESPACE, "chat-main"))
    owners = here.seen()[place].replicas
    assert owners is not None
    return here.got(place)["spec"]["replicas"], owners.shared


def _scale(here: Cluster, replicas: int) -> None:
    """As the autoscaler does."""
    metadata = {"name": "chat-main", "namespace": NAMESPACE}
    wish = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas}}
    assert here.apply(wish, "paceline-autoscaler", force=True).is_success


def test_longest_names_are_taken(here: Cluster) -> None:
    pool = {"name": "a" * 15, "accelerator": "cpu"}
    here.converge(here.wish("s" * 40, pools=[pool]))
    assert ("Deployment", ObjectKey(NAMESPACE, f"{'s' * 40}-{'a' * 15}")) in here.places
