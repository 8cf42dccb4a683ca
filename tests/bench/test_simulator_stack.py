"""The comparisons with real processes: what is read from a bench report and from samples, and the simulated side."""

from typing import Any

import pytest
from benchmarks.simulator.calibration import LoggedRequest
from benchmarks.simulator.emulated import ENGINE, compared, engine
from benchmarks.simulator.overhttp import Observed, added
from benchmarks.simulator.stack import facts, rises, service, simulated, started_within

from paceline_planner.step_clock import RooflineClock
from paceline_planner.steptime import StepWork
from paceline_workers.config import EngineConfig

SPEC = engine(EngineConfig.model_validate(ENGINE))


def sample(at: float, desired: int, ready: int, starting: int = 0, draining: int = 0) -> dict[str, Any]:
    return {"at": at, "desired": desired, "ready": ready, "starting": starting, "draining": draining}


SAMPLES = [
    sample(0.0, 1, 1),
    sample(10.0, 3, 1, starting=2),
    sample(30.0, 3, 2, starting=1),
    sample(35.0, 3, 3),
    sample(90.0, 1, 1, draining=2),
    sample(95.0, 1, 1),
]


def test_replica_time_counts_starting_and_draining_workers_to_the_end_of_the_load() -> None:
    report = {"observation": {"replicas": SAMPLES}, "overall": {"duration": 100.0, "goodput_ratio": 0.97}}
    assert facts(report) == {"replica_s": 10 + 85 * 3 + 5, "starts": 2, "attainment": 0.97}


def test_a_start_ends_when_all_replicas_that_were_ordered_are_ready() -> None:
    assert started_within(SAMPLES) == 25.0
    with pytest.raises(ValueError, match="started no replica"):
        started_within(SAMPLES[:1])


def test_only_orders_of_more_replicas_count_as_starts() -> None:
    assert rises([1, 3, 2, 2, 4]) == 4


def test_the_stack_is_simulated_with_the_engine_of_its_manifest() -> None:
    found = simulated(service(), "20s,20s,20s", 1, 10.0)
    assert 60 < found["replica_s"] <= 4 * 60
    assert 0 < found["starts"] <= 3
    assert 0 < found["attainment"] < 1
    assert simulated(service(), "20s,20s,20s", 1, 10.0) == found


def test_an_emulated_worker_and_its_simulation_have_one_clock() -> None:
    assert isinstance(SPEC.clock, RooflineClock)
    assert (SPEC.limits.max_seqs, SPEC.limits.step_tokens, SPEC.prefix_cache, SPEC.ahead) == (64, 2048, False, True)


def test_a_run_that_the_simulator_wrote_differs_only_by_what_the_api_process_adds() -> None:
    rows = [LoggedRequest(0.4 * number, 500 + 40 * number, 50, 0.0, 0.0) for number in range(20)]
    exact, slower = (Observed(rows, 0.0).predicted(SPEC, api_s) for api_s in (0.0, 0.02))
    assert exact[0].ttft >= SPEC.clock.seconds(StepWork(500, 250.5))
    assert added(slower, exact) == pytest.approx(0.02)
    ttft, tpot, late = compared(0.6, [Observed(slower, 0.01)], SPEC, 0.02)
    assert (ttft.value, tpot.value, late.value) == pytest.approx((0, 0, 10), abs=1e-9)


def test_a_run_whose_requests_were_sent_late_is_noisy() -> None:
    assert [Observed([], late_s).noisy for late_s in (0.005, 0.05)] == [False, True]
