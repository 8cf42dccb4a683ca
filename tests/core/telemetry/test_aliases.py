"""Other names for our series: the same numbers, made at the scrape."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from paceline_core.registry import METRICS, Kind
from paceline_core.registry.aliases import ALIASES, CACHE_CONFIG, LABELS, Alias
from paceline_core.telemetry import Aliases, Metrics, exposition

PLACE = ("team", "chat", "abcdefghij", "main")
EVERY = pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: alias.name)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("worker")


def samples(metrics: Metrics, name: str) -> list[Sample]:
    aliases = Aliases(metrics, ALIASES, (CACHE_CONFIG,), dict(zip(LABELS, ("demo", "0"), strict=True)))
    families = text_string_to_metric_families(exposition.page(aliases.families()).decode())
    return [sample for family in families for sample in family.samples if sample.name == name]


def value(metrics: Metrics, name: str, **labels: str) -> float:
    [found] = [s for s in samples(metrics, name) if labels.items() <= s.labels.items()]
    return found.value


@EVERY
def test_an_alias_is_made_from_a_row_of_a_worker_and_from_labels_that_it_has(alias: Alias) -> None:
    row = METRICS[alias.source]
    assert row.owner == "worker"
    assert {*alias.match, *(alias.by or ())[:1]} <= set(row.labels)
    assert re.fullmatch(r"vllm:[a-z0-9_]+", alias.name)
    assert alias.name.endswith("_total") or row.kind is not Kind.COUNTER


def test_no_name_is_given_twice() -> None:
    assert len({alias.name for alias in ALIASES}) == len(ALIASES)


def test_a_counter_is_the_sum_of_its_children(metrics: Metrics) -> None:
    for mode, times in (("recompute", 3), ("swap", 4)):
        metrics.counter("paceline_scheduler_preemptions_total", *PLACE, mode).inc(times)
    [sample] = samples(metrics, "vllm:num_preemptions_total")
    assert (sample.value, sample.labels) == (7, {"model_name": "demo", "engine": "0"})


def test_children_that_do_not_match_are_left_out(metrics: Metrics) -> None:
    metrics.counter("paceline_worker_tokens_total", *PLACE, "input").inc(10)
    metrics.counter("paceline_worker_tokens_total", *PLACE, "output").inc(5)
    assert value(metrics, "vllm:prompt_tokens_total") == 10
    assert value(metrics, "vllm:generation_tokens_total") == 5


def test_a_label_is_kept_under_its_other_name(metrics: Metrics) -> None:
    for finish, times in (("stop", 2), ("length", 3)):
        metrics.counter("paceline_worker_sequences_total", *PLACE, finish).inc(times)
    assert value(metrics, "vllm:request_success_total", finished_reason="stop") == 2
    assert value(metrics, "vllm:request_success_total", finished_reason="length") == 3


def test_usage_is_the_share_of_pages_that_requests_hold(metrics: Metrics) -> None:
    for state, pages in (("free", 50), ("cached", 30), ("active", 20)):
        metrics.gauge("paceline_kv_pages", *PLACE, state).set(pages)
    assert value(metrics, "vllm:kv_cache_usage_perc") == 0.2
    assert value(metrics, "vllm:gpu_cache_usage_perc") == 0.2


def test_an_engine_without_pages_uses_none(metrics: Metrics) -> None:
    metrics.gauge("paceline_kv_pages", *PLACE, "active").set(0)
    assert value(metrics, "vllm:kv_cache_usage_perc") == 0


def test_a_histogram_has_the_buckets_the_count_and_the_sum_of_its_children(metrics: Metrics) -> None:
    for phase, seconds in (("queue", 0.02), ("queue", 0.3), ("decode", 5.0)):
        metrics.histogram("paceline_worker_phase_seconds", *PLACE, phase).observe(seconds)
    assert value(metrics, "vllm:request_queue_time_seconds_count") == 2
    assert value(metrics, "vllm:request_queue_time_seconds_sum") == pytest.approx(0.32)
    assert value(metrics, "vllm:request_queue_time_seconds_bucket", le="0.025") == 1
    assert value(metrics, "vllm:request_queue_time_seconds_bucket", le="+Inf") == 2
    assert value(metrics, "vllm:request_decode_time_seconds_sum") == 5.0


def test_a_source_that_nothing_was_written_to_leaves_no_sample(metrics: Metrics) -> None:
    assert samples(metrics, "vllm:num_requests_running") == []
    assert samples(metrics, "vllm:cache_config_info") == []


def test_an_info_tells_the_sums_of_gauges_as_labels(metrics: Metrics) -> None:
    metrics.gauge("paceline_kv_page_tokens", *PLACE).set(64)
    for state, pages in (("free", 1_000_000), ("cached", 30), ("active", 20)):
        metrics.gauge("paceline_kv_pages", *PLACE, state).set(pages)
    [sample] = samples(metrics, "vllm:cache_config_info")
    assert sample.labels == {"model_name": "demo", "engine": "0", "block_size": "64", "num_gpu_blocks": "1000050"}
    assert sample.value == 1


def test_an_info_waits_for_all_of_its_gauges() -> None:
    metrics = Metrics("worker")
    metrics.gauge("paceline_kv_page_tokens", *PLACE).set(64)
    assert samples(metrics, "vllm:cache_config_info") == []
