"""The two rules that scale by a number alone: constant replicas, and the rate of tokens with a trend."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autoscaler.factories import INTERACTIVE, NOW, goal, view

from paceline_autoscaler.policies.constant import Constant
from paceline_autoscaler.policies.token_rate import Holt, TokenRate, TokenRateState, token_rate
from paceline_autoscaler.types import ClassSignals, Demand, Observation, PoolStatus, RateWindow
from paceline_core.errors import InvalidInput
from paceline_core.registry.enums import RequestClass

HOLT = [
    # value every 10 s, level, trend a second; by hand with alpha 1/2, beta 1/4 from (0, 100)
    (120.0, 110.0, 0.25),
    (140.0, 126.25, 0.59375),
    (100.0, 116.09375, 0.19140625),
]


def arriving(rate: float, at: float = 0.0, pool: PoolStatus | None = None) -> Observation:
    """`rate` requests a second of 1,000 prompt and 100 output tokens, over the last minute."""
    flows = (RateWindow(5, 9 * rate, 0), RateWindow(60, 60 * rate, 60_000 * rate))
    classes = (ClassSignals(INTERACTIVE, flows, output_tokens=100.0),)
    return Observation(NOW + at, goal(), Demand(1, 1, classes), (pool or view(2),), None)


def test_every_pool_keeps_its_constant_replicas() -> None:
    seen = arriving(9.0, pool=view(1))
    counts, _ = Constant(4).decide(replace(seen, pools=(view(1), view(3, name="spot"))), Constant(4).initial_state())
    assert counts == {"main": 4, "spot": 4}


def test_holts_method_follows_level_and_trend() -> None:
    rate = Holt(0.0, 100.0)
    for step, (value, level, trend) in enumerate(HOLT, start=1):
        rate = rate.observe(10.0 * step, value, alpha=0.5, beta=0.25)
        assert rate == Holt(10.0 * step, level, trend)
    assert rate.forecast(130.0) == 116.09375 + 100 * 0.19140625
    assert rate.observe(30.0, 999.0, 0.5, 0.25) is rate


def test_the_rate_counts_prompts_and_weighted_outputs_of_all_classes() -> None:
    seen = arriving(2.0)
    batch = ClassSignals(RequestClass.BATCH, (RateWindow(60, 60, 6000),))
    assert token_rate(seen, 3.0) == 2 * (1000 + 100 * 3)
    both = replace(seen, demand=Demand(1, 1, (*seen.demand.classes, batch, ClassSignals(RequestClass.OFFLINE))))
    assert token_rate(both, 3.0) == 2600 + 100 + 128 * 3


def test_replicas_carry_the_forecast_at_the_threshold() -> None:
    rule = TokenRate(tokens_per_s=1000, threshold=0.5, output_weight=0, alpha=1, beta=1, horizon_s=60)
    counts, state = rule.decide(arriving(2.0), rule.initial_state())
    assert counts == {"main": 4}
    counts, state = rule.decide(arriving(3.0, at=30), state)
    assert counts == {"main": 10}  # three times 1,000 tokens a second, two thousand more in a minute
    counts, state = rule.decide(arriving(1.0, at=60), state)
    assert counts == {"main": 10}
    counts, state = rule.decide(arriving(1.0, at=329), state)
    assert counts == {"main": 10}
    assert rule.decide(arriving(1.0, at=330), state)[0] == {"main": 2}


def test_without_a_report_nothing_changes() -> None:
    silent = replace(arriving(5.0, pool=view(3)), demand=Demand(2, 0))
    assert TokenRate().decide(silent, TokenRateState()) == ({"main": 3}, TokenRateState())


def test_the_rate_of_a_service_scales_a_single_pool() -> None:
    two = replace(arriving(1.0), pools=(view(1), view(1, name="spot")))
    with pytest.raises(InvalidInput, match=r"pools: .* main, spot: keep one"):
        TokenRate().decide(two, TokenRateState())


@settings(max_examples=15)
@given(st.lists(st.floats(0, 200), max_size=20), st.floats(0, 200), st.floats(0.2, 1), st.floats(0.1, 1))
def test_a_flat_rate_settles_at_its_replicas(rates: list[float], flat: float, alpha: float, beta: float) -> None:
    rule = TokenRate(alpha=alpha, beta=beta, hold_s=60)
    state, wanted = rule.initial_state(), 0
    for step, rate in enumerate([*rates, *[flat] * 250]):
        counts, state = rule.decide(arriving(rate, at=15.0 * step), state)
        wanted = counts["main"]
        assert wanted >= 0
    assert state.rate is not None
    assert abs(state.rate.level - flat * 1200) < 1
    assert abs(wanted - flat * 1200 / 7000) < 1.1
