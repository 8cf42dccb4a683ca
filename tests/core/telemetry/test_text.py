"""The quick text form against prometheus-client's own, by prometheus-client's own parser."""

from collections.abc import Callable, Iterable

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_open
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from paceline_core.registry import METRICS, Kind
from paceline_core.telemetry import Exemplar, Histogram, Metrics, exposition

WORKER = [row for row in METRICS.values() if row.owner == "worker"]
NASTY = st.text(st.characters(blacklist_categories=["Cs"]), max_size=8) | st.sampled_from(['a"b', "a\\b", "a\nb", ""])
VALUES = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


def told(
    page: str, parse: Callable[[str], Iterable[Metric]] = text_string_to_metric_families
) -> set[tuple[str, frozenset[tuple[str, str]], float]]:
    """Samples, without the times at which counters were made."""
    return {
        (sample.name, frozenset(sample.labels.items()), sample.value)
        for family in parse(page)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def kinds(page: str) -> set[str]:
    return {line for line in page.splitlines() if line.startswith("# TYPE") and "_created" not in line}


@given(st.data())
def test_it_tells_what_prometheus_clients_own_form_does(data: st.DataObject) -> None:
    metrics = Metrics("worker")
    for row in data.draw(st.lists(st.sampled_from(WORKER), max_size=6, unique_by=lambda row: row.name)):
        labels = [data.draw(NASTY) for _ in row.labels]
        value = data.draw(VALUES)
        if row.kind is Kind.HISTOGRAM:
            metrics.histogram(row.name, *labels).observe(value)
        elif row.kind is Kind.COUNTER:
            metrics.counter(row.name, *labels).inc(value)
        else:
            metrics.gauge(row.name, *labels).set(value)
    ours, theirs = exposition.page(metrics.families()).decode(), generate_latest(metrics.registry).decode()
    assert told(ours) == told(theirs)
    assert kinds(ours) == kinds(theirs)
    ours, theirs = exposition.open_page(metrics.families()).decode(), generate_open(metrics.registry).decode()  # type: ignore[no-untyped-call]
    assert told(ours, open_families) == told(theirs, open_families)
    assert kinds(ours) == kinds(theirs)


def test_a_histogram_without_labels_has_its_edges_alone() -> None:
    child = Histogram((0.5, 1.0))
    child.observe(0.7)
    page = exposition.page([exposition.Family("a_seconds", Kind.HISTOGRAM, "Help.", [({}, child)])]).decode()
    assert page == (
        "# HELP a_seconds Help.\n# TYPE a_seconds histogram\n"
        'a_seconds_bucket{le="0.5"} 0\na_seconds_bucket{le="1.0"} 1\na_seconds_bucket{le="+Inf"} 1\n'
        "a_seconds_count 1\na_seconds_sum 0.7\n"
    )


def test_an_exemplar_stands_behind_its_bucket_for_who_asks_for_openmetrics() -> None:
    child = Histogram((0.5, 1.0))
    child.observe_traced(Exemplar(0xABC, 0.6, 1700000000.0))
    child.observe_traced(Exemplar(0xDEF, 0.7, 1700000001.5))
    families = [exposition.Family("a_seconds", Kind.HISTOGRAM, "Help.", [({}, child)])]
    assert b"trace_id" not in exposition.page(families)
    (family,) = open_families(exposition.open_page(families).decode())  # type: ignore[no-untyped-call]
    found = {sample.labels["le"]: sample.exemplar for sample in family.samples if sample.exemplar is not None}
    assert {edge: (e.labels, e.value, float(e.timestamp)) for edge, e in found.items()} == {
        "1.0": ({"trace_id": f"{0xDEF:032x}"}, 0.7, 1700000001.5)
    }
