"""The virtual clock: time order, then the order of adding; nothing happens in the past."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_simulator.events import EventQueue


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.5])))
def test_events_run_in_the_order_of_their_times_and_then_of_their_adding(times: list[float]) -> None:
    events = EventQueue()
    ran: list[tuple[float, int]] = []
    for number, time in enumerate(times):
        events.at(time, lambda number, time: ran.append((time, number)), number, time)
    events.run()
    assert ran == sorted((time, number) for number, time in enumerate(times))


def test_an_event_may_add_others_at_its_own_instant_but_not_before() -> None:
    events = EventQueue()
    ran: list[str] = []
    events.at(1.0, lambda: events.at(1.0, ran.append, "same instant"))
    events.run()
    assert ran == ["same instant"]
    with pytest.raises(ValueError, match=r"0\.5 s cannot be added at 1\.0 s"):
        events.at(0.5, ran.append, "past")
    with pytest.raises(ValueError, match="nan"):
        events.at(float("nan"), ran.append, "never")


def test_a_run_ends_at_its_limit_and_keeps_later_events() -> None:
    events = EventQueue()
    ran: list[float] = []
    events.every(1.0, lambda: ran.append(events.now), first=0.5)
    events.run(until=3.0)
    assert (ran, events.now, len(events)) == ([0.5, 1.5, 2.5], 3.0, 1)


def test_stop_ends_a_run_after_the_current_event() -> None:
    events = EventQueue()
    ran: list[float] = []
    events.every(1.0, lambda: ran.append(events.now))
    events.at(2.0, events.stop)
    events.run()
    assert ran == [0.0, 1.0]
