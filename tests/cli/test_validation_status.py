"""What local mode says of its objects, in the operator's words."""

from typing import Any

from tests.cli.test_manifest_warnings import made, route, service, tenant

from paceline_core.kube.cluster import ObjectKey
from paceline_local.apiserver import ObjectStore
from paceline_local.status import write

TIME = "2026-01-31T12:00:00Z"


def judged(*documents: dict[str, Any]) -> tuple[ObjectStore, dict[ObjectKey, Any]]:
    store = ObjectStore()
    for document in documents:
        document["metadata"] |= {"generation": 1, "creationTimestamp": TIME}
        store.objects.put(document)
    return store, dict(write(store, TIME))


def said(store: ObjectStore, kind: str, key: str) -> tuple[str, str]:
    (accepted,) = store.objects.get(kind, ObjectKey.parse(key))["status"]["conditions"]
    return accepted["status"], accepted["reason"]


def test_routes_tenants_and_profiles_have_the_operators_words() -> None:
    profile = made("AcceleratorProfile", "mine", {"memory": "0", "bandwidth": "1G", "teraflops": {"bf16": 1}}, "")
    store, _ = judged(
        service("chat", "chat"), route(), tenant("default/later"), tenant("*", namespace="other"), profile
    )
    assert said(store, "InferenceRoute", "default/public") == ("True", "Valid")
    assert said(store, "Tenant", "paceline-system/team") == ("True", "ServiceMissing")
    assert said(store, "Tenant", "other/team") == ("False", "NotHonoured")
    (broken,) = store.objects.list("AcceleratorProfile")
    assert broken["status"]["conditions"][0]["reason"] == "Invalid"


def test_a_service_and_a_route_that_lose_their_name_are_told() -> None:
    capture = route("public", namespace="evil")
    capture["spec"] = {"model": "chat", "backends": [{"service": "own"}]}
    other = service("other", "chat")
    store, accepted = judged(service("chat", "chat"), other, capture)
    assert accepted[ObjectKey("default", "chat")].reason == "Valid"
    lost = accepted[ObjectKey("default", "other")]
    assert (lost.status, lost.reason) == ("False", "NameTaken")
    assert "The older service default/chat answers to 'chat'." in lost.message
    assert said(store, "InferenceRoute", "evil/public") == ("False", "NameTaken")
