"""The burn of a service's error budgets, by the verdicts of the last minute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.registry import RequestClass, Verdict
from paceline_gateway.request.burn import WINDOW_S, BurnWindow

CLS = RequestClass.INTERACTIVE
TTFT, TPOT = (CLS, "ttft_p95"), (CLS, "tpot_p95")
OBJECTIVES = {TTFT: 0.95, TPOT: 0.95}
NOW = 1000.0


def window(good: int, bad: int, slo: str = "ttft_p95", now: float = NOW) -> BurnWindow:
    made = BurnWindow()
    for verdict in [Verdict.GOOD] * good + [Verdict.BAD_TTFT] * bad:
        made.add(CLS, [(slo, verdict)], now)
    return made


def test_a_budget_burns_at_one_when_just_so_many_miss_as_may() -> None:
    assert window(95, 5).worst(OBJECTIVES, NOW) == pytest.approx(1)
    assert window(90, 10).worst(OBJECTIVES, NOW) == pytest.approx(2)
    assert window(100, 0).worst(OBJECTIVES, NOW) == 0


def test_too_few_requests_say_nothing() -> None:
    assert BurnWindow().worst(OBJECTIVES, NOW) is None
    assert window(10, 9).worst(OBJECTIVES, NOW) is None
    assert window(11, 9).worst({TTFT: 0.99}, NOW) is None


def test_the_worst_indicator_counts_and_one_without_an_objective_does_not() -> None:
    made = window(90, 10, "availability")
    for _ in range(40):
        made.add(CLS, [("ttft_p95", Verdict.GOOD), ("tpot_p95", Verdict.BAD_TPOT)], NOW)
    assert made.worst(OBJECTIVES, NOW) == pytest.approx(20)
    assert made.worst({TTFT: 0.95}, NOW) == 0


@given(st.lists(st.tuples(st.floats(0.0, 200.0), st.booleans()), max_size=80), st.floats(0.0, 200.0))
def test_only_the_last_minute_counts(verdicts: list[tuple[float, bool]], wait_s: float) -> None:
    made, now = BurnWindow(), 0.0
    for at, good in sorted(verdicts):
        made.add(CLS, [("ttft_p95", Verdict.GOOD if good else Verdict.BAD_FAILED)], at)
        now = at
    now += wait_s
    counted = [good for at, good in verdicts if int(at) > now - WINDOW_S]
    burn = made.worst({TTFT: 0.5}, now)
    if len(counted) < 2:
        assert burn is None
    else:
        assert burn == pytest.approx(counted.count(False) / len(counted) / 0.5)
