"""What demand may be at the end of the horizon, over the paths of the knowledge."""

import pytest
from tests.autoscaler.factories import NOW, observation

from paceline_autoscaler import policies
from paceline_autoscaler.model.forecast import demand_forecast
from paceline_autoscaler.state import DemandPath, Knowledge, State
from paceline_autoscaler.types import DemandForecast

PATHS = tuple(DemandPath(NOW - 5.0, 10.0, (1.0, float(rate))) for rate in range(10, 0, -1))


def test_it_is_the_median_and_the_ninetieth_percentile_of_the_paths() -> None:
    assert demand_forecast(PATHS, NOW, 5.0) == DemandForecast(5.0, 5.0, 9.0)
    assert demand_forecast(PATHS, NOW, 4.9) == DemandForecast(4.9, 1.0, 1.0)


@pytest.mark.parametrize("after_s", [-5.1, 15.0])
def test_a_path_says_nothing_about_times_that_it_does_not_reach(after_s: float) -> None:
    assert demand_forecast(PATHS, NOW, after_s) is None
    longer = DemandPath(NOW - 10.0, 10.0, (0.5, 0.5, 7.0))
    assert demand_forecast((*PATHS, longer), NOW, after_s) == DemandForecast(
        after_s, *[0.5 if after_s < 0 else 7.0] * 2
    )


def test_a_decision_has_the_forecast_of_its_horizon_and_none_without_paths() -> None:
    paths = tuple(DemandPath(NOW, 60.0, (rate,)) for rate in (1.0, 3.0))
    decision, _ = policies.decide(observation(), State(), Knowledge(paths=paths))
    assert decision.reading.forecast == DemandForecast(55.0, 1.0, 3.0)
    assert decision.reading.forecast.sentence == "demand in 55 s: p50 1.00, p90 3.00 replica-s/s"
    assert policies.decide(observation(), State(), Knowledge())[0].reading.forecast is None
