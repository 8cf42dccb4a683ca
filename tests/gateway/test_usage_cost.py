"""What a request costs, by the worker's step times and its pool's price."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.wire import StepTime
from paceline_gateway.usage.cost import GRAIN, Part, PricedReplica, cost_of

MODEL = StepTime(base=0.01, prefill=0.0001, sequence=0.001, kv=1e-6, context=1e-9)
HERE = PricedReplica(MODEL, slots=10, step_tokens=1000, per_hour=Decimal("3.60"))
DEAR = PricedReplica(MODEL, slots=10, step_tokens=1000, per_hour=Decimal("36.00"))
TOKENS = st.integers(0, 100_000)


def test_prompt_tokens_cost_their_part_of_full_steps_and_output_tokens_their_part_of_steps_with_every_slot() -> None:
    plain = PricedReplica(StepTime(base=0.01, prefill=0.0001), slots=10, step_tokens=1000, per_hour=Decimal("3.60"))
    assert plain.seconds(prompt=1000, cached=0, output=0) == pytest.approx(0.1 + 0.01)
    assert plain.seconds(prompt=0, cached=0, output=10) == pytest.approx(0.01)
    assert plain.cost(prompt=1000, cached=0, output=0) == Decimal("0.000110000")


def test_cached_prompt_tokens_are_free() -> None:
    assert HERE.cost(prompt=1000, cached=1000, output=0) == 0
    assert HERE.cost(prompt=1000, cached=500, output=5) < HERE.cost(prompt=1000, cached=0, output=5)


def test_no_number_of_tokens_is_too_large_for_a_price() -> None:
    tokens = 65_536 * (2**63 - 1)
    assert HERE.cost(prompt=tokens, cached=0, output=tokens) == Decimal(10**6)


def test_a_price_is_per_hour() -> None:
    hour = PricedReplica(StepTime(base=0.0, prefill=1.0), slots=1, step_tokens=1, per_hour=Decimal("3.93"))
    assert hour.cost(prompt=3600, cached=0, output=0) == Decimal("3.93")


@given(TOKENS, TOKENS, TOKENS, st.integers(0, 100))
def test_more_tokens_never_cost_less_and_the_cost_is_exact_to_the_billionth(
    prompt: int, cached: int, output: int, more: int
) -> None:
    cost = HERE.cost(prompt=prompt, cached=min(cached, prompt), output=output)
    assert 0 <= cost <= HERE.cost(prompt=prompt, cached=min(cached, prompt), output=output + more)
    assert cost == cost.quantize(GRAIN)


def test_each_token_of_an_answer_is_paid_where_it_was_made_and_the_prompt_where_it_was_read_first() -> None:
    read = HERE.cost(prompt=1000, cached=200, output=0)
    written = {output: HERE.cost(prompt=1000, cached=200, output=output) - read for output in (30, 100)}
    parts: list[Part] = [(HERE, 30), (DEAR, 100)]
    expected = read + written[30] + 10 * (written[100] - written[30])
    assert cost_of(parts, prompt=1000, cached=200) == pytest.approx(expected)
    assert cost_of(parts[::-1], prompt=1000, cached=200) != cost_of(parts, prompt=1000, cached=200)


def test_what_an_unknown_replica_made_costs_nothing() -> None:
    assert cost_of([(None, 30)], prompt=1000, cached=0) == 0
    rest = HERE.cost(prompt=1000, cached=0, output=100) - HERE.cost(prompt=1000, cached=0, output=30)
    assert cost_of([(None, 30), (HERE, 100)], prompt=1000, cached=0) == rest


@given(TOKENS, st.lists(TOKENS, min_size=1, max_size=5))
def test_where_replicas_are_alike_it_does_not_matter_how_many_had_a_part(prompt: int, ends: list[int]) -> None:
    parts: list[Part] = [(HERE, output) for output in sorted(ends)]
    assert cost_of(parts, prompt=prompt, cached=0) == HERE.cost(prompt=prompt, cached=0, output=max(ends))
