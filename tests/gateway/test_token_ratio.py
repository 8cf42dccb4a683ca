from hypothesis import given
from hypothesis import strategies as st

from paceline_gateway.requests.estimate import MEMORY_TOKENS, TokenRatio


def test_it_starts_at_four_bytes_a_token() -> None:
    assert TokenRatio().tokens(400) == 100


def test_the_first_answer_replaces_the_guess() -> None:
    ratio = TokenRatio()
    ratio.learn(300, 150)
    assert ratio.tokens(300) == 150


def test_long_prompts_weigh_more_than_short_ones() -> None:
    ratio = TokenRatio()
    ratio.learn(100_000, 20_000)
    for _ in range(100):
        ratio.learn(100, 50)
    assert abs(ratio.bytes_per_token - 110_000 / 25_000) < 1e-9


def test_old_prompts_are_forgotten() -> None:
    ratio = TokenRatio()
    ratio.learn(int(8 * MEMORY_TOKENS), int(MEMORY_TOKENS))
    for _ in range(50):
        ratio.learn(200_000, 100_000)
    assert abs(ratio.bytes_per_token - 2.0) < 0.01


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**6)), max_size=30), st.integers(0, 10**7))
def test_there_is_always_at_least_one_token(learned: list[tuple[int, int]], size: int) -> None:
    ratio = TokenRatio()
    for pair in learned:
        ratio.learn(*pair)
    assert ratio.tokens(size) >= 1
