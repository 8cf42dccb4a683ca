"""Somebody undoes what we write; nobody may answer him several times a second, and people must be told."""

from dataclasses import replace

import pytest
from tests.operator_shell.fake_api import FakeApi
from tests.operator_shell.rig import SETTINGS, Rig, service

from paceline_core.kube import ObjectKey
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.metadata import INFERENCE_SERVICE

CHAT, WORKERS = ObjectKey("default", "chat"), ("Service", ObjectKey("default", "chat-workers"))


def said(api: FakeApi, kind: str = "Degraded") -> Manifest:
    conditions = api.objects[INFERENCE_SERVICE, CHAT]["status"]["conditions"]
    found: Manifest = next(one for one in conditions if one["type"] == kind)
    return found


def undo(api: FakeApi, manager: str) -> None:
    """Give the Service another selector, as `manager`."""
    found = api.objects[WORKERS]
    fields = [{"manager": manager, "time": "2026-01-01T00:00:00Z", "fieldsV1": {}}]
    metadata = {**found["metadata"], "managedFields": fields}
    api.put({**found, "metadata": metadata, "spec": {**found["spec"], "selector": {"foo": "bar"}}})


def restored(api: FakeApi) -> bool:
    return bool(api.objects[WORKERS]["spec"]["selector"] != {"foo": "bar"})


async def second(rig: Rig) -> None:
    """Work for one second."""
    end = rig.clock.monotonic() + 1.0
    await rig.settle(0.9)
    rig.clock.advance(end - rig.clock.monotonic())


async def disputed(api: FakeApi, rig: Rig, seconds: int) -> int:
    """How often the Service was restored while somebody undid it once a second."""
    times = 0
    for _ in range(seconds):
        undo(api, "flux")
        await second(rig)
        times += restored(api)
    return times


async def test_who_undoes_a_write_again_and_again_is_answered_ever_more_slowly_and_named() -> None:
    api = FakeApi()
    api.put(service())
    rig = await Rig(api).start()
    await rig.settle()
    assert await disputed(api, rig, 600) < 15
    degraded = said(api)
    assert (degraded["status"], degraded["reason"]) == ("True", "FieldManagerConflict")
    assert "Service chat-workers" in degraded["message"]
    assert "flux" in degraded["message"]
    statuses = [write for write in api.writes if write.startswith("status")]
    await disputed(api, rig, 300)
    assert [write for write in api.writes if write.startswith("status")] == statuses


async def test_a_repair_is_reported_when_it_is_made_and_not_while_it_waits() -> None:
    api = FakeApi()
    api.put(service())
    rig = await Rig(api).start()
    await rig.settle()
    await disputed(api, rig, 600)
    repairs = [event.message for event in rig.told if event.reason == "Repaired"]
    assert set(repairs) == {"Service chat-workers was changed by flux; restored."}
    assert len(repairs) <= len([write for write in api.writes if write == "apply Service default/chat-workers"]) - 1
    assert len(repairs) <= 4


async def test_a_conflict_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    api = FakeApi()
    api.put(service())
    rig = await Rig(api).start()
    await rig.settle()
    await disputed(api, rig, 600)
    assert len([one for one in caplog.records if one.levelname == "WARNING"]) == 1


async def test_a_conflict_that_ended_is_forgotten_and_the_next_change_is_undone_at_once() -> None:
    api = FakeApi()
    api.put(service())
    rig = await Rig(api).start()
    await rig.settle()
    await disputed(api, rig, 100)
    await rig.settle(400.0)
    assert restored(api)
    assert said(api)["status"] == "False"
    undo(api, "flux")
    await rig.settle(1.0)
    assert restored(api)


async def test_an_edit_of_the_user_never_waits_for_a_conflict() -> None:
    api = FakeApi()
    api.put(service())
    rig = await Rig(api).start()
    await rig.settle()
    await disputed(api, rig, 100)
    found = api.objects[INFERENCE_SERVICE, CHAT]
    api.put({**found, "spec": service(rollout={"drainTimeout": "90s"})["spec"]})
    await rig.settle(1.0)
    pod = api.objects["Deployment", ObjectKey("default", "chat-main")]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= 90


async def test_two_operators_with_different_settings_over_one_namespace_come_to_rest() -> None:
    api = FakeApi()
    api.put(service())
    one = await Rig(api).start()
    two = await Rig(api, settings=replace(SETTINGS, namespace="other", endpoint="http://other.example")).start()
    for _ in range(600):
        for rig in (one, two):
            await second(rig)
    before = len(api.writes)
    for _ in range(300):
        for rig in (one, two):
            await second(rig)
    assert len(api.writes) - before < 40
    assert said(api)["reason"] == "FieldManagerConflict"
    assert "NetworkPolicy paceline-workers" in said(api)["message"] or "InferenceService" in said(api)["message"]
