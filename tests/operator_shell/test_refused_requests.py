"""Rights that are taken away and come back: every pause ends soon, and what is missing for good costs little."""

from typing import Any

import pytest
from tests.operator_shell.fake_api import FakeApi
from tests.operator_shell.rig import Rig, service

from paceline_autoscaler.controller import SWEEP_RETRY_S
from paceline_autoscaler.service_scaler import STATE_RETRY_S
from paceline_core.errors import Forbidden, Unauthorized
from paceline_core.kube import ObjectKey, WatchLost
from paceline_core.kube.client.client import RENEW_GAP_S
from paceline_core.kube.client.watch import BACKOFF_S, backoff_s
from paceline_core.kube.events import GAP_S
from paceline_core.kube.kubernetes import ASK_AGAIN_S
from paceline_core.kube.leader_election import RETRY_S
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_gateway.usage_writer import AGAIN_S
from paceline_operator.controllers import pod_diagnostics
from paceline_operator.state.child_cache import CHILD_KINDS
from paceline_operator.state.workqueue import (
    MAX_PAUSE_S,
    PROBES,
    REFUSED_PAUSE_S,
    Priority,
    PriorityQueue,
    ReconcileKey,
)

LIMIT_S = 10.0
RIGHT = 'User "x" cannot patch resource "deployments" in API group "apps" in the namespace "default"'
LOST = 'configmaps is forbidden: User "x" cannot watch resource "configmaps"'
ITEMS = [ReconcileKey(INFERENCE_SERVICE, ObjectKey("default", f"s{number}")) for number in range(100)]


def forbidden(_: int, verb: str, kind: str) -> Exception | None:
    """No right to anything, in the API server's words."""
    return Forbidden(403, "Forbidden", f'{kind.lower()}s "it" is forbidden: User "x" cannot {verb} {kind}')


def unauthorized(*_: Any) -> Exception | None:
    return Unauthorized("the API server does not accept our credentials: Unauthorized")


def test_no_pause_after_a_refusal_is_longer_than_ten_seconds() -> None:
    longest = {
        "watches": backoff_s(1000, 1.0),
        "keys": REFUSED_PAUSE_S,
        "pods": pod_diagnostics.REFUSED_S,
        "operator's lease": RETRY_S,
        "accelerators": ASK_AGAIN_S,
        "events": GAP_S,
        "tenants' usage": AGAIN_S,
        "learned state": STATE_RETRY_S,
        "states that are left over": SWEEP_RETRY_S,
    }
    assert {name: pause for name, pause in longest.items() if pause > LIMIT_S} == {}
    assert BACKOFF_S[-1] / 2 >= RENEW_GAP_S  # whoever waited the longest step reads the credentials again


def refused_all(backlog: PriorityQueue, until: float) -> int:
    """Every key is refused whenever it comes; how many passes that were."""
    passes, now = 0, 0.0
    for item in ITEMS:
        backlog.add(item, Priority.CREATE, now)
    while now < until:
        while (item_ := backlog.take(now)) is not None:
            passes += 1
            backlog.failed(item_, now, refused=RIGHT)
        due = backlog.due()
        assert due is not None
        now = due
    return passes


def test_a_right_that_is_missing_for_an_hour_costs_a_hundred_keys_little_more_than_two() -> None:
    hour = 3600.0
    assert refused_all(PriorityQueue(), hour) <= PROBES * hour / REFUSED_PAUSE_S * 1.1 + len(ITEMS) * (
        hour / MAX_PAUSE_S + 10
    )


def test_a_probe_comes_back_within_its_bound_and_wakes_all_that_wait_for_the_same_right() -> None:
    backlog = PriorityQueue()
    refused_all(backlog, 3600.0)
    due = backlog.due()
    assert due is not None
    assert due <= 3600.0 + REFUSED_PAUSE_S
    probe = backlog.take(due)
    assert probe in ITEMS[:PROBES]
    backlog.done(probe, due)
    woken = set()
    while (item := backlog.take(due)) is not None:
        woken.add(item)
        backlog.done(item, due)
    assert woken == set(ITEMS) - {probe}
    assert backlog.due() is None


@pytest.mark.parametrize("beyond", ["", "another right"])
def test_a_key_that_fails_for_something_else_wakes_those_that_wait_for_the_first(beyond: str) -> None:
    backlog = PriorityQueue()
    refused_all(backlog, 600.0)
    due = backlog.due()
    assert due is not None
    probe = backlog.take(due)
    assert probe is not None
    backlog.failed(probe, due, refused=beyond)
    assert backlog.waits(due)
    assert backlog.depth == len(ITEMS) - 1


@pytest.mark.parametrize("fault", [forbidden, unauthorized])
async def test_after_an_hour_without_rights_everything_stands_within_the_bound(fault: Any) -> None:
    api = FakeApi()
    for number in range(20):
        api.put(service(f"chat{number}", f"team{number % 3}"))
    api.fault = fault
    rig = await Rig(api).start()
    await rig.settle(3600.0, passes=100_000)
    assert not [kind for kind, _ in api.objects if kind == "Deployment"]
    api.fault = lambda *_: None
    await rig.settle(LIMIT_S + 1.0)
    assert sum(kind == "Deployment" for kind, _ in api.objects) == 20
    for (kind, _), found in api.objects.items():
        if kind == INFERENCE_SERVICE:
            assert {one["type"]: one["status"] for one in found["status"]["conditions"]}["Degraded"] == "False"


async def test_children_that_are_observed_again_end_the_pause_of_the_services_that_were_forbidden() -> None:
    api = FakeApi()
    api.put(service())
    rig = await Rig(api).start()
    await rig.settle()
    rig.state.on_event("ConfigMap", WatchLost(LOST))
    await rig.settle(600.0)
    before = rig.clock.monotonic()
    for kind in CHILD_KINDS:
        await rig.relist(kind)
    assert rig.queue.backlog.waits(before, Priority.EDIT)
    await rig.settle(0.0)
    assert degraded(api) == "False"


async def test_a_right_that_comes_and_goes_is_no_conflict_with_ourselves() -> None:
    api = FakeApi()
    api.put(service())
    rig = await Rig(api).start()
    await rig.settle()
    for _ in range(8):
        rig.state.on_event("ConfigMap", WatchLost(LOST))
        await rig.settle(1.0)
        assert degraded(api) == "True"
        await rig.relist("ConfigMap")
        await rig.settle(3.0)
        assert degraded(api) == "False"


def degraded(api: FakeApi) -> str:
    conditions = api.objects[INFERENCE_SERVICE, ObjectKey("default", "chat")]["status"]["conditions"]
    return str(next(one["status"] for one in conditions if one["type"] == "Degraded"))
