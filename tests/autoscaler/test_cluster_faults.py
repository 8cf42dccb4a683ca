"""A cluster that refuses, loses watches, or hands the lease to somebody else: nothing is removed, nothing crashes."""

import logging
from collections.abc import AsyncIterator

import pytest
from pydantic import TypeAdapter
from tests.autoscaler.fake_cluster import FakeCluster
from tests.autoscaler.test_controller import CHAT, KEY, PLACE, POOL, SLO, Rig, exported
from tests.autoscaler.test_scaling_goals import manifest

from paceline_autoscaler.controller import LEASE, LEASE_TTL_S, SWEEP_RETRY_S
from paceline_autoscaler.model.outlook import KNOWN_BINS
from paceline_autoscaler.model.work_history import BIN_S
from paceline_autoscaler.output.scale_writer import state_json
from paceline_autoscaler.service_scaler import STATE_RETRY_S
from paceline_autoscaler.state import Knowledge, LearnedState, StartSample, State
from paceline_autoscaler.types import StartKind
from paceline_core.clock import rfc3339
from paceline_core.errors import ApiError, Forbidden, PacelineError, Unauthorized, Unreachable
from paceline_core.kube import (
    Endpoint,
    Listed,
    ObjectKey,
    Scale,
    ScaleTarget,
    ServiceEndpoints,
    ServiceRef,
    StartStage,
    WatchLost,
)
from paceline_core.kube.leader_election import USABLE

WORDS = 'deployments.apps "chat-main" is forbidden: User "autoscaler" cannot {verb} resource "deployments/scale"'
BUSY, THREE_BUSY = 25, 18
"""Requests a second: 2.5 replica-s/s need more than two replicas, and 1.8 need three."""


def forbidden(verb: str) -> Forbidden:
    return Forbidden(403, "Forbidden", WORDS.format(verb=verb))


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    yield made
    made.cluster.broken.clear()
    await made.autoscaler.close()


def condition(rig: Rig, kind: str) -> tuple[str, str, str]:
    """Status, reason and message as last written."""
    row = next(row for row in rig.cluster.statuses[-1][1]["conditions"] if row["type"] == kind)
    return row["status"], row["reason"], row["message"]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(("call", "verb"), [("get_scale", "get"), ("set_scale", "update")])
async def test_a_missing_right_to_scale_is_a_condition_that_names_it_and_goes_with_it(
    rig: Rig, call: str, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.start()
    await rig.seconds(1, ready=1)
    rig.cluster.broken[call] = forbidden(verb)
    await rig.seconds(8, ready=1, requests=BUSY)
    assert condition(rig, "ScalingActive") == (
        "False",
        "Forbidden",
        f"The API server refuses: {WORDS.format(verb=verb)}.",
    )
    assert "scaling" in rig.cluster.statuses[-1][1]
    assert len(warnings(caplog)) == 1
    assert exported(rig, 'paceline_autoscaler_actuation_errors_total{pisvc="chat",pisvc_namespace="default"}')
    rig.cluster.broken.clear()
    await rig.seconds(4, ready=1, requests=BUSY)
    assert rig.cluster.written
    assert condition(rig, "ScalingActive")[:2] == ("True", "Scaling")


async def test_an_autoscaler_that_was_never_allowed_to_look_reports_it_and_keeps_what_stands_there() -> None:
    rig = Rig()
    standing = manifest(classes=SLO)
    row = {"status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    standing["status"] = {
        "scaling": {"desired": 3, "pools": [{"name": "main", "desired": 3}]},
        "conditions": [{"type": kind, **row} for kind in ("Ready", "SLOMet")],
    }
    await rig.start()
    rig.autoscaler.on_service(Listed((standing,)))
    rig.cluster.broken["get_scale"] = forbidden("get")
    await rig.seconds(5, ready=1)
    (status,) = [status for _, status in rig.cluster.statuses]
    assert status["scaling"] == standing["status"]["scaling"]
    assert {row["type"] for row in status["conditions"]} == {"SLOMet", "ScalingActive"}
    await rig.autoscaler.close()


@pytest.mark.parametrize("call", ["patch_status", "get_state", "put_state"])
async def test_other_missing_rights_keep_nobody_from_scaling_and_are_reported_once(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    rig.cluster.broken[call] = forbidden("patch")
    await rig.start()
    await rig.seconds(70, ready=1, requests=BUSY)
    assert rig.cluster.written
    assert len(warnings(caplog)) == 1
    assert exported(rig, 'paceline_autoscaler_actuation_errors_total{pisvc="chat",pisvc_namespace="default"}')
    rig.cluster.broken.clear()
    await rig.autoscaler.close()


@pytest.mark.parametrize("call", ["list_states", "delete_state"])
async def test_states_that_may_not_be_deleted_are_reported_once_and_deleted_later(
    call: str, rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    gone = ServiceRef(ObjectKey("default", "gone"), "u1")
    rig.cluster.states, rig.cluster.broken[call] = {gone: {"state": "{}"}}, forbidden("delete")
    await rig.start()
    await rig.seconds(10, ready=1, requests=BUSY)
    assert rig.cluster.written
    assert gone in rig.cluster.states
    assert [line for line in warnings(caplog) if "gone are not deleted" in str(line)] == warnings(caplog)
    assert len(warnings(caplog)) == 1
    rig.cluster.broken.clear()
    rig.clock.advance(SWEEP_RETRY_S)
    await rig.seconds(5, ready=1)
    assert gone not in rig.cluster.states


async def test_without_the_right_to_the_lease_nothing_is_written_and_one_line_reports_it(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.cluster.broken["lease"] = forbidden("update")
    await rig.start()
    await rig.seconds(10, ready=1, requests=BUSY)
    assert (rig.cluster.written, rig.cluster.statuses) == ([], [])
    assert len(warnings(caplog)) == 1
    assert exported(rig, 'paceline_autoscaler_watch_synced{kind="Lease"} 0.0')
    rig.cluster.broken.clear()
    await rig.seconds(2, ready=1, requests=BUSY)
    assert rig.cluster.written
    assert exported(rig, 'paceline_autoscaler_watch_synced{kind="Lease"} 1.0')


async def test_while_objects_cannot_be_watched_replicas_are_added_and_none_removed(rig: Rig) -> None:
    await rig.start(ready=3)
    await rig.seconds(20, ready=3)
    rig.autoscaler.on_service(WatchLost("inferenceservices is forbidden"))
    await rig.seconds(90, ready=3)
    assert rig.cluster.scales[POOL].replicas == 3
    message = condition(rig, "MetricsFresh")[2]
    assert "The objects are stale (inferenceservices is forbidden)" in message
    await rig.seconds(20, ready=3, requests=4 * BUSY)
    assert rig.cluster.scales[POOL].replicas > 3


async def test_after_hours_without_an_api_server_the_last_known_set_goes_on(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.start(ready=3)
    await rig.seconds(60, ready=3, requests=THREE_BUSY)
    assert rig.cluster.scales[POOL].replicas == 3
    gone = Unreachable("connection refused")
    rig.cluster.broken = dict.fromkeys(("get_scale", "set_scale", "patch_status", "put_state", "lease"), gone)
    rig.autoscaler.on_service(WatchLost("connection refused"))
    rig.autoscaler.on_workers(WatchLost("connection refused"))
    for _ in range(3):
        await rig.seconds(20, ready=3)
        rig.clock.advance(3600)
    assert rig.autoscaler.ready
    assert len(warnings(caplog)) <= 5
    rig.cluster.broken.clear()
    await rig.seconds(5, ready=3)
    assert rig.cluster.scales[POOL].replicas == 3
    rig.autoscaler.on_service(Listed((manifest(classes=SLO),)))
    await rig.see(3)
    await rig.seconds(10, ready=3)
    assert rig.cluster.scales[POOL].replicas == 3
    await rig.seconds(KNOWN_BINS * round(BIN_S) + 600, ready=3)  # until the quiet is known
    assert rig.cluster.scales[POOL].replicas < 3


class SlowCluster(FakeCluster):
    """Its answer to a read of the scale takes so long that the lease may be somebody else's by then."""

    rig: Rig
    slow = False

    async def get_scale(self, target: ScaleTarget) -> Scale:
        if self.slow:
            self.rig.clock.advance(LEASE_TTL_S * USABLE)
        return await super().get_scale(target)


async def test_an_answer_that_comes_after_the_lease_is_followed_by_no_write() -> None:
    cluster = SlowCluster()
    rig = Rig(cluster=cluster)
    cluster.rig = rig
    await rig.start()
    await rig.seconds(2, ready=1)
    await rig.seconds(1, ready=1, requests=50 * BUSY)
    cluster.slow, cluster.leases[LEASE] = True, "somebody else"
    before = list(cluster.statuses), dict(cluster.states)
    await rig.hear(1)
    await rig.autoscaler.step()
    assert (cluster.written, (cluster.statuses, cluster.states)) == ([], before)
    await rig.autoscaler.close()
    assert dict(cluster.states) == before[1]
    assert cluster.leases[LEASE] == "somebody else"


def pending(rig: Rig, name: str) -> Endpoint:
    """A Pod that no node takes: it has no address."""
    return Endpoint(name, *PLACE, "", 8000, ready=False, created=rfc3339(rig.clock.utc()), stage=StartStage.SCHEDULE)


async def test_a_pending_pod_is_never_dialled_and_named_when_it_is_overdue(rig: Rig) -> None:
    await rig.start(ready=1, desired=2)
    created = rfc3339(rig.clock.utc())
    there = Endpoint("main-0", *PLACE, "10.1.0.0", 9000, ready=True, created=created)
    rig.autoscaler.on_workers(Listed((ServiceEndpoints(KEY, (there, pending(rig, "chat-main-abc12"))),)))
    await rig.seconds(5, ready=1)
    assert condition(rig, "CapacityBlocked")[0] == "False"
    assert exported(rig, 'pool="main",state="starting"} 1.0')
    for _ in range(30):
        rig.clock.advance(60)
        await rig.seconds(1, ready=1)
    status, _, message = condition(rig, "CapacityBlocked")
    assert (status, "replica chat-main-abc12 has no node after" in message) == ("True", True)
    assert {host for host, talker in rig.talkers.by_host.items() if talker.readers} == {"10.0.0.1:81", "10.1.0.0:9000"}


async def relaunched(rig: Rig, after_s: float) -> Rig:
    """Another process over the same cluster, some time later; its gateways and workers are heard anew."""
    heir = Rig(cluster=rig.cluster, name="a")
    heir.clock.advance(rig.clock.monotonic() + after_s)
    heir.arrivals = rig.arrivals
    heir.autoscaler.on_service(Listed((manifest(classes=SLO),)))
    await heir.gateways.find()
    return heir


@pytest.mark.parametrize("requests", [0, THREE_BUSY])
@pytest.mark.parametrize("killed", [True, False])
async def test_however_often_it_restarts_replicas_stay(requests: int, killed: bool) -> None:
    rig = Rig()
    await rig.start(ready=3)
    await rig.seconds(5, ready=3, requests=requests)
    for after_s in (1, 5, 20, 1, 600):
        if not killed:
            await rig.autoscaler.close()
        rig = await relaunched(rig, after_s)
        await rig.autoscaler.step()  # nothing is listed but the services
        await rig.see(3)
        await rig.seconds(6, ready=3, requests=requests)
    assert rig.cluster.written == []
    await rig.autoscaler.close()


async def test_a_burst_that_began_after_the_last_stored_state_is_not_forgotten_by_a_kill() -> None:
    """What was stored knows a quiet hour alone; the process dies in the middle of the burst that it scaled for."""
    rig = Rig()
    await rig.start(ready=1)
    await rig.seconds(100, ready=1, requests=1)
    stored = dict(rig.cluster.states)
    await rig.seconds(10, ready=1, requests=8 * BUSY)
    await rig.see(4)
    await rig.seconds(14, ready=4, requests=BUSY)
    rig.cluster.states = stored
    ordered = rig.cluster.scales[POOL].replicas
    assert ordered == 4
    written = len(rig.cluster.written)
    heir = await relaunched(rig, 5)
    await heir.see(4)
    for _ in range(8):
        await heir.seconds(1, ready=4)  # the clients wait for the workers just now
    assert rig.cluster.written[written:] == []
    await heir.autoscaler.close()


async def test_learned_state_that_may_not_be_stored_is_stored_soon_after_it_may(rig: Rig) -> None:
    rig.cluster.broken["put_state"] = forbidden("patch")
    await rig.start()
    await rig.seconds(40, ready=1, requests=BUSY)
    assert rig.cluster.states == {}
    rig.cluster.broken.clear()
    await rig.seconds(int(STATE_RETRY_S) + 2, ready=1, requests=BUSY)
    assert rig.cluster.states


UNREADABLE = (
    Forbidden(403, "Forbidden", 'configmaps "paceline-scaling.default.chat" is forbidden'),
    Unauthorized(401, "Unauthorized", "the credentials are refused"),
    ApiError(503, "ServiceUnavailable", "etcd has no leader"),
    Unreachable("the API server did not answer in time"),
)


@pytest.mark.parametrize("fault", UNREADABLE, ids=lambda fault: type(fault).__name__)
async def test_stored_state_that_cannot_be_read_is_kept_and_holds_scale_downs_until_it_can_be(
    fault: PacelineError, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    learned = LearnedState(starts=(StartSample("main", StartKind.COLD, 333.0),))
    stored = {"state": state_json(State("slo", learned))}
    rig.cluster.states[CHAT], rig.cluster.broken["get_state"] = dict(stored), fault
    await rig.start(ready=3)
    await rig.seconds(90, ready=3)
    assert (rig.cluster.states[CHAT], rig.cluster.written) == (stored, [])
    status, reason, message = condition(rig, "MetricsFresh")
    assert (status, reason, str(fault) in message) == ("False", "StateMissing", True)
    assert len(warnings(caplog)) == 1
    assert exported(rig, 'paceline_autoscaler_actuation_errors_total{pisvc="chat",pisvc_namespace="default"}')
    rig.cluster.broken.clear()
    await rig.seconds(int(STATE_RETRY_S), ready=3)
    assert condition(rig, "MetricsFresh")[0] == "True"
    await rig.autoscaler.close()
    assert "333.0" in rig.cluster.states[CHAT]["state"]


async def test_an_autoscaler_that_ends_before_it_could_read_the_state_stores_nothing_over_it(rig: Rig) -> None:
    rig.cluster.states[CHAT], rig.cluster.broken["get_state"] = {"state": "{}"}, UNREADABLE[0]
    await rig.start()
    await rig.seconds(2, ready=1)
    await rig.autoscaler.close()
    assert rig.cluster.states[CHAT] == {"state": "{}"}


async def test_what_demand_did_survives_a_restart(rig: Rig) -> None:
    await rig.start(ready=3)
    await rig.seconds(300, ready=3, requests=THREE_BUSY)
    await rig.autoscaler.close()
    stored = TypeAdapter(Knowledge).validate_json(rig.cluster.states[CHAT]["knowledge"]).history("both")
    assert stored.known == pytest.approx(10, abs=1)
    again = Rig(clock=rig.clock)
    again.cluster.states[CHAT] = dict(rig.cluster.states[CHAT])
    await again.start(ready=3)
    await again.seconds(100, ready=3, requests=THREE_BUSY)
    await again.autoscaler.close()
    later = TypeAdapter(Knowledge).validate_json(again.cluster.states[CHAT]["knowledge"]).history("both")
    assert later.codes[: len(stored.codes)] == stored.codes
    assert later.known > stored.known


async def test_knowledge_that_cannot_be_read_starts_anew(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.cluster.states[CHAT] = {"state": "{}", "knowledge": '{"histories": [["both", {"codes": "?"}]]}'}
    await rig.start(ready=1)
    await rig.seconds(40, ready=1, requests=5)
    assert any("unreadable" in record.message for record in caplog.records)
    await rig.autoscaler.close()
    assert "both" in rig.cluster.states[CHAT]["knowledge"]
