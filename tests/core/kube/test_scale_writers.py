"""Who set a Deployment's replicas last, as managedFields and the autoscalers of its namespace tell."""

from typing import Any

from paceline_core.kube.cluster import Manifest
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
