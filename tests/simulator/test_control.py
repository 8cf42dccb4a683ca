"""Signals reach a policy as scrapes and streams bring them; unknown policies are refused with the fix."""

import pytest
from tests.simulator.engines import service

from paceline_autoscaler.model.observation import scaling_spec
from paceline_autoscaler.signals.live import DemandMeter
from paceline_core.errors import InvalidInput
from paceline_core.registry.enums import QueryResult, RequestClass, Verdict
from paceline_simulator.control import (
    MetricsSpec,
    ProductionPolicy,
    ScrapedVerdicts,
    SimulatedScaler,
    StaticPolicy,
    policy_of,
)

GOOD, BAD = [("ttft_p95", Verdict.GOOD), ("availability", Verdict.GOOD)], [("ttft_p95", Verdict.BAD_TTFT)]


def test_attainment_is_the_rise_of_the_counters_within_the_window_and_lags() -> None:
    metrics = ScrapedVerdicts(MetricsSpec(scrape_s=15.0, lag_s=2.0))
    for number in range(9):
        metrics.count(RequestClass.INTERACTIVE, BAD if number < 4 else GOOD)
        metrics.scrape(15.0 * number)
        if number < 2:
            assert metrics.attainment(15.0 * number + 1.0) is None
    found = metrics.attainment(123.0)
    assert found is not None
    (row,) = found.verdicts
    assert (row.slo, row.good, row.bad) == ("ttft_p95", 4.0, 0.0)
    late = metrics.attainment(121.0)
    assert late is not None
    assert (late.verdicts[0].good, late.verdicts[0].bad) == (4.0, 0.0)
    early = metrics.attainment(77.0)
    assert early is not None
    assert (early.verdicts[0].good, early.verdicts[0].bad) == (2.0, 2.0)


def test_a_gap_in_the_scrapes_makes_attainment_stale_and_never_zero() -> None:
    metrics = ScrapedVerdicts(MetricsSpec(scrape_s=15.0, gaps=((40.0, 200.0),)))
    for number in range(20):
        metrics.count(RequestClass.INTERACTIVE, GOOD)
        metrics.scrape(15.0 * number)
    results = [metrics.attainment(at) for at in (60.0, 120.0, 240.0)]
    assert [found.result for found in results if found] == [QueryResult.VALUE, QueryResult.STALE, QueryResult.VALUE]


def test_policies_have_names_and_a_wrong_one_is_refused_with_the_fix() -> None:
    assert policy_of("static:4") == StaticPolicy(4)
    assert isinstance(policy_of("slo"), ProductionPolicy)
    for text in ("static", "static:-1", "static:four", "hpa"):
        with pytest.raises(InvalidInput, match=r"^policy: is .*; use slo, or static:N"):
            policy_of(text)


def test_a_policy_sees_what_the_service_orders_and_decides_by_pool() -> None:
    for policy in (StaticPolicy(3), ProductionPolicy()):
        spec = scaling_spec(service())
        scaler = SimulatedScaler(spec, policy, ScrapedVerdicts(MetricsSpec()), DemandMeter(), 1)
        observation, counts = scaler.replicas(1.8e9, 0.0, {"main": 2}, ())
        assert (observation.goal, observation.pools[0].desired) == (spec, 2)
        assert counts == {"main": 3 if isinstance(policy, StaticPolicy) else 2}
