import asyncio

import pytest

from paceline_core.clock import ManualClock
from paceline_core.errors import Unreachable
from paceline_core.kube.leader_election import LeaderElector, NotLeading


class Book:
    """One lease. `down` makes every request fail."""

    def __init__(self, clock: ManualClock) -> None:
        self.holding, self.until, self.down, self._clock = "", 0.0, False, clock

    async def acquire(self, name: str, holder: str, ttl_s: float) -> bool:
        if self.down:
            raise Unreachable("no answer")
        now = self._clock.monotonic()
        if self.holding not in ("", holder) and now < self.until:
            return False
        self.holding, self.until = holder, now + ttl_s
        return True

    async def holder(self, name: str) -> str:
        return self.holding

    async def release(self, name: str, holder: str) -> None:
        if self.down:
            raise Unreachable("no answer")
        if self.holding == holder:
            self.holding = ""


def pair(clock: ManualClock) -> tuple[Book, LeaderElector, LeaderElector]:
    book = Book(clock)
    one, two = (LeaderElector(book, "lease", name, 15.0, clock) for name in ("one", "two"))
    return book, one, two


async def test_of_two_one_leads_and_the_other_may_not_write() -> None:
    _, one, two = pair(ManualClock())
    await one.renew()
    await two.renew()
    one.check()
    with pytest.raises(NotLeading):
        two.check()


async def test_a_lease_given_back_is_taken_at_once() -> None:
    _, one, two = pair(ManualClock())
    await one.renew()
    await one.resign()
    assert not one.leads
    assert await two.renew()


async def test_a_leader_that_cannot_renew_stops_writing_before_anybody_else_may_begin() -> None:
    clock = ManualClock()
    book, one, two = pair(clock)
    await one.renew()
    book.down = True
    while one.leads:
        clock.advance(0.5)
        await one.renew()
    book.down = False
    assert clock.monotonic() < 15.0
    assert not await two.renew()


async def test_a_short_outage_costs_no_leadership() -> None:
    clock = ManualClock()
    book, one, _ = pair(clock)
    await one.renew()
    book.down = True
    clock.advance(5.0)
    await one.renew()
    assert one.leads


async def test_a_suspended_leader_knows_on_waking_that_its_time_is_over() -> None:
    clock = ManualClock()
    _, one, two = pair(clock)
    await one.renew()
    clock.advance(60.0)
    assert not one.leads
    assert await two.renew()
    assert not await one.renew()


async def test_a_standby_takes_over_within_twenty_seconds_of_the_last_renewal() -> None:
    clock = ManualClock()
    _, one, two = pair(clock)
    await one.renew()
    standing = asyncio.create_task(two.run())
    async with asyncio.timeout(5.0):
        await two.wait()
    standing.cancel()
    assert clock.monotonic() <= 20.0
