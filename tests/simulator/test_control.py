"""Signals reach a policy as scrapes and streams bring them; unknown policies are refused with the fix."""

from tests.simulator.engines import service
from tests.simulator.records import ended

from paceline_autoscaler.model.observation import scaling_spec
from paceline_autoscaler.signals.live import DemandMeter
from paceline_autoscaler.types import SloTarget
from paceline_core.registry.enums import Outcome, QueryResult, RequestClass, Verdict
from paceline_simulator.control import MetricsSpec, ScrapedMetrics, SimulatedScaler
from paceline_simulator.policies import policy_of

GOOD, BAD = [("ttft_p95", Verdict.GOOD), ("availability", Verdict.GOOD)], [("ttft_p95", Verdict.BAD_TTFT)]
INTERACTIVE = RequestClass.INTERACTIVE


def test_attainment_is_the_rise_of_the_counters_within_the_window_and_lags() -> None:
    metrics = ScrapedMetrics(MetricsSpec(scrape_s=15.0, lag_s=2.0))
    for number in range(9):
        metrics.count(INTERACTIVE, BAD if number < 4 else GOOD, ended())
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
    metrics = ScrapedMetrics(MetricsSpec(scrape_s=15.0, gaps=((40.0, 200.0),)))
    for number in range(20):
        metrics.count(INTERACTIVE, GOOD, ended())
        metrics.scrape(15.0 * number)
    results = [metrics.attainment(at) for at in (60.0, 120.0, 240.0)]
    assert [found.result for found in results if found] == [QueryResult.VALUE, QueryResult.STALE, QueryResult.VALUE]


def test_latencies_are_quantiles_of_the_answers_that_ended_within_the_window() -> None:
    targets = (SloTarget(INTERACTIVE, "ttft", 0.9, 1.0), SloTarget(INTERACTIVE, "tpot", 0.5, 0.1))
    metrics = ScrapedMetrics(MetricsSpec(lag_s=15.0), targets)
    for number in range(100):
        metrics.count(INTERACTIVE, GOOD, ended(at=float(number), ttft=0.1 * (number + 1)))
    metrics.count(INTERACTIVE, GOOD, ended(at=90.0, ttft=99.0, outcome=Outcome.STREAM_ERROR))
    metrics.count(RequestClass.BATCH, GOOD, ended(at=90.0, ttft=99.0))
    metrics.scrape(99.5)  # from 39.5 s on: 4.1 s to 10 s
    assert metrics.latencies(114.0) == ()
    found = {one.metric: (one.quantile, round(one.seconds, 3)) for one in metrics.latencies(115.0)}
    assert found == {"ttft": (0.9, 9.4), "tpot": (0.5, 0.1)}


def test_a_policy_sees_signals_of_some_time_ago_and_the_replicas_of_now() -> None:
    spec = scaling_spec(service())
    scaler = SimulatedScaler(spec, policy_of("keda"), ScrapedMetrics(MetricsSpec()), DemandMeter(), 1)
    scaler.metrics.scrape(0.0)
    signals = scaler.signals(1.8e9, 5.0)
    observation = scaler.observe(1.8e9 + 15.0, signals, {"main": 2}, ())
    assert (observation.goal, observation.pools[0].desired) == (spec, 2)
    assert (observation.demand_age_s, observation.attainment_age_s) == (15.0, 20.0)
