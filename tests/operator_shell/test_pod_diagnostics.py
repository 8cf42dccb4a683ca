from typing import Any

from tests.operator_shell.fake_api import FakeApi

from paceline_core.clock import ManualClock
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.resource import Resource
from paceline_core.kube.cluster import Manifest
from paceline_operator.controllers.pod_diagnostics import INITIAL_DELAY_S, PodDiagnostics

CHAT = ObjectKey("default", "chat")


class Counting(FakeApi):
    """Counts lists of pods."""

    looks = 0

    async def list(self, resource: Resource, namespace: str = "", **_: Any) -> list[Manifest]:
        self.looks += 1
        waiting = {"name": "worker", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
        pod = {"metadata": {"name": "p", "labels": {}}, "status": {"containerStatuses": [waiting]}}
        return [pod, pod]


async def test_pods_are_looked_at_only_after_patience_and_then_now_and_again() -> None:
    clock, api = ManualClock(), Counting()
    diagnostics = PodDiagnostics(api, clock)
    assert await diagnostics.problems(CHAT) == ()
    assert diagnostics.again_s(CHAT) == INITIAL_DELAY_S
    clock.advance(INITIAL_DELAY_S)
    (problem,) = await diagnostics.problems(CHAT)
    assert (problem.reason, problem.pods) == ("ErrImagePull", 2)
    for _ in range(10):
        await diagnostics.problems(CHAT)
    assert api.looks == 1
    clock.advance(15.0)
    await diagnostics.problems(CHAT)
    assert api.looks == 2


async def test_a_thousand_services_that_wait_cost_a_few_looks_a_second() -> None:
    clock, api = ManualClock(), Counting()
    diagnostics = PodDiagnostics(api, clock)
    keys = [ObjectKey("default", f"s{number}") for number in range(1000)]
    for key in keys:
        await diagnostics.problems(key)
    clock.advance(INITIAL_DELAY_S)
    for key in keys:
        await diagnostics.problems(key)
    assert api.looks <= 4


async def test_a_service_that_does_not_start_is_explained_within_five_seconds() -> None:
    clock = ManualClock()
    diagnostics = PodDiagnostics(Counting(), clock)
    await diagnostics.problems(CHAT)
    clock.advance(5.0)
    assert await diagnostics.problems(CHAT)


async def test_a_ready_service_is_forgotten() -> None:
    clock = ManualClock()
    diagnostics = PodDiagnostics(Counting(), clock)
    await diagnostics.problems(CHAT)
    diagnostics.forget(CHAT)
    assert diagnostics.again_s(CHAT) is None


async def test_in_a_bulk_start_nobody_asks_and_afterwards_the_next_one_does() -> None:
    clock, api = ManualClock(), Counting()
    diagnostics = PodDiagnostics(api, clock)
    await diagnostics.problems(CHAT, bulk=True)
    clock.advance(INITIAL_DELAY_S)
    assert await diagnostics.problems(CHAT, bulk=True) == ()
    assert api.looks == 0
    assert await diagnostics.problems(CHAT)
