from dataclasses import replace

from paceline_core.launch import Probe, Resources, WorkerLaunch
from paceline_local.worker_process import Health

LAUNCH = WorkerLaunch(
    service="default/chat",
    pool="main",
    track="stable",
    revision="abc",
    argv=(),
    env={},
    files=(),
    port=1,
    metrics_port=2,
    startup=Probe("/readyz", period_s=2, timeout_s=1, failures=15),
    liveness=Probe("/healthz", period_s=5, timeout_s=1, failures=6),
    readiness=Probe("/readyz", period_s=1, timeout_s=1, failures=3),
    resources=Resources(1.0, 1),
    grace_s=1.0,
    emulated=False,
)


def started(now: float = 10.0) -> Health:
    return Health(born=0.0).after(LAUNCH, now, alive=True, ready=True)


def test_a_worker_is_ready_with_its_first_good_answer() -> None:
    assert not Health(born=0.0).ready
    assert started().ready


def test_a_worker_that_never_gets_ready_is_restarted_after_the_startup_limit() -> None:
    health = Health(born=100.0).after(LAUNCH, 110.0, alive=True, ready=False)
    assert health.complaint(LAUNCH, 129.9) is None
    assert "not ready 30 s after its start" in str(health.complaint(LAUNCH, 130.0))


def test_liveness_does_not_hurry_a_cold_start() -> None:
    slow = replace(LAUNCH, startup=Probe("/readyz", period_s=2, timeout_s=1, failures=300))
    health = Health(born=0.0).after(slow, 500.0, alive=False, ready=False)
    assert health.complaint(slow, 500.0) is None


def test_one_missed_readiness_probe_is_forgiven_and_three_seconds_of_them_are_not() -> None:
    missed = started(10.0).after(LAUNCH, 11.0, alive=True, ready=False)
    assert missed.ready
    assert not missed.after(LAUNCH, 13.0, alive=True, ready=False).ready


def test_a_worker_comes_back_with_one_good_answer() -> None:
    away = started(10.0).after(LAUNCH, 20.0, alive=True, ready=False)
    assert not away.ready
    assert away.after(LAUNCH, 21.0, alive=True, ready=True).ready


def test_a_worker_without_a_heartbeat_is_restarted() -> None:
    health = started(10.0).after(LAUNCH, 30.0, alive=False, ready=False)
    assert health.complaint(LAUNCH, 39.9) is None
    assert "has not shown life for 30 s" in str(health.complaint(LAUNCH, 40.0))


def test_a_worker_that_is_busy_but_alive_is_never_restarted() -> None:
    health = started(10.0)
    for now in range(11, 1000):
        health = health.after(LAUNCH, float(now), alive=True, ready=False)
        assert health.complaint(LAUNCH, float(now)) is None
