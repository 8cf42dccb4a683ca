"""Rights that are missing beside the obvious ones: to what services share, to look at what is somebody else's."""

from typing import Any

from tests.operator_shell.fake_api import FakeApi
from tests.operator_shell.rig import HOME, Rig, service

from paceline_core.clock import ManualClock
from paceline_core.errors import Forbidden
from paceline_core.kube import Deleted, ObjectKey
from paceline_core.kube.client.resource import Resource
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_operator.controllers.pod_diagnostics import PodDiagnostics
from paceline_operator.controllers.reconciler import KEYS
from paceline_operator.plans.key_rotation import REGISTRY

CHAT = ObjectKey("default", "chat")
STRANGER = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "chat-workers", "namespace": "default"}}


class Blindfold(FakeApi):
    """Lets nobody get or list what `hidden` names."""

    hidden = ""

    async def get(self, resource: Resource, key: ObjectKey, subresource: str = "") -> Manifest:
        self._refuse("get", resource)
        return await super().get(resource, key, subresource)

    async def list(self, resource: Resource, namespace: str = "", **words: Any) -> list[Manifest]:
        self._refuse("list", resource)
        return await super().list(resource, namespace, **words)

    def _refuse(self, verb: str, resource: Resource) -> None:
        if resource.kind == self.hidden:
            raise Forbidden(403, "Forbidden", f'cannot {verb} resource "{resource.plural}"')


def degraded(api: FakeApi) -> tuple[str, str, str]:
    conditions = api.objects[INFERENCE_SERVICE, CHAT]["status"]["conditions"]
    found = next(one for one in conditions if one["type"] == "Degraded")
    return found["status"], found["reason"], found["message"]


async def test_a_service_reports_what_keeps_the_things_that_its_namespace_shares_from_being_made() -> None:
    api = FakeApi()
    api.put(service())
    words = 'cannot patch resource "serviceaccounts"'
    api.fault = lambda _, __, kind: Forbidden(403, "Forbidden", words) if kind == "ServiceAccount" else None
    rig = await Rig(api).start()
    await rig.settle(20.0)
    assert degraded(api)[:2] == ("True", "Forbidden")
    assert words in degraded(api)[2]
    api.fault = lambda *_: None
    await rig.settle(130.0)
    assert degraded(api)[0] == "False"


async def test_a_service_reports_that_an_unmanaged_object_cannot_be_looked_at_any_more() -> None:
    api = Blindfold()
    api.put(service())
    api.put(dict(STRANGER))
    rig = await Rig(api).start()
    await rig.settle(20.0)
    assert degraded(api)[1] == "ForeignChild"
    api.hidden = "Service"
    await rig.settle(20.0)
    assert 'cannot get resource "services"' in degraded(api)[2]


async def test_pods_that_may_not_be_listed_are_a_problem_of_the_service() -> None:
    clock, api = ManualClock(), Blindfold()
    api.hidden = "Pod"
    diagnostics = PodDiagnostics(api, clock)
    await diagnostics.problems(CHAT)
    clock.advance(20.0)
    [problem] = await diagnostics.problems(CHAT)
    assert problem.reason == "Forbidden"
    assert 'cannot list resource "pods"' in problem.message
    api.hidden = ""
    clock.advance(15.0)
    assert await diagnostics.problems(CHAT) == ()


async def test_a_registry_of_keys_that_another_controller_deletes_is_looked_at_at_once() -> None:
    rig = await Rig(FakeApi()).start()
    await rig.settle()
    metadata = {"name": REGISTRY, "namespace": HOME, "uid": "1", "resourceVersion": "1", "labels": {}}
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    rig.state.on_event("ConfigMap", Deleted(gone))
    item = rig.queue.backlog.take(rig.clock.monotonic())
    assert item is not None
    assert item.kind == KEYS
