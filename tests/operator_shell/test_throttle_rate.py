import asyncio

from hypothesis import given
from hypothesis import strategies as st

from paceline_core.clock import ManualClock
from paceline_operator.state.workqueue import Priority
from paceline_operator.write.throttle import TokenBucket, WriteRateLimiter


@given(
    st.floats(0.5, 50.0),
    st.integers(1, 20),
    st.lists(st.floats(0.0, 3.0), max_size=100),
)
def test_no_span_of_time_gets_more_than_the_burst_and_what_flows_in(rate: float, burst: int, gaps: list[float]) -> None:
    bucket, now, given_at = TokenBucket(rate, burst, burst, 0.0), 0.0, list[float]()
    for gap in gaps:
        now += gap
        if bucket.take(now) == 0.0:
            given_at.append(now)
    for i, start in enumerate(given_at):
        for j in range(i, len(given_at)):
            assert j - i + 1 <= burst + rate * (given_at[j] - start) + 1e-6


def test_the_pause_it_names_is_long_enough() -> None:
    bucket = TokenBucket(5.0, 1.0, 1.0, 0.0)
    assert bucket.take(0.0) == 0.0
    pause = bucket.take(0.0)
    assert bucket.take(pause + 1e-9) == 0.0


def test_a_server_that_asks_for_a_pause_gets_one_whatever_is_left() -> None:
    bucket = TokenBucket(5.0, 10.0, 10.0, 0.0)
    bucket.stop(0.0, 30.0)
    assert bucket.take(10.0) > 20.0
    assert bucket.take(30.2 + 1e-9) == 0.0


async def test_of_a_thousand_writers_at_five_a_second_the_urgent_ones_go_first() -> None:
    clock = ManualClock()
    budget = WriteRateLimiter(clock, rate=5.0, burst=1.0)
    order: list[tuple[Priority, float]] = []

    async def write(priority: Priority) -> None:
        await budget.spend(priority)
        order.append((priority, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        for _ in range(1000):
            group.create_task(write(Priority.CREATE))
        for _ in range(10):
            group.create_task(write(Priority.DELETE))
    urgent = [place for place, (priority, _) in enumerate(order) if priority is Priority.DELETE]
    assert urgent[-1] <= 12
    assert 1000 / 5.0 < order[-1][1] < 1020 / 5.0 + 1.0


async def test_a_writer_that_gave_up_costs_nobody_a_token() -> None:
    clock = ManualClock()
    budget = WriteRateLimiter(clock, rate=1.0, burst=1.0)
    await budget.spend(Priority.EDIT)
    lost = asyncio.create_task(budget.spend(Priority.DELETE))
    kept = asyncio.create_task(budget.spend(Priority.EDIT))
    lost.cancel()
    async with asyncio.timeout(5.0):
        await kept
    assert clock.monotonic() < 1.5
    await budget.close()
