"""What holds for every baseline: pure, never negative, and with a state that can be kept."""

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autoscaler.factories import INTERACTIVE, load, view
from tests.simulator.rivals import seen, with_rate

from paceline_autoscaler.policies.constant import Constant
from paceline_autoscaler.policies.replica_policy import Baseline
from paceline_autoscaler.types import Demand, MeasuredLatency, Observation, WorkerLoad
from paceline_simulator import policies
from paceline_simulator.baselines.aibrix import Aibrix

BASELINES: dict[str, Baseline[Any]] = {
    **policies.BASELINES,
    "aibrix-kpa": Aibrix("KPA", intended=True),
    "constant": Constant(3),
}


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """One pool in any state: starting, draining and silent replicas, any load, gateways heard or not."""
    ready, starting, draining = (draw(st.integers(0, 4)) for _ in range(3))
    reporting = draw(st.integers(0, ready))
    loads: tuple[WorkerLoad, ...] = tuple(
        load(
            f"ready-{index}",
            running=draw(st.integers(0, 256)),
            waiting=draw(st.integers(0, 50)),
            queued_tokens=draw(st.integers(0, 100_000)),
            kv_used=draw(st.floats(0, 1)),
        )
        for index in range(reporting)
    )
    pool = view(ready, starting, draining, loads=loads)
    watched = seen(pool, 0.0, draw(st.integers(0, 500)), draw(st.integers(0, 500)))
    latencies = (MeasuredLatency(INTERACTIVE, "ttft", 0.95, draw(st.floats(0, 60))),)
    watched = replace(with_rate(watched, draw(st.floats(0, 100)), 1000, 100), latencies=latencies)
    return watched if draw(st.booleans()) else replace(watched, demand=Demand(1, 0))


@settings(max_examples=15)
@given(st.lists(observations(), min_size=1, max_size=6))
def test_the_same_observations_give_the_same_counts_and_none_is_negative(series: list[Observation]) -> None:
    wrong = []
    for name, baseline in BASELINES.items():
        runs = []
        for _ in range(2):
            state, counts = baseline.initial_state(), []
            for step, observation in enumerate(series):
                moved = replace(observation, now=observation.now + step * baseline.period_s)
                wanted, state = baseline.decide(moved, state)
                counts.append(wanted)
            runs.append((counts, state))
        if runs[0] != runs[1] or any(wanted.keys() != {"main"} or wanted["main"] < 0 for wanted in runs[0][0]):
            wrong.append((name, runs))
    assert wrong == []


def test_parameters_and_state_are_frozen() -> None:
    kept: Any
    for baseline in BASELINES.values():
        for kept in (baseline, baseline.initial_state()):
            for field in fields(kept):
                with pytest.raises(FrozenInstanceError):
                    setattr(kept, field.name, None)


def test_every_baseline_names_its_period_and_the_age_of_its_metrics() -> None:
    wrong = [name for name, baseline in BASELINES.items() if not (baseline.period_s > 0 <= baseline.lag_s)]
    assert wrong == []
