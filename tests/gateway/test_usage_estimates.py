"""What is reserved for an answer: learned, by tenant where enough is known, never more than asked for."""

from hypothesis import given
from hypothesis import strategies as st

from paceline_gateway.services.usage_estimates import (
    MIN_SAMPLES,
    PRIOR_OUTPUT,
    TENANTS,
    LengthHistogram,
    OutputLengthEstimator,
)


def learned(*lengths: int, tenant: str = "team") -> OutputLengthEstimator:
    outputs = OutputLengthEstimator()
    for tokens in lengths:
        outputs.learn(tenant, tokens, 1)
    return outputs


def test_nothing_known_means_the_guess_or_the_limit() -> None:
    assert OutputLengthEstimator().expected("team", None, 1) == PRIOR_OUTPUT
    assert OutputLengthEstimator().expected("team", 10, 1) == 10


def test_nine_in_ten_answers_are_no_longer_than_what_is_reserved() -> None:
    outputs = learned(*range(1, 1001))
    assert 850 <= outputs.expected("team", None, 1) <= 1100


def test_what_is_reserved_is_capped_by_what_is_asked_for_each_choice() -> None:
    outputs = learned(*[100] * 50)
    assert outputs.expected("team", 40, 3) == 120
    assert 300 <= outputs.expected("team", None, 3) <= 3 * 112


def test_an_answer_in_several_choices_counts_as_so_many_answers() -> None:
    outputs = OutputLengthEstimator()
    for _ in range(50):
        outputs.learn("team", 400, 4)
    assert 100 <= outputs.expected("team", None, 1) <= 112


def test_a_tenant_with_enough_answers_has_its_own_length() -> None:
    outputs = learned(*[1000] * 200)
    for _ in range(MIN_SAMPLES - 1):
        outputs.learn("brief", 5, 1)
    assert outputs.expected("brief", None, 1) >= 1000
    outputs.learn("brief", 5, 1)
    assert outputs.expected("brief", None, 1) == 5
    assert outputs.expected("team", None, 1) >= 1000


def test_short_answers_of_others_let_nobody_new_past_its_limit() -> None:
    outputs = learned(*[8] * 200, tenant="brief")
    assert outputs.expected("team", 40, 1) == 40
    assert outputs.expected("team", None, 1) == PRIOR_OUTPUT


def test_it_follows_answers_that_become_longer() -> None:
    outputs = learned(*[10] * 3000)
    for _ in range(3000):
        outputs.learn("team", 500, 1)
    assert outputs.expected("team", None, 1) >= 500


def test_only_so_many_tenants_are_remembered() -> None:
    outputs = OutputLengthEstimator()
    for number in range(TENANTS + 50):
        outputs.learn(f"t{number}", 5, 1)
    assert len(outputs) == TENANTS


@given(st.lists(st.integers(0, 2**21 - 1), min_size=1, max_size=60))
def test_a_quantile_lies_at_most_a_quarter_above_an_answer_that_was_seen(lengths: list[int]) -> None:
    kept = LengthHistogram()
    for tokens in lengths:
        kept.learn(tokens)
    found = kept.quantile()
    exact = sorted(lengths)[max(-(-9 * len(lengths) // 10) - 1, 0)]
    assert exact <= found <= exact * 1.25
