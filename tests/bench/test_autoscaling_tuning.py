"""The search among settings in order of their cost."""

from benchmarks.autoscaling.tune import CANDIDATES, cheapest
from hypothesis import given
from hypothesis import strategies as st


@given(count=st.integers(0, 60), least=st.integers(0, 60))
def test_the_cheapest_that_holds_is_found_where_all_dearer_ones_hold_too(count: int, least: int) -> None:
    found = cheapest(range(count), lambda choice: choice >= least)
    assert found == (least if least < count else None)


@given(count=st.integers(1, 60))
def test_few_runs_show_that_nothing_holds(count: int) -> None:
    tried: list[int] = []

    def holds(choice: int) -> bool:
        tried.append(choice)
        return False

    assert cheapest(range(count), holds) is None
    assert len(set(tried)) == len(tried) <= CANDIDATES + 6
