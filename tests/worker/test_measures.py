"""Metrics from heartbeats: gauges as said, counters by difference, one observation a step."""

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.worker.harness import Launcher, settings
from tests.worker.scraped import samples

from paceline_core.clock import ManualClock
from paceline_core.registry import METRICS, Outcome, RequestClass
from paceline_core.wire import StepTime
from paceline_workers.messages import Heartbeat, Started, StepStats
from paceline_workers.server.engine.client import EngineClient
from paceline_workers.server.telemetry.metrics import WorkerMetrics, lateness, predicted, step_time

LABELS = {"pisvc_namespace": "team", "pisvc": "chat", "revision": "abcdefghij", "pool": "main"}
STEP = StepStats(seconds=0.1, prefill_tokens=8, decode_tokens=2, sequences=3, kv_tokens=40, lateness=0.02, window=0.003)


def beat(steps: int, *recent: StepStats) -> Heartbeat:
    return Heartbeat(
        steps=steps,
        running=2,
        waiting={RequestClass.BATCH: 3},
        queued_tokens={RequestClass.BATCH: 70},
        oldest_wait=1.5,
        pages_free=50,
        pages_cached=4,
        preemptions=steps // 2,
        evicted_pages=0,
        lookup_tokens=10 * steps,
        hit_tokens=5 * steps,
        step_time=[0.01, 0.001, 0.0, 0.0, 0.0, 7.0],
        recent=list(recent),
        evicted_idle_s=1.5 * steps,
        host_pages=6,
        pages_out=2 * steps,
        pages_in=steps,
        restored_tokens=16 * steps,
        recomputed_tokens=3 * steps,
        disk_pages=3,
        disk_pages_out=4 * steps,
        disk_pages_in=3 * steps,
        slack_tokens=24,
        loading=5,
        debt_pages=7,
        shed_by={"queue_full": steps, "deadline": 2 * steps},
    )


def started(*, emulated: bool = False) -> Started:
    return Started(64, 16, 1024, 512, 8, [], emulated, {"weights": 2.5})


class Scrape:
    """A worker's measures and what Prometheus would read."""

    def __init__(self) -> None:
        self.measures = WorkerMetrics(settings())
        self.engine = EngineClient(Launcher(), ManualClock(), watchdog_s=1.0)

    def value(self, name: str, **labels: str) -> float | None:
        body, _ = self.measures.exposition(self.engine)
        wanted = LABELS | labels
        return next((sample.value for sample in samples(body, name) if sample.labels == wanted), None)


@pytest.fixture
def scrape() -> Scrape:
    return Scrape()


def test_a_start_tells_memory_and_stages(scrape: Scrape) -> None:
    scrape.measures.on_engine(started())
    assert scrape.value("paceline_kv_capacity_bytes") == 64 * 1024
    assert scrape.value("paceline_cold_start_seconds", stage="weights") == 2.5
    assert scrape.value("paceline_emulated") == 0


def test_gauges_hold_the_last_heartbeat(scrape: Scrape) -> None:
    scrape.measures.on_engine(started())
    scrape.measures.on_engine(beat(4))
    assert scrape.value("paceline_scheduler_running_requests") == 2
    assert scrape.value("paceline_scheduler_oldest_wait_seconds") == 1.5
    assert scrape.value("paceline_scheduler_waiting_requests", **{"class": "batch"}) == 3
    assert scrape.value("paceline_scheduler_waiting_requests", **{"class": "interactive"}) == 0
    assert scrape.value("paceline_scheduler_waiting_uncached_tokens", **{"class": "batch"}) == 70
    assert [scrape.value("paceline_kv_pages", state=state) for state in ("free", "cached", "active")] == [50, 4, 10]
    assert scrape.value("paceline_step_time_coefficient", term="prefill") == 0.001


def test_counters_go_on_over_a_restart_of_the_engine(scrape: Scrape) -> None:
    for event in (started(), beat(4), beat(10), started(), beat(3)):
        scrape.measures.on_engine(event)
    assert scrape.value("paceline_scheduler_steps_total") == 13
    assert scrape.value("paceline_prefix_lookup_tokens_total") == 130
    assert scrape.value("paceline_prefix_hit_tokens_total") == 65
    assert scrape.value("paceline_scheduler_preemptions_total", mode="recompute") == 6


def test_what_goes_to_host_memory_and_comes_back_is_counted_in_bytes(scrape: Scrape) -> None:
    for event in (started(), beat(4), beat(10)):
        scrape.measures.on_engine(event)
    assert scrape.value("paceline_kv_host_bytes") == 6 * 1024
    assert scrape.value("paceline_kv_swap_bytes_total", tier="host", direction="out") == 20 * 1024
    assert scrape.value("paceline_kv_swap_bytes_total", tier="host", direction="in") == 10 * 1024
    assert scrape.value("paceline_kv_restored_tokens_total") == 160
    assert scrape.value("paceline_kv_evicted_idle_seconds_total") == 15.0


def test_the_disk_tier_and_what_pages_hold_in_vain_are_told_in_bytes(scrape: Scrape) -> None:
    for event in (started(), beat(4), beat(10)):
        scrape.measures.on_engine(event)
    assert scrape.value("paceline_kv_disk_bytes") == 3 * 1024
    assert scrape.value("paceline_kv_swap_bytes_total", tier="disk", direction="out") == 40 * 1024
    assert scrape.value("paceline_kv_swap_bytes_total", tier="disk", direction="in") == 30 * 1024
    assert scrape.value("paceline_kv_fragmentation_bytes") == 24 / 16 * 1024
    assert scrape.value("paceline_kv_overcommit_bytes") == 7 * 1024
    assert scrape.value("paceline_kv_page_tokens") == 16
    assert scrape.value("paceline_kv_loading_requests") == 5


def test_what_preemptions_lost_and_what_was_shed_is_counted(scrape: Scrape) -> None:
    for event in (started(), beat(4), beat(10)):
        scrape.measures.on_engine(event)
    assert scrape.value("paceline_scheduler_recomputed_tokens_total") == 30
    assert scrape.value("paceline_scheduler_shed_requests_total", reason="queue_full") == 10
    assert scrape.value("paceline_scheduler_shed_requests_total", reason="deadline") == 20
    assert scrape.value("paceline_scheduler_shed_requests_total", reason="backlog") == 0


def test_each_step_is_observed_once(scrape: Scrape) -> None:
    scrape.measures.on_engine(started())
    scrape.measures.on_engine(beat(2, STEP, STEP))
    scrape.measures.on_engine(beat(2))
    assert scrape.value("paceline_scheduler_step_seconds_count") == 2
    assert scrape.value("paceline_scheduler_batch_requests_sum") == 6
    assert scrape.value("paceline_scheduler_batch_tokens_sum", kind="prefill") == 16
    assert scrape.value("paceline_scheduler_batch_tokens_sum", kind="decode") == 4
    assert scrape.value("paceline_scheduler_batch_window_seconds_sum") == pytest.approx(0.006)
    assert scrape.value("paceline_scheduler_step_tokens_sum") == 20
    assert scrape.value("paceline_step_time_residual_ratio_count") == 2
    assert scrape.value("paceline_step_time_predicted_seconds_total") == pytest.approx(2 * (0.01 + 8 * 0.001))


def test_lateness_is_measured_on_emulated_steps_alone(scrape: Scrape) -> None:
    on_time = StepStats(0.1, 8, 2, 3, 40)
    scrape.measures.on_engine(started())
    scrape.measures.on_engine(beat(1, STEP))
    assert scrape.value("paceline_emulated_step_lateness_ratio_count") is None
    scrape.measures.on_engine(started(emulated=True))
    scrape.measures.on_engine(beat(2, STEP, on_time))
    assert scrape.value("paceline_emulated_step_lateness_ratio_count") == 2
    assert scrape.value("paceline_emulated_step_lateness_ratio_sum") == pytest.approx(0.25)
    assert scrape.value("paceline_emulated") == 1


def test_outcomes_are_counted(scrape: Scrape) -> None:
    for outcome in (Outcome.OK, Outcome.OK, Outcome.CANCELLED):
        scrape.measures.ended(outcome)
    assert scrape.value("paceline_worker_requests_total", outcome="ok") == 2
    assert scrape.value("paceline_worker_requests_total", outcome="cancelled") == 1


def test_restarts_are_counted_once(scrape: Scrape) -> None:
    assert scrape.value("paceline_engine_restarts_total") == 0
    scrape.engine.restarts = 2
    assert scrape.value("paceline_engine_restarts_total") == 2
    assert scrape.value("paceline_engine_restarts_total") == 2


def test_every_row_of_the_registry_has_a_writer(scrape: Scrape) -> None:
    scrape.measures.on_engine(started(emulated=True))
    scrape.measures.on_engine(beat(2, STEP))
    scrape.measures.ended(Outcome.OK)
    body, _ = scrape.measures.exposition(scrape.engine)
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    rows = [name.removesuffix("_total") for name, row in METRICS.items() if row.owner == "worker"]
    assert [name for name in rows if not families[name].samples] == []


def test_a_predicted_step_and_lateness_by_hand() -> None:
    model = StepTime(base=0.01, prefill=0.001, sequence=0.02)
    assert predicted(STEP, model) == pytest.approx(0.01 + 0.008 + 0.04)
    assert lateness(STEP) == pytest.approx(0.02 / 0.08)


def test_an_engine_without_a_fit_has_a_zero_model() -> None:
    assert step_time([]) == StepTime(base=0.0, prefill=0.0)
