import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Counter as Peer

from paceline_core.registry import Kind, Metric
from paceline_core.telemetry.instruments import CounterFamily

ROW = Metric("paceline_test_total", Kind.COUNTER, "Help.", "gateway", ("name", "class"))


def samples(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return sorted(line for line in lines if "_created" not in line)


@given(st.lists(st.floats(0, 1e9), max_size=20))
def test_it_exposes_what_prometheus_clients_own_counter_does(amounts: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    child = CounterFamily(ROW, ours).labels("chat", "batch")
    peer = Peer(ROW.name, ROW.help, ROW.labels, registry=theirs).labels("chat", "batch")
    for amount in amounts:
        child.inc(amount)
        peer.inc(amount)
    assert samples(ours) == samples(theirs)


def test_one_is_counted_if_nothing_is_said() -> None:
    child = CounterFamily(ROW, CollectorRegistry()).labels("chat", "batch")
    child.inc()
    assert child.value == 1


def test_a_counter_never_falls() -> None:
    child = CounterFamily(ROW, CollectorRegistry()).labels("chat", "batch")
    with pytest.raises(ValueError, match="only grows"):
        child.inc(-1)
    assert child.value == 0


def test_a_row_without_labels_stands_at_zero_from_the_start() -> None:
    registry = CollectorRegistry()
    CounterFamily(Metric("paceline_test_total", Kind.COUNTER, "Help.", "gateway", ()), registry)
    assert "paceline_test_total 0.0" in samples(registry)


def test_too_few_labels_are_refused_and_a_gone_name_is_told_no_more() -> None:
    registry = CollectorRegistry()
    family = CounterFamily(ROW, registry)
    with pytest.raises(ValueError, match="name, class"):
        family.labels("chat")
    family.labels("gone", "batch").inc()
    family.labels("stays", "batch").inc()
    family.remove_by_labels({"name": "gone"})
    assert [labels["name"] for labels, _ in family.children()] == ["stays"]
