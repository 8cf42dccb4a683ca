"""The search that fits logs finds a minimum, and a log that the simulator wrote is predicted exactly."""

import pytest
from benchmarks.simulator.calibration import LoggedEngine, LoggedRequest, minimize, predict, vllm

from paceline_core.wire import StepTime

MODEL = StepTime(base=0.01, prefill=5e-5, sequence=2e-5, kv=5e-8, context=1e-9)
ENGINE = LoggedEngine("made", 200, 8, (0.01, 5e-5, 2e-5, 5e-8, 1e-9))


def test_the_search_finds_the_minimum_of_a_bowl() -> None:
    found = minimize(lambda x: (x[0] - 1.5) ** 2 + 3 * (x[1] + 0.5) ** 2, [0.0, 0.0], 0.3, 200)
    assert found == pytest.approx([1.5, -0.5], abs=1e-3)


def test_requests_wait_for_slots_and_pages_in_the_order_of_arrival() -> None:
    rows = [LoggedRequest(0.01 * number, 100, 30, 1.0, 2.0) for number in range(24)]
    found = predict(rows, vllm(ENGINE, MODEL))
    assert [row.ttft + row.at for row in found] == sorted(row.ttft + row.at for row in found)
    assert found[0].ttft == pytest.approx(MODEL.seconds(prefill_tokens=100, sequences=0, kv_tokens=0, context=50.5))
    assert found[-1].ttft > found[0].e2e
    assert predict(found, vllm(ENGINE, MODEL)) == found
