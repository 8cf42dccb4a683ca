"""What an object of another kind means to a service or a route is told, and done, as that one comes and goes."""

from typing import Any

from tests.operator_shell.fake_api import FakeApi
from tests.operator_shell.rig import Rig, service

from paceline_core.kube import ObjectKey
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, API_VERSION, INFERENCE_ROUTE, INFERENCE_SERVICE


def route(namespace: str, model: str, created: str) -> Manifest:
    metadata = {"name": "take", "namespace": namespace, "creationTimestamp": created}
    spec = {"model": model, "backends": [{"service": "chat"}]}
    return {"apiVersion": API_VERSION, "kind": INFERENCE_ROUTE, "metadata": metadata, "spec": spec}


def accepted(api: FakeApi, kind: str, key: ObjectKey) -> dict[str, Any]:
    conditions = api.objects[kind, key]["status"]["conditions"]
    return next(dict(one) for one in conditions if one["type"] == "Accepted")


async def test_a_service_and_a_route_are_reported_as_the_other_comes_and_goes() -> None:
    api = FakeApi()
    mine = service()
    mine["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z"
    api.put(mine)
    rig = await Rig(api).start()
    await rig.settle()
    chat, take = ObjectKey("default", "chat"), ObjectKey("evil", "take")
    api.put(route("evil", "chat", "2026-03-01T00:00:00Z"))
    await rig.settle()
    assert accepted(api, INFERENCE_SERVICE, chat)["reason"] == "Valid"
    assert accepted(api, INFERENCE_ROUTE, take)["reason"] == "NameTaken"
    api.remove(INFERENCE_ROUTE, take)
    api.put(route("evil", "chat", "2026-01-01T00:00:00Z"))
    await rig.settle()
    assert accepted(api, INFERENCE_SERVICE, chat)["reason"] == "NameTaken"
    assert "route evil/take" in accepted(api, INFERENCE_SERVICE, chat)["message"]
    api.remove(INFERENCE_ROUTE, take)
    await rig.settle()
    assert accepted(api, INFERENCE_SERVICE, chat)["reason"] == "Valid"


async def test_a_service_starts_when_the_profile_of_its_accelerator_comes() -> None:
    api = FakeApi()
    api.put(service(pools=[{"name": "main", "accelerator": "h1000"}]))
    rig = await Rig(api).start()
    await rig.settle()
    chat = ObjectKey("default", "chat")
    assert accepted(api, INFERENCE_SERVICE, chat)["reason"] == "UnknownAccelerator"
    assert api.children("Deployment") == {}
    spec = {"memory": "80G", "bandwidth": "3350G", "teraflops": {"bf16": 989}, "resourceName": "example.com/h1000"}
    api.put({"apiVersion": API_VERSION, "kind": ACCELERATOR_PROFILE, "metadata": {"name": "h1000"}, "spec": spec})
    await rig.settle()
    assert accepted(api, INFERENCE_SERVICE, chat)["reason"] == "Valid"
    (deployment,) = api.children("Deployment").values()
    limits = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits["example.com/h1000"] == "1"
    api.remove(ACCELERATOR_PROFILE, ObjectKey("", "h1000"))
    await rig.settle()
    assert accepted(api, INFERENCE_SERVICE, chat)["reason"] == "UnknownAccelerator"
    assert list(api.children("Deployment").values()) == [deployment]
