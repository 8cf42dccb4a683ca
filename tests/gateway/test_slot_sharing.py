"""Slots of one worker between gateways that do not talk: none lies idle for long, none is kept from who comes."""

import random
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.pieces import endpoint, report

from paceline_core.registry.enums import RequestClass
from paceline_gateway.routing.worker import Worker

INTERACTIVE = RequestClass.INTERACTIVE


class Shared:
    """One worker as several gateways see it; `slots` of it can run, the rest waits there."""

    def __init__(self, gateways: int, slots: int, seed: int) -> None:
        self.views = [Worker(endpoint("a")) for _ in range(gateways)]
        self.slots = slots
        self._dice = random.Random(seed)
        self._open: list[set[int]] = [set() for _ in range(gateways)]
        self._number = 0
        self.tell()

    @property
    def total(self) -> int:
        return sum(map(len, self._open))

    def tell(self) -> None:
        """The worker says how it is, to all."""
        running, now = min(self.total, self.slots), float(self._number)
        waiting = {INTERACTIVE: self.total - running}
        told = report("a", slots=self.slots, gateways=len(self.views), running=running, waiting=waiting)
        for view in self.views:
            view.on_report(told, now)

    def fill(self, busy: Collection[int]) -> None:
        """Those who have requests waiting send what they may."""
        for place in self._dice.sample(sorted(busy), len(busy)):
            view = self.views[place]
            while view.in_flight < view.share:
                self._number += 1
                view.take(self._number, 1, INTERACTIVE, float(self._number), stream=True)
                self._open[place].add(self._number)

    def end(self, share: float) -> None:
        """About so many of all that run are answered."""
        for view, numbers in zip(self.views, self._open, strict=True):
            for number in [number for number in numbers if self._dice.random() < share]:
                numbers.discard(number)
                view.give(number, float(self._number))

    def rounds(self, count: int, busy: Collection[int], share: float) -> None:
        """Answers end and others take their slots at once; reports come, and more go."""
        for _ in range(count):
            self.end(share)
            self.fill(busy)
            self.tell()
            self.fill(busy)


@pytest.mark.parametrize("gateways", [1, 2, 3, 8])
def test_who_is_alone_fills_all_slots_after_a_few_reports(gateways: int) -> None:
    shared = Shared(gateways, 24, seed=1)
    shared.rounds(30, [0], share=0.0)
    assert shared.total == 24


@given(seed=st.integers(0, 2**16), gateways=st.integers(2, 5), slots=st.integers(1, 40))
def test_who_comes_gets_its_part_at_once_and_who_had_more_falls_back(seed: int, gateways: int, slots: int) -> None:
    shared, part = Shared(gateways, slots, seed), -(-slots // gateways)
    shared.rounds(20, [0], share=0.1)
    everybody = range(gateways)
    shared.fill(everybody)
    assert all(view.in_flight >= part for view in shared.views)
    assert shared.total <= slots + gateways * part
    shared.rounds(60, everybody, share=0.3)
    assert all(part <= view.in_flight <= part + 1 for view in shared.views)


@given(seed=st.integers(0, 2**16), gateways=st.integers(1, 5), slots=st.integers(1, 40), share=st.floats(0, 1))
def test_idle_slots_are_not_given_out_twice(seed: int, gateways: int, slots: int, share: float) -> None:
    """Beyond the equal parts of those below them, which are theirs in any case."""
    shared, part = Shared(gateways, slots, seed), -(-slots // gateways)
    dice = random.Random(seed)
    for _ in range(20):
        shared.end(share)
        shared.tell()
        owed = sum(max(part - view.in_flight, 0) for view in shared.views)
        before = shared.total
        shared.fill([place for place in range(gateways) if dice.random() < 0.5])
        assert shared.total <= max(before, slots) + owed + gateways
        assert all(view.in_flight <= slots for view in shared.views)
