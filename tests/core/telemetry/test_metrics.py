import pytest

from paceline_core.registry import METRICS, Kind
from paceline_core.telemetry import Metrics

OWNERS = sorted({row.owner for row in METRICS.values()})


@pytest.mark.parametrize("owner", OWNERS)
def test_every_row_of_an_owner_can_be_written_and_scraped(owner: str) -> None:
    metrics = Metrics(owner)
    for row in (row for row in METRICS.values() if row.owner == owner):
        labels = tuple(f"{name}-value" for name in row.labels)
        if row.kind is Kind.COUNTER:
            metrics.counter(row.name, *labels).inc()
        elif row.kind is Kind.GAUGE:
            metrics.gauge(row.name, *labels).set(1)
        else:
            metrics.histogram(row.name, *labels).observe(0.1)
    body = metrics.exposition("")[0].decode()
    assert all(f"# TYPE {row.name} {row.kind}" in body for row in METRICS.values() if row.owner == owner)


def test_a_wrong_kind_is_refused_where_it_is_asked_for() -> None:
    with pytest.raises(TypeError, match="counter"):
        Metrics("gateway").gauge("paceline_requests_total", "n", "s", "interactive", "ok")


def test_forgetting_an_object_drops_its_series_and_no_other() -> None:
    metrics = Metrics("gateway")
    for service in ("gone", "stays"):
        metrics.gauge("paceline_held_requests", "default", service).set(1)
    metrics.forget("paceline_held_requests", "default", "gone")
    body = metrics.exposition("")[0].decode()
    assert 'pisvc="stays"' in body
    assert 'pisvc="gone"' not in body


def test_openmetrics_is_given_to_who_asks_for_it() -> None:
    body, content_type = Metrics("gateway").exposition("application/openmetrics-text; version=1.0.0")
    assert "openmetrics" in content_type
    assert body.endswith(b"# EOF\n")
