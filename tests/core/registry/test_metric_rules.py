"""The rules that every exported name keeps, so that boards and alerts can rely on them."""

import re

from tests.every import every

from paceline_core.registry import METRICS, Kind, Metric
from paceline_core.registry.metrics import SERVICE

ROWS = every(METRICS.values(), lambda row: row.name)


@ROWS
def test_a_name_says_project_and_unit(row: Metric) -> None:
    assert re.fullmatch(r"paceline_[a-z0-9_]+", row.name)
    assert row.name.endswith("_total") == (row.kind is Kind.COUNTER)


@ROWS
def test_only_histograms_have_buckets_and_they_ascend(row: Metric) -> None:
    assert bool(row.buckets) == (row.kind is Kind.HISTOGRAM)
    assert list(row.buckets) == sorted(set(row.buckets))


@ROWS
def test_no_label_takes_a_name_that_prometheus_sets_itself(row: Metric) -> None:
    assert not {"namespace", "service", "pod", "job", "instance", "le"} & set(row.labels)


@ROWS
def test_a_tenant_never_labels_a_histogram(row: Metric) -> None:
    assert row.kind is not Kind.HISTOGRAM or "tenant" not in row.labels


@ROWS
def test_service_labels_come_as_a_pair_and_first(row: Metric) -> None:
    if set(SERVICE) & set(row.labels):
        assert row.labels[:2] == SERVICE


@ROWS
def test_help_is_a_sentence(row: Metric) -> None:
    assert row.help.endswith(".")
