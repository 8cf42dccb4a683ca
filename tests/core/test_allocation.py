from hypothesis import given
from hypothesis import strategies as st

from paceline_core.allocation import split

shares = st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 100), min_size=1)


@given(st.integers(0, 500), shares)
def test_the_parts_sum_to_the_total(total: int, given_shares: dict[str, float]) -> None:
    parts = split(total, given_shares)
    assert sum(parts.values()) == (total if any(share > 0 for share in given_shares.values()) else 0)


@given(st.integers(0, 500), shares)
def test_a_share_of_nothing_gets_nothing_and_every_other_at_least_one(
    total: int, given_shares: dict[str, float]
) -> None:
    parts = split(total, given_shares)
    positive = [name for name, share in given_shares.items() if share > 0]
    assert all(parts[name] == 0 for name in given_shares if name not in positive)
    assert total < len(positive) or all(parts[name] >= 1 for name in positive)


@given(st.integers(0, 500), shares)
def test_the_order_of_the_shares_does_not_matter(total: int, given_shares: dict[str, float]) -> None:
    assert split(total, given_shares) == split(total, dict(reversed(given_shares.items())))


@given(st.integers(2, 500), st.integers(1, 99))
def test_two_tracks_are_within_one_replica_of_their_exact_shares(total: int, percent: int) -> None:
    parts = split(total, {"stable": 100 - percent, "canary": percent})
    assert abs(parts["canary"] - total * percent / 100) <= 1


def test_a_canary_of_ten_percent_gets_one_of_five() -> None:
    assert split(5, {"stable": 90, "canary": 10}) == {"stable": 4, "canary": 1}


def test_one_replica_goes_to_the_larger_share() -> None:
    assert split(1, {"canary": 10, "stable": 90}) == {"canary": 0, "stable": 1}
