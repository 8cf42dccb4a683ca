from dataclasses import replace
from typing import Any

import orjson
import pytest
from tests.operator_plans.apiserver_model import ModelServer
from tests.operator_plans.plan_factories import SETTINGS

from paceline_core.auth import jwk, jwk_set
from paceline_core.kube.cluster import ObjectKey
from paceline_operator.plans.namespace import plan_namespace
from paceline_operator.plans.types import Action, Apply, Delete, NamespaceView, ObservedChild

PODS = {"matchLabels": {"app.kubernetes.io/name": "paceline-worker"}}
TRUST = jwk_set([jwk("k1", "AAAA", "gateway"), jwk("k0", "BBBB", "autoscaler")])


class Scene:
    """One namespace and what its services share."""

    def __init__(self, **view: Any) -> None:
        self.server = ModelServer()
        self.view = NamespaceView("team", 1, {}, SETTINGS, TRUST)
        self.view = replace(self.view, **view)

    def shared(self) -> dict[str, ObservedChild]:
        return {kind: live for (kind, _), live in self.server.seen().items()}

    def look(self, **view: Any) -> tuple[Action, ...]:
        self.view = replace(self.view, **view)
        actions = plan_namespace(replace(self.view, shared=self.shared())).actions
        for action in actions:
            self.server.carry_out(action)
        return actions


def kinds(actions: tuple[Action, ...]) -> list[str]:
    return [action.child.kind if isinstance(action, Apply) else getattr(action, "kind", "") for action in actions]


def test_the_first_service_brings_account_policy_and_trust_and_the_second_look_nothing() -> None:
    scene = Scene()
    actions = scene.look()
    assert kinds(actions) == ["ServiceAccount", "NetworkPolicy", "ConfigMap"]
    assert all(isinstance(a, Apply) and not a.force and a.uid is None for a in actions)
    assert scene.look() == ()


def test_the_account_has_no_token_and_nothing_is_owned_by_a_service() -> None:
    scene = Scene()
    scene.look()
    found = scene.server.picture()
    assert found["ServiceAccount team/paceline-worker"]["automountServiceAccountToken"] is False
    assert all("ownerReferences" not in content["metadata"] for content in found.values())
    assert all(
        content["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "paceline"} for content in found.values()
    )


def test_trust_is_every_public_key_and_follows_a_rotation() -> None:
    scene = Scene()
    scene.look()
    (changed,) = scene.look(trust=(rotated := jwk_set([jwk("k2", "CCCC", "gateway")])))
    assert isinstance(changed, Apply)
    assert changed.uid
    text = scene.server.picture()["ConfigMap team/paceline-trust"]["data"]["jwks.json"]
    assert orjson.loads(text) == rotated


def test_keys_that_are_not_known_empty_nobodys_trust() -> None:
    scene = Scene()
    scene.look()
    assert scene.look(trust=None) == ()


def test_only_who_asks_reaches_a_workers_api_and_only_who_scrapes_its_metrics() -> None:
    scene = Scene(settings=replace(SETTINGS, metrics_namespaces=("monitoring", "paceline-system")))
    scene.look()
    spec = scene.server.picture()["NetworkPolicy team/paceline-workers"]["spec"]
    asked, scraped = spec["ingress"]
    assert asked["ports"] == [{"port": 8000, "protocol": "TCP"}]
    (asker,) = asked["from"]
    assert asker["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "paceline-system"}
    (label,) = asker["podSelector"]["matchExpressions"]
    assert (label["key"], label["values"]) == ("app.kubernetes.io/name", ["paceline-gateway", "paceline-autoscaler"])
    assert scraped["ports"] == [{"port": 8001, "protocol": "TCP"}]
    names = [peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for peer in scraped["from"]]
    assert names == ["paceline-system", "monitoring"]
    assert not any("podSelector" in peer for peer in scraped["from"])
    assert spec["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "paceline-worker"}
    assert spec["policyTypes"] == ["Ingress"]


def test_a_policy_that_is_switched_off_goes() -> None:
    scene = Scene()
    scene.look()
    (gone,) = scene.look(settings=replace(SETTINGS, network_policy=False))
    assert isinstance(gone, Delete)
    assert gone.kind == "NetworkPolicy"


def test_everything_goes_with_the_last_service_by_uid() -> None:
    scene = Scene()
    scene.look()
    actions = scene.look(services=0)
    assert sorted(kinds(actions)) == ["ConfigMap", "NetworkPolicy", "ServiceAccount"]
    assert all(isinstance(action, Delete) and action.uid for action in actions)
    assert scene.server.stored == {}
    assert scene.look() == ()


def test_the_release_namespace_keeps_its_trust_without_any_service() -> None:
    scene = Scene(namespace="paceline-system", services=0)
    assert kinds(scene.look()) == ["ConfigMap"]
    assert scene.look() == ()
    assert scene.look(trust=None) == ()


def test_a_namespace_that_goes_away_gets_nothing() -> None:
    assert Scene(terminating=True).look() == ()


@pytest.mark.parametrize("services", [0, 1])
def test_an_unmanaged_object_of_the_name_is_neither_changed_nor_deleted(services: int) -> None:
    scene = Scene(services=services)
    body = {
        "kind": "ServiceAccount",
        "metadata": {"name": "paceline-worker", "namespace": "team", "labels": {"a": "b"}},
    }
    scene.server.apply({**body, "automountServiceAccountToken": True}, "somebody", force=False)
    before = scene.server.picture()["ServiceAccount team/paceline-worker"]
    scene.look()
    scene.look()
    assert scene.server.picture()["ServiceAccount team/paceline-worker"] == before
    assert scene.shared()["ServiceAccount"].key == ObjectKey("team", "paceline-worker")


@pytest.mark.parametrize(
    ("path", "wider"),
    [
        (("spec", "podSelector"), {"matchLabels": {"app.kubernetes.io/name": "paceline-worker", "foo": "bar"}}),
        (("spec", "podSelector"), {"matchExpressions": [{"key": "a", "operator": "Exists"}], **PODS}),
        (
            ("spec", "ingress"),
            [
                {
                    "from": [
                        {
                            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "paceline-system"}},
                            "podSelector": {"matchLabels": {"foo": "bar"}},
                        }
                    ],
                    "ports": [{"port": 8000, "protocol": "TCP"}],
                }
            ],
        ),
    ],
)
def test_what_another_controller_adds_to_the_policys_selectors_is_taken_away(
    path: tuple[str, ...], wider: object
) -> None:
    scene = Scene()
    scene.look()
    before = scene.server.picture()
    scene.server.change(("NetworkPolicy", ObjectKey("team", "paceline-workers")), path, wider)
    assert kinds(scene.look()) == ["NetworkPolicy"]
    assert scene.server.picture() == before
    assert scene.look() == ()
