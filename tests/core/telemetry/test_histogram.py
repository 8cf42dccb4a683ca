from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Histogram as Peer

from paceline_core.registry import Kind, Metric
from paceline_core.registry.metrics import LATENCY, TOKEN_TIME
from paceline_core.telemetry.instruments import HistogramFamily, around

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


TARGETS = st.lists(st.floats(0.002, 100.0), max_size=12, unique=True).map(lambda found: tuple(sorted(found)))


@given(st.sampled_from([LATENCY, TOKEN_TIME]), TARGETS)
def test_a_ladder_keeps_its_edges_and_has_each_target_among_them(
    ladder: tuple[float, ...], targets: tuple[float, ...]
) -> None:
    edges = around(ladder, targets)
    assert {*ladder, *targets} <= {*edges}
    assert list(edges) == sorted(set(edges))
    assert len(edges) <= len(ladder) + 9 * len(targets)


@given(st.sampled_from([LATENCY, TOKEN_TIME]), TARGETS.filter(bool), st.floats(0.86, 1.16))
def test_near_a_target_a_quantile_is_known_to_five_percent(
    ladder: tuple[float, ...], targets: tuple[float, ...], share: float
) -> None:
    """Whatever is interpolated lies in the value's own bucket."""
    value, edges = targets[0] * share, around(ladder, targets)
    above = bisect_left(edges, value)
    assert edges[above] / edges[above - 1] <= 1.05


def test_new_targets_begin_a_new_child_and_the_same_ones_go_on() -> None:
    family = HistogramFamily(ROW, CollectorRegistry())
    first = family.fine(("chat", "batch"), [0.5])
    first.observe_many(0.5, 3)
    assert family.labels("chat", "batch") is family.fine(("chat", "batch"), (0.5, 0.5)) is first
    assert first.counts[first.bounds.index(0.5)] == 3
    assert first.total == 1.5
    again = family.fine(("chat", "batch"), [0.7])
    assert again is family.labels("chat", "batch")
    assert (sum(again.counts), 0.7 in again.bounds, 0.5 in again.bounds) == (0, True, False)
