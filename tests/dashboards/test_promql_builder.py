"""A query that cannot be answered cannot be written."""

import pytest
from tools.dashboards import promql
from tools.dashboards.panels import here


def test_a_matcher_may_be_equal_unequal_or_a_regex() -> None:
    match = {"pisvc": "chat", "class": "!batch", "outcome": "~ok|shed", "pisvc_namespace": "!~a.*"}
    written = 'pisvc="chat", class!="batch", outcome=~"ok|shed", pisvc_namespace!~"a.*"'
    assert promql.select("paceline_requests_total", match) == f"paceline_requests_total{{{written}}}"


@pytest.mark.parametrize(
    "name", ["paceline_request_total", "paceline_request_ttft_seconds", "paceline_requests_total_bucket", "up"]
)
def test_a_series_that_nobody_writes_is_refused(name: str) -> None:
    with pytest.raises(KeyError, match="neither exported nor recorded"):
        promql.select(name)


def test_a_label_that_the_series_has_not_is_refused() -> None:
    with pytest.raises(KeyError, match="has no label model"):
        promql.select("paceline_requests_total", {"model": "x"})
    with pytest.raises(KeyError, match="has no label pool"):
        promql.rate("paceline_requests_total", ("pool",))


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("paceline_requests_total", {"outcome": "~ok|truncated"}),
        ("paceline_slo_requests_total", {"verdict": "bad"}),
        ("paceline_autoscaler_decisions_total", {"reason": "burn"}),
        ("paceline_autoscaler_limited_total", {"limit": "!gpu"}),
    ],
)
def test_a_value_outside_its_closed_set_is_refused(name: str, match: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is never"):
        promql.select(name, match)


def test_a_reason_of_the_operator_is_not_one_of_the_autoscaler() -> None:
    assert promql.select("paceline_operator_reconcile_errors_total", {"reason": "Forbidden"})


def test_a_board_narrows_a_series_as_far_as_it_has_the_labels() -> None:
    assert here("paceline_queue_requests") == {
        "pisvc_namespace": "~$namespace",
        "pisvc": "~$service",
        "class": "~$class",
    }
    assert here("paceline_kv_pages", {"state": "free"}).keys() == {"pisvc_namespace", "pisvc", "state"}
    assert here("paceline_operator_leader") == {}


def test_a_mean_has_no_value_where_nothing_was_seen() -> None:
    assert promql.mean("paceline_stream_itl_seconds") == (
        "sum(rate(paceline_stream_itl_seconds_sum[$__rate_interval]))"
        " / (sum(rate(paceline_stream_itl_seconds_count[$__rate_interval])) > 0)"
    )
