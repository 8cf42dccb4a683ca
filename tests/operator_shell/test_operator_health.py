import httpx

from paceline_core.clock import ManualClock
from paceline_core.kube import Listed, ObjectKey, WatchLost
from paceline_core.kube.client.watch import WatchLiveness
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_core.telemetry import Metrics
from paceline_operator.config import HealthConfig
from paceline_operator.health import HealthInputs, liveness_error, make_app, readiness_error
from paceline_operator.state.child_cache import CHILD_KINDS
from paceline_operator.state.cluster_state import ClusterState
from paceline_operator.state.object_cache import KINDS
from paceline_operator.state.workqueue import Priority, ReconcileKey, WorkQueue

ITEM = ReconcileKey(INFERENCE_SERVICE, ObjectKey("default", "chat"))


def inputs(clock: ManualClock, ended: str = "") -> HealthInputs:
    queue = WorkQueue(clock)
    pulse = WatchLiveness("Deployment", clock)
    return HealthInputs(
        ClusterState(queue, ITEM),
        queue,
        lambda: [pulse],
        HealthConfig(),
        Metrics("operator"),
        clock,
        lambda: ended,
        lambda: True,
    )


def test_a_watch_that_hangs_turns_liveness_red() -> None:
    clock = ManualClock()
    seen = inputs(clock)
    assert liveness_error(seen) == ""
    clock.advance(181.0)
    assert "Deployment" in liveness_error(seen)


def test_a_watch_that_is_refused_is_no_illness_since_a_new_process_would_be_refused_as_well() -> None:
    clock = ManualClock()
    seen = inputs(clock)
    [pulse] = seen.liveness()
    for _ in range(100):
        clock.advance(10.0)
        pulse.refused()
    assert liveness_error(seen) == ""
    assert pulse.age(clock.monotonic()) == 1000.0
    clock.advance(181.0)
    assert "Deployment" in liveness_error(seen)


def test_a_part_that_ended_turns_liveness_red() -> None:
    assert liveness_error(inputs(ManualClock(), "watch Tenant ended")) == "watch Tenant ended"


def test_a_long_queue_is_no_illness_while_all_workers_work() -> None:
    clock = ManualClock()
    seen = inputs(clock)
    seen.queue.put(ITEM, Priority.EDIT)
    clock.advance(100.0)
    assert liveness_error(seen) == ""


def test_it_is_ready_when_everything_was_listed_once() -> None:
    seen = inputs(ManualClock())
    assert "Tenant" in readiness_error(seen)
    for kind in (*KINDS, *CHILD_KINDS):
        seen.state.on_event(kind, Listed(()))
    assert readiness_error(seen) == ""


def test_a_kind_that_may_not_be_listed_is_reported_with_the_right_that_is_missing() -> None:
    seen = inputs(ManualClock())
    for kind in ("ConfigMap", "Service"):
        seen.state.on_event(kind, WatchLost(f'x is forbidden: cannot list resource "{kind}"'))
    assert 'ConfigMap (x is forbidden: cannot list resource "ConfigMap"), Deployment' in readiness_error(seen)
    assert 'Service (x is forbidden: cannot list resource "Service")' in readiness_error(seen)


async def test_the_port_reports_health_and_metrics() -> None:
    transport = httpx.ASGITransport(make_app(inputs(ManualClock(), "watch Tenant ended")))
    async with httpx.AsyncClient(transport=transport, base_url="http://operator") as client:
        sick, metrics = await client.get("/healthz"), await client.get("/metrics")
        assert (sick.status_code, sick.text) == (503, "watch Tenant ended")
        assert "paceline_operator_leader 1" in metrics.text
        assert 'paceline_operator_watch_age_seconds{kind="Deployment"}' in metrics.text
        assert (await client.get("/nothing")).status_code == 404
