import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Histogram as Peer

from paceline_core.registry import Kind, Metric
from paceline_core.telemetry.histogram import HistogramFamily

BOUNDS = (0.01, 0.1, 1.0, 10.0)
ROW = Metric("paceline_test_seconds", Kind.HISTOGRAM, "Help.", "gateway", ("name", "class"), BOUNDS)
VALUES = st.floats(min_value=0, max_value=100) | st.sampled_from(BOUNDS)


def samples(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return sorted(line for line in lines if line and not line.startswith("#") and "_created" not in line)


@given(st.lists(VALUES, max_size=50))
def test_it_exposes_what_prometheus_clients_own_histogram_does(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    child = HistogramFamily(ROW, ours).labels("chat", "batch")
    peer = Peer(ROW.name, ROW.help, ROW.labels, buckets=BOUNDS, registry=theirs).labels("chat", "batch")
    for value in values:
        child.observe(value)
        peer.observe(value)
    assert samples(ours) == samples(theirs)


def test_a_child_is_found_again_by_its_labels() -> None:
    family = HistogramFamily(ROW, CollectorRegistry())
    assert family.labels("chat", "batch") is family.labels("chat", "batch")
    assert family.labels("chat", "batch") is not family.labels("chat", "offline")


def test_too_few_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="name, class"):
        HistogramFamily(ROW, CollectorRegistry()).labels("chat")


def test_removal_takes_every_child_with_the_given_labels() -> None:
    registry = CollectorRegistry()
    family = HistogramFamily(ROW, registry)
    for name in ("gone", "stays"):
        for cls in ("batch", "offline"):
            family.labels(name, cls).observe(1)
    family.remove_by_labels({"name": "gone"})
    text = generate_latest(registry).decode()
    assert 'name="gone"' not in text
    assert 'name="stays"' in text
