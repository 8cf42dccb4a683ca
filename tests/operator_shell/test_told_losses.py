"""An object that loses its name, or wins it back, is told at once, whatever the kind of the other one."""

from typing import Any

from tests.operator_shell.fake_api import FakeApi
from tests.operator_shell.rig import Rig, service

from paceline_core.kube import Key
from paceline_core.kube.cluster import Manifest
from paceline_operator.objects import ROUTE, SERVICE


def route(namespace: str, model: str, created: str) -> Manifest:
    metadata = {"name": "take", "namespace": namespace, "creationTimestamp": created}
    spec = {"model": model, "backends": [{"service": "chat"}]}
    return {"apiVersion": "paceline.dev/v1alpha1", "kind": ROUTE, "metadata": metadata, "spec": spec}


def accepted(api: FakeApi, kind: str, key: Key) -> dict[str, Any]:
    conditions = api.objects[kind, key]["status"]["conditions"]
    return next(dict(one) for one in conditions if one["type"] == "Accepted")


async def test_a_service_and_a_route_are_told_as_the_other_comes_and_goes() -> None:
    api = FakeApi()
    mine = service()
    mine["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z"
    api.put(mine)
    rig = await Rig(api).start()
    await rig.settle()
    chat, take = Key("default", "chat"), Key("evil", "take")
    api.put(route("evil", "chat", "2026-03-01T00:00:00Z"))
    await rig.settle()
    assert accepted(api, SERVICE, chat)["reason"] == "Valid"
    assert accepted(api, ROUTE, take)["reason"] == "NameTaken"
    api.remove(ROUTE, take)
    api.put(route("evil", "chat", "2026-01-01T00:00:00Z"))
    await rig.settle()
    assert accepted(api, SERVICE, chat)["reason"] == "NameTaken"
    assert "route evil/take" in accepted(api, SERVICE, chat)["message"]
    api.remove(ROUTE, take)
    await rig.settle()
    assert accepted(api, SERVICE, chat)["reason"] == "Valid"
