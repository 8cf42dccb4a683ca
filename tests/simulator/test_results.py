"""Attainment counts offered requests, by the gateway's verdicts, with the time that a long prompt needs."""

import pytest
from tests.simulator.records import ended

from paceline_core.registry.enums import Outcome
from paceline_simulator.results import LatencyLimits, RequestResult, SimulationResult

LIMITS = LatencyLimits(ttft_s=2.0, tpot_s=0.1, prompt_rate=3000.0)


def result(at: float, attained: bool, outcome: Outcome = Outcome.OK) -> RequestResult:
    return RequestResult(at, "default/chat", "", 100, 10, outcome, at, 1.0, 0.05, at + 2.0, 40, "w", 0, attained)


def test_a_long_prompt_may_take_longer_to_its_first_token() -> None:
    assert LIMITS.attained(ended(2.3), prompt_tokens=900)
    assert not LIMITS.attained(ended(2.31), prompt_tokens=900)
    assert not LatencyLimits(prompt_rate=float("inf")).attained(ended(2.1), prompt_tokens=90_000)


def test_a_slow_stream_and_one_that_failed_miss() -> None:
    assert LIMITS.attained(ended(tpot=0.09), 100)
    assert not LIMITS.attained(ended(tpot=0.11), 100)
    assert LIMITS.attained(ended(tpot=8.0, output=1), 100)
    assert not LIMITS.attained(ended(tpot=0.09, outcome=Outcome.STREAM_ERROR), 100)


def test_offered_requests_are_those_of_the_window_whatever_became_of_them() -> None:
    found = SimulationResult(10.0, 20.0)
    found.requests = [result(5.0, True), result(12.0, True), result(13.0, False, Outcome.SHED), result(20.0, True)]
    found.unfinished = [(14.0, "default/chat"), (25.0, "default/chat"), (15.0, "default/code")]
    assert found.offered() == 4
    assert found.attainment() == 0.25
    assert found.attainment("default/chat") == pytest.approx(1 / 3)
    assert found.attainment("default/none") == 1.0
    assert found.hit_rate() == 0.4
