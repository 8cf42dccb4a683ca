"""Other writers of the replicas: named, followed, and yielded to after three conflicts."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.autoscaler.fake_cluster import FakeCluster
from tests.autoscaler.test_cluster_faults import BUSY, condition, forbidden
from tests.autoscaler.test_controller import POOL, SLO, Rig
from tests.autoscaler.test_scaling_goals import manifest

from paceline_autoscaler.controller import LEASE
from paceline_autoscaler.model.scale_conflicts import WINDOW_S
from paceline_autoscaler.output.ledger import LedgerQuery
from paceline_autoscaler.scale_cache import READ_S
from paceline_core.errors import Unreachable
from paceline_core.kube import Listed, Scale, ScaleTarget

HPA = "HorizontalPodAutoscaler web"
TWO_AT_MOST = [{"name": "main", "accelerator": "h100", "replicas": {"min": 1, "max": 2}}]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    yield made
    await made.autoscaler.close()


async def a_read_later(rig: Rig, ready: int) -> None:
    """The next pass that reads the scales although nothing contradicts them."""
    rig.clock.advance(READ_S)
    await rig.seconds(1, ready=ready)


async def in_conflict(rig: Rig) -> None:
    """The autoscaler has just yielded to an HPA that wants more than the service's maximum."""
    await rig.start(ready=2, pools=TWO_AT_MOST)
    await rig.seconds(1, ready=2)
    for _ in range(3):
        rig.cluster.move(POOL, 4, HPA)
        await a_read_later(rig, ready=2)


def condition_row(rig: Rig) -> dict[str, Any]:
    rows: list[dict[str, Any]] = rig.cluster.statuses[-1][1]["conditions"]
    return next(row for row in rows if row["type"] == "ScalingActive")


def events(rig: Rig, reason: str) -> list[str]:
    return [event.message for event in rig.cluster.events if event.reason == reason]


async def test_a_manual_edit_is_named_and_decisions_go_on_from_it(rig: Rig) -> None:
    await rig.start(ready=1)
    await rig.seconds(2, ready=1)
    rig.cluster.move(POOL, 2, "kubectl")
    await rig.see(2)
    await rig.seconds(5, ready=2)
    assert events(rig, "ExternallyScaled") == ["Pool main was scaled from 1 to 2 by kubectl."]
    scaling = rig.cluster.statuses[-1][1]["scaling"]
    assert scaling["desired"] == 2
    assert scaling["decision"].endswith("; pool main was scaled from 1 to 2 by kubectl")
    assert condition(rig, "ScalingActive")[0] == "True"
    assert rig.cluster.written == []


async def test_a_decision_on_a_scale_that_another_has_changed_is_made_again_before_anything_is_written(
    rig: Rig,
) -> None:
    await rig.start(ready=1)
    await rig.seconds(1, ready=1)
    rig.cluster.move(POOL, 3, "kubectl")  # no worker shows it yet
    await rig.seconds(3, ready=1, requests=BUSY)
    assert rig.cluster.calls["set_scale"] == 0
    (newest,) = rig.deps.ledger.newest(LedgerQuery(limit=1))
    assert newest.observation.pools[0].desired == 3
    assert len(events(rig, "ExternallyScaled")) == 1


async def test_after_three_conflicts_it_yields_and_says_to_whom(rig: Rig) -> None:
    await in_conflict(rig)
    assert rig.cluster.written == [(POOL, 2), (POOL, 2)]
    assert rig.cluster.scales[POOL].replicas == 4
    words = f"main is scaled by {HPA} too; stop it or set scaling.policy: external"
    assert condition(rig, "ScalingActive") == ("False", "ScalerConflict", f"Pool {words}.")
    scaling = rig.cluster.statuses[-1][1]["scaling"]
    assert (scaling["reason"], scaling["desired"]) == ("scaler_conflict", 4)
    assert len(events(rig, "ScalerConflict")) == 1
    assert words in events(rig, "ScalerConflict")[0]
    rig.cluster.move(POOL, 5, HPA)
    await a_read_later(rig, ready=2)
    assert rig.cluster.scales[POOL].replicas == 5


async def test_it_scales_again_after_ten_minutes_without_an_edit_and_the_next_conflict_ends_that(rig: Rig) -> None:
    await in_conflict(rig)
    rig.clock.advance(WINDOW_S)
    await rig.seconds(1, ready=2)
    assert rig.cluster.scales[POOL].replicas == 2
    assert condition(rig, "ScalingActive")[0] == "True"
    rig.cluster.move(POOL, 4, HPA)
    await a_read_later(rig, ready=2)
    assert rig.cluster.scales[POOL].replicas == 4
    assert condition(rig, "ScalingActive")[1] == "ScalerConflict"


async def test_it_scales_again_at_once_when_the_spec_changes(rig: Rig) -> None:
    await in_conflict(rig)
    changed = manifest(classes=SLO, pools=TWO_AT_MOST)
    changed["metadata"]["generation"] = 7
    rig.autoscaler.on_service(Listed((changed,)))
    await rig.seconds(1, ready=2)
    assert rig.cluster.scales[POOL].replicas == 2


async def taken_over(rig: Rig, generation: int) -> Rig:
    """Another process over the same cluster, after the first one has ended; the status is as that one left it."""
    await rig.autoscaler.close()
    heir = Rig(cluster=rig.cluster, name="b")
    heir.clock.advance(rig.clock.monotonic())
    standing = {**manifest(classes=SLO, pools=TWO_AT_MOST), "status": rig.cluster.statuses[-1][1]}
    standing["metadata"]["generation"] = generation
    heir.autoscaler.on_service(Listed((standing,)))
    await heir.gateways.find()
    await heir.see(2)
    await heir.seconds(2, ready=2)
    return heir


async def test_the_next_process_yields_on_unless_the_spec_has_changed(rig: Rig) -> None:
    await in_conflict(rig)
    generation = condition_row(rig)["observedGeneration"]
    heir = await taken_over(rig, generation)
    assert heir.cluster.scales[POOL].replicas == 4
    assert "is scaled by HorizontalPodAutoscaler web too" in condition(heir, "ScalingActive")[2]
    last = await taken_over(heir, generation + 1)
    assert last.cluster.scales[POOL].replicas == 2
    await last.autoscaler.close()


@pytest.mark.parametrize("policy", ["external", "advise"])
async def test_where_others_are_to_scale_an_edit_is_none(rig: Rig, policy: str) -> None:
    await rig.start(ready=1, scaling={"policy": policy})
    await rig.seconds(1, ready=1)
    for replicas in (2, 1, 2, 1, 2):
        rig.cluster.move(POOL, replicas, HPA)
        await a_read_later(rig, ready=1)
    assert rig.cluster.events == []
    assert rig.cluster.calls["scale_writer"] == 0


async def test_an_edit_during_a_pause_is_named_and_stays(rig: Rig) -> None:
    await rig.start(ready=1)
    paused = manifest(classes=SLO, annotations={"paceline.dev/pause-until": "2030-01-01T00:00:00Z"})
    rig.autoscaler.on_service(Listed((paused,)))
    await rig.seconds(1, ready=1)
    rig.cluster.move(POOL, 2, "kubectl")
    await a_read_later(rig, ready=1)
    assert events(rig, "ExternallyScaled") == ["Pool main was scaled from 1 to 2 by kubectl."]
    assert condition(rig, "ScalingActive")[1] == "Paused"
    assert rig.cluster.written == []


async def test_what_the_operator_sets_is_no_edit(rig: Rig) -> None:
    await rig.start(ready=1)
    await rig.seconds(1, ready=1)
    rig.cluster.move(POOL, 2, "paceline-operator")
    await a_read_later(rig, ready=1)
    assert events(rig, "ExternallyScaled") == []


@pytest.mark.parametrize("fault", [forbidden("get"), Unreachable("no route")])
async def test_a_writer_whose_name_may_not_be_read_is_another_writer(rig: Rig, fault: Exception) -> None:
    await rig.start(ready=1)
    await rig.seconds(1, ready=1)
    rig.cluster.broken["scale_writer"] = fault
    rig.cluster.move(POOL, 2, "kubectl")
    await a_read_later(rig, ready=1)
    assert events(rig, "ExternallyScaled") == ["Pool main was scaled from 1 to 2 by another writer."]


async def test_what_another_autoscaler_wrote_while_it_led_is_no_edit(rig: Rig) -> None:
    await rig.start(ready=1)
    await rig.seconds(1, ready=1)
    rig.cluster.leases[LEASE] = "b"
    await rig.seconds(20, ready=1)
    rig.cluster.move(POOL, 3, "")  # another process, whose name cannot be read
    del rig.cluster.leases[LEASE]
    await rig.seconds(2, ready=1)
    heir = Rig(cluster=rig.cluster, name="c")
    await rig.autoscaler.close()
    rig.cluster.move(POOL, 4, "")
    await heir.start(ready=4)
    await heir.seconds(2, ready=4)
    assert events(rig, "ExternallyScaled") == []
    await heir.autoscaler.close()


async def test_what_was_written_while_the_lease_could_not_be_renewed_is_no_edit(rig: Rig) -> None:
    await rig.start(ready=1)
    await rig.seconds(1, ready=1)
    rig.cluster.broken["lease"] = Unreachable("no route")
    await rig.seconds(20, ready=1)
    rig.cluster.move(POOL, 3, "")
    rig.cluster.broken.clear()
    await a_read_later(rig, ready=1)
    assert next(rig.deps.ledger.newest(LedgerQuery(limit=1))).observation.pools[0].desired == 3
    assert events(rig, "ExternallyScaled") == []


async def test_a_deployment_made_anew_at_another_number_is_no_edit(rig: Rig) -> None:
    await rig.start(ready=1)
    await rig.seconds(1, ready=1)
    del rig.cluster.scales[POOL]
    await a_read_later(rig, ready=1)
    rig.cluster.move(POOL, 3, "")
    await a_read_later(rig, ready=1)
    assert next(rig.deps.ledger.newest(LedgerQuery(limit=1))).observation.pools[0].desired == 3
    assert events(rig, "ExternallyScaled") == []


class LostAnswers(FakeCluster):
    """It does what it is told, and the answer is lost."""

    lost = False

    async def set_scale(self, target: ScaleTarget, replicas: int, version: str) -> Scale:
        scale = await super().set_scale(target, replicas, version)
        if self.lost:
            raise Unreachable("the answer did not arrive")
        return scale


async def test_a_write_whose_answer_was_lost_is_no_edit_by_another() -> None:
    rig = Rig(cluster=LostAnswers())
    assert isinstance(rig.cluster, LostAnswers)
    rig.cluster.lost = True
    rig.cluster.broken["scale_writer"] = forbidden("get")
    await rig.start(ready=1)
    await rig.seconds(6, ready=1, requests=BUSY)
    assert rig.cluster.written
    assert events(rig, "ExternallyScaled") == []
    await rig.autoscaler.close()
