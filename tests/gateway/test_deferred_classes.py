"""An overloaded service's batch and offline requests, beside interactive ones that can still be in time."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.test_dispatcher import BATCH, INTERACTIVE, NOW, OFFLINE, dispatcher, order

from paceline_core.errors import Code
from paceline_core.registry.enums import RequestClass, ShedReason
from paceline_gateway.queueing.dispatcher import Dispatcher
from paceline_gateway.queueing.fair_queue import STARVED_S
from paceline_gateway.queueing.queued_request import QueuedRequest

HOLD_S = 600.0
TTFT_S = 60.0


def join(
    queue: Dispatcher, number: int, cls: RequestClass, now: float, *, hold_s: float = HOLD_S, in_time_s: float = inf
) -> QueuedRequest:
    waits = QueuedRequest(number, cls, 10, 40, deadline=now + hold_s, in_time_s=in_time_s)
    queue.join(waits, now)
    return waits


def served(queue: Dispatcher, now: float, times: int, *, in_time_s: float = TTFT_S) -> list[int]:
    """One slot: each time the request at the worker ends, and another interactive one waits."""
    found: list[QueuedRequest] = []
    for number in range(times):
        join(queue, 1000 + number, INTERACTIVE, now, in_time_s=in_time_s)
        if found:
            queue.release(found[-1], now, suspect=False)
        found += [waits for waits, _ in queue.dispatch(now)]
    return [waits.id for waits in found]


def backlogged(*, overloaded: bool, cls: RequestClass = BATCH, **terms: float) -> Dispatcher:
    """Batch waits since NOW."""
    queue = dispatcher("w0", slots=1)
    queue.overloaded = overloaded
    join(queue, 1, cls, NOW, **terms)
    return queue


def test_a_starving_class_is_deferred_while_interactive_requests_can_be_in_time() -> None:
    later = NOW + STARVED_S[BATCH] + 1
    assert 1 in served(backlogged(overloaded=False), later, 6)
    assert 1 not in served(backlogged(overloaded=True), later, 20)


def test_interactive_requests_that_are_late_anyway_defer_nothing() -> None:
    assert 1 in served(backlogged(overloaded=True), NOW + STARVED_S[BATCH] + 1, 6, in_time_s=0.0)


def test_a_deferred_request_gets_its_turn_after_half_of_its_time() -> None:
    for cls in (BATCH, OFFLINE):
        assert 1 not in served(backlogged(overloaded=True, cls=cls), NOW + HOLD_S / 2 - 1, 20)
        assert 1 in served(backlogged(overloaded=True, cls=cls), NOW + HOLD_S / 2, 20)


def test_a_deferred_class_with_a_target_gets_its_turn_in_time_for_it() -> None:
    assert 1 not in served(backlogged(overloaded=True, in_time_s=200.0), NOW + 99, 20)
    assert 1 in served(backlogged(overloaded=True, in_time_s=200.0), NOW + 100, 20)


def test_nothing_is_deferred_where_no_interactive_request_waits() -> None:
    queue = backlogged(overloaded=True)
    assert order(queue.dispatch(NOW)) == [1]


def test_an_overloaded_service_refuses_new_offline_requests_and_keeps_those_that_wait() -> None:
    queue = backlogged(overloaded=True, cls=OFFLINE)
    shed = queue.shed(QueuedRequest(2, OFFLINE, 10, 40, NOW + HOLD_S), 100, NOW)
    assert shed is not None
    assert (shed.queued.id, shed.reason) == (2, ShedReason.OVERLOADED)
    assert (shed.error.code, shed.error.row.status) == (Code.NO_CAPACITY, 503)
    assert shed.error.retry_after == 60
    assert (refusal := queue.refusal(OFFLINE, 40, 100, NOW)) is not None
    assert refusal.code is Code.NO_CAPACITY
    assert queue.waiting == 1
    for other in (INTERACTIVE, BATCH):
        assert queue.shed(QueuedRequest(3, other, 10, 40, NOW + HOLD_S), 100, NOW) is None
        assert queue.refusal(other, 40, 100, NOW) is None
    queue.overloaded = False
    assert queue.shed(QueuedRequest(2, OFFLINE, 10, 40, NOW + HOLD_S), 100, NOW) is None


def test_an_offline_request_that_lost_its_worker_is_not_refused() -> None:
    queue = dispatcher("w0", slots=1)
    lost = join(queue, 1, OFFLINE, NOW)
    queue.dispatch(NOW)
    queue.overloaded = True
    queue.release(lost, NOW, suspect=False)
    queue.rejoin(lost, NOW + HOLD_S)
    assert order(queue.dispatch(NOW)) == [1]


ARRIVALS = st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.1, 5.0)), max_size=40)


@given(ARRIVALS, st.integers(1, 3))
def test_with_interactive_requests_alone_overload_changes_no_order(
    arrivals: list[tuple[float, float]], slots: int
) -> None:
    def run(*, overloaded: bool) -> list[list[int]]:
        queue, now, found = dispatcher("w0", slots=slots), NOW, list[list[int]]()
        queue.overloaded, running = overloaded, list[QueuedRequest]()
        for number, (gap_s, in_time_s) in enumerate(arrivals):
            now += gap_s
            queue.pool.workers["w0"].heard = now
            join(queue, number, INTERACTIVE, now, hold_s=30.0, in_time_s=in_time_s)
            if number % 2 and running:
                queue.release(running.pop(), now, suspect=False)
            gone = queue.dispatch(now)
            running += [waits for waits, _ in gone]
            found.append(order(gone))
        return found

    assert run(overloaded=True) == run(overloaded=False)
