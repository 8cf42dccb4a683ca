"""What one holder may have of something that all share."""

from hypothesis import given
from hypothesis import strategies as st

from paceline_gateway.http.limits import SHARE, SharedLimit


def filled(limit: SharedLimit, holder: str, amount: int = 1) -> int:
    """What a holder gets that takes all it can."""
    while limit.take(holder, amount):
        pass
    return limit._held.get(holder, 0)


def test_one_holder_alone_leaves_a_part_free_for_the_next() -> None:
    limit = SharedLimit(900, 1)
    assert filled(limit, "first") == 800
    assert filled(limit, "second") >= 80, "the second one gets of what is left as the first did"
    assert limit.take("third", 1)


def test_one_body_is_never_too_much_while_it_fits() -> None:
    limit = SharedLimit(100, 60)
    assert filled(limit, "first") == 89
    limit.give("first", 89)
    assert limit.take("second", 60)
    assert not limit.take("third", 60), "it does not fit"
    assert limit.refused == 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.booleans()), max_size=60))
def test_the_sum_of_all_is_what_is_used_and_never_over_the_limit(steps: list[tuple[str, int, bool]]) -> None:
    limit, held = SharedLimit(100, 30), dict.fromkeys("abc", 0)
    for holder, amount, takes in steps:
        if not takes:
            limit.give(holder, held[holder])
            held[holder] = 0
        elif limit.take(holder, amount):
            held[holder] += amount
            assert held[holder] <= max(30, SHARE * (100 - limit.used + amount))
        assert {name: limit._held.get(name, 0) for name in held} == held
        assert limit.used == sum(held.values()) <= 100
