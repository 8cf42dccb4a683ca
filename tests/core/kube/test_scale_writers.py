"""Who set a Deployment's replicas last, as managedFields and the autoscalers of its namespace tell."""

from typing import Any

import pytest
from tests.core.kube.api_peer import Peer, answer, listed, status

from paceline_core.errors import Forbidden
from paceline_core.kube import Namespaces, ObjectKey, ScaleTarget
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.cluster import Manifest
from paceline_core.kube.kubernetes import KubernetesCluster
from paceline_core.kube.scale_writers import autoscaler_of, replicas_writer

REPLICAS: dict[str, Any] = {"f:spec": {"f:replicas": {}}}


def deployment(*entries: tuple[str, str, dict[str, Any]]) -> Manifest:
    fields = [{"manager": manager, "time": time, "fieldsV1": owned} for manager, time, owned in entries]
    return {"metadata": {"name": "chat-main", "managedFields": fields}}


def hpa(name: str, target: str, kind: str = "Deployment", **labels: str) -> Manifest:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"scaleTargetRef": {"kind": kind, "name": target}}}


def test_the_newest_owner_of_the_desired_replicas_is_the_writer() -> None:
    found = deployment(
        ("paceline-operator", "2026-01-01T00:00:03Z", {"f:spec": {"f:template": {}}}),
        ("paceline-replicas", "2026-01-01T00:00:01Z", REPLICAS),
        ("kubectl", "2026-01-01T00:00:02Z", REPLICAS),
        ("kube-controller-manager", "2026-01-01T00:00:04Z", {"f:status": {"f:replicas": {}}}),
    )
    assert replicas_writer(found) == "kubectl"


def test_without_an_owner_the_writer_is_unknown() -> None:
    assert replicas_writer({"metadata": {"name": "chat-main"}}) == ""
    assert replicas_writer(deployment(("a", "2026-01-01T00:00:00Z", {"f:metadata": {}}))) == ""


def test_an_autoscaler_is_named_by_its_target() -> None:
    others = [hpa("other", "chat-spot"), hpa("set", "chat-main", kind="StatefulSet"), hpa("web", "chat-main")]
    assert autoscaler_of("chat-main", others) == "HorizontalPodAutoscaler web"
    assert autoscaler_of("chat-main", others[:2]) == "a HorizontalPodAutoscaler"


def test_one_that_keda_made_is_named_by_the_object_that_a_user_wrote() -> None:
    labelled = hpa("keda-hpa-x", "chat-main", **{"scaledobject.keda.sh/name": "queue"})
    assert autoscaler_of("chat-main", [labelled]) == "KEDA ScaledObject queue"
    assert autoscaler_of("chat-main", [hpa("keda-hpa-queue", "chat-main")]) == "KEDA ScaledObject queue"


BY_HPA = deployment(("kube-controller-manager", "2026-01-01T00:00:00Z", REPLICAS))
MAIN = ScaleTarget(ObjectKey("team", "chat"), "main")


async def test_only_for_the_clusters_own_controller_autoscalers_are_listed(peer: Peer, api: KubeClient) -> None:
    cluster = KubernetesCluster(api, Namespaces("paceline"))
    by_kubectl = deployment(("kubectl", "2026-01-01T00:00:00Z", REPLICAS))
    peer.answers += [answer(by_kubectl), answer(BY_HPA), listed(hpa("web", "chat-main"))]
    assert await cluster.scale_writer(MAIN) == "kubectl"
    assert await cluster.scale_writer(MAIN) == "HorizontalPodAutoscaler web"
    assert [asked.path for asked in peer.asked] == [
        *["/apis/apps/v1/namespaces/team/deployments/chat-main"] * 2,
        "/apis/autoscaling/v2/namespaces/team/horizontalpodautoscalers",
    ]


async def test_without_the_right_to_list_them_an_autoscaler_has_no_name(peer: Peer, api: KubeClient) -> None:
    cluster = KubernetesCluster(api, Namespaces("paceline"))
    peer.answers += [answer(BY_HPA), status(403, "cannot list"), status(403, "cannot get")]
    assert await cluster.scale_writer(MAIN) == "a HorizontalPodAutoscaler"
    with pytest.raises(Forbidden):
        await cluster.scale_writer(MAIN)
