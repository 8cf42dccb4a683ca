"""The oracle orders a start ahead of need, and keeps replicas over holes that are shorter than one."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.factories import NOW, view
from tests.simulator.rivals import seen

from paceline_simulator.oracle import Oracle, needed_replicas

NEEDS = (1, 1, 3, 3, 1, 3, 1, 1, 1, 1, 2, 1)


def orders(oracle: Oracle, bins: int) -> list[int]:
    observations = (replace(seen(view(1)), now=NOW + place * oracle.bin_s) for place in range(bins))
    return [oracle.decide(each, oracle.initial_state())[0]["main"] for each in observations]


def test_needs_are_the_work_over_the_usable_share_smoothed_over_its_neighbours() -> None:
    assert needed_replicas((0.0, 0.8, 0.81, 3.2), 0.8) == [1, 1, 2, 4]
    assert needed_replicas((0.0, 0.0, 2.4, 0.0), 0.8, smooth=3, least=0) == [0, 1, 1, 2]


def test_it_orders_a_lead_ahead_and_holds_what_it_could_not_get_back_in_time() -> None:
    assert orders(Oracle(NEEDS, NOW, lead_s=20.0), 14) == [3, 3, 3, 3, 3, 3, 1, 1, 2, 2, 2, 1, 1, 1]
    assert orders(Oracle(NEEDS, NOW, lead_s=0.0), 12) == list(NEEDS)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(0, 10))
def test_what_it_ordered_a_lead_ago_and_still_orders_is_never_less_than_the_need(needs: list[int], lead: int) -> None:
    ordered = orders(Oracle(needs, NOW, lead_s=10.0 * lead), len(needs))
    missing = [
        place for place, need in enumerate(needs) if place >= lead and min(ordered[place - lead : place + 1]) < need
    ]
    assert missing == []
