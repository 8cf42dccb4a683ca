import asyncio

from hypothesis import given
from hypothesis import strategies as st

from paceline_core.clock import SystemClock
from paceline_core.kube import ObjectKey
from paceline_operator.state.workqueue import (
    MAX_PAUSE_S,
    Priority,
    PriorityQueue,
    ReconcileKey,
    WorkQueue,
    backoff_s,
)

A, B, C = (ReconcileKey("InferenceService", ObjectKey("default", name)) for name in "abc")
ITEMS = (A, B, C)


def drained(backlog: PriorityQueue, now: float = 0.0) -> list[ReconcileKey]:
    taken = []
    while (item := backlog.take(now)) is not None:
        taken.append(item)
        backlog.done(item, now)
    return taken


def test_a_key_added_twice_is_taken_once() -> None:
    backlog = PriorityQueue()
    backlog.add(A, Priority.EDIT, 0.0)
    backlog.add(A, Priority.EDIT, 1.0)
    assert drained(backlog) == [A]


def test_the_most_urgent_goes_first_and_equals_go_in_order() -> None:
    backlog = PriorityQueue()
    for item, priority in ((A, Priority.CREATE), (B, Priority.CREATE), (C, Priority.DELETE)):
        backlog.add(item, priority, 0.0)
    assert drained(backlog) == [C, A, B]


def test_a_waiting_key_is_promoted_by_a_more_urgent_reason() -> None:
    backlog = PriorityQueue()
    for item in ITEMS:
        backlog.add(item, Priority.CREATE, 0.0)
    backlog.add(C, Priority.STATUS, 1.0)
    assert drained(backlog) == [C, A, B]


def test_a_promoted_key_keeps_the_age_of_its_first_reason() -> None:
    backlog = PriorityQueue()
    backlog.add(A, Priority.CREATE, 1.0)
    backlog.add(A, Priority.DELETE, 8.0)
    assert backlog.oldest_s(10.0) == 9.0


def test_a_running_key_is_of_no_other_worker_and_runs_again_when_it_was_added_meanwhile() -> None:
    backlog = PriorityQueue()
    backlog.add(A, Priority.EDIT, 0.0)
    assert backlog.take(0.0) == A
    backlog.add(A, Priority.EDIT, 0.0)
    assert backlog.take(0.0) is None
    backlog.done(A, 0.0)
    assert drained(backlog) == [A]


def test_a_failed_key_comes_back_after_a_pause_that_doubles_up_to_a_cap() -> None:
    backlog = PriorityQueue()
    now = 0.0
    backlog.add(A, Priority.EDIT, now)
    for failures in range(1, 12):
        assert backlog.take(now) == A
        pause = backlog.failed(A, now)
        assert pause == backoff_s(failures)
        assert backlog.take(now + pause - 0.01) is None
        now += pause
    assert backoff_s(1000) == MAX_PAUSE_S


def test_a_server_that_names_a_pause_is_given_it() -> None:
    backlog = PriorityQueue()
    backlog.add(A, Priority.EDIT, 0.0)
    backlog.take(0.0)
    assert backlog.failed(A, 0.0, after_s=9.0) == 9.0


def test_the_echo_of_a_failure_does_not_end_its_pause_but_an_edit_does() -> None:
    backlog = PriorityQueue()
    backlog.add(A, Priority.EDIT, 0.0)
    backlog.take(0.0)
    backlog.failed(A, 0.0)
    backlog.add(A, Priority.STATUS, 0.1)
    assert backlog.take(0.1) is None
    backlog.add(A, Priority.EDIT, 0.2)
    assert backlog.take(0.2) == A


def test_an_edit_that_came_while_a_key_failed_is_tried_at_once() -> None:
    backlog = PriorityQueue()
    backlog.add(A, Priority.CREATE, 0.0)
    backlog.take(0.0)
    backlog.add(A, Priority.EDIT, 0.0)
    assert backlog.failed(A, 0.0) == 0.0
    assert backlog.take(0.0) == A


def test_a_success_forgets_earlier_failures() -> None:
    backlog = PriorityQueue()
    backlog.add(A, Priority.EDIT, 0.0)
    backlog.take(0.0)
    backlog.failed(A, 0.0)
    backlog.take(100.0)
    backlog.done(A, 100.0, again_s=1.0)
    assert backlog.failures(A) == 0
    assert (backlog.take(100.5), backlog.take(101.0)) == (None, A)


def test_a_key_that_is_to_be_looked_at_later_is_looked_at_sooner_when_something_happens() -> None:
    backlog = PriorityQueue()
    backlog.add(A, Priority.EDIT, 0.0)
    backlog.take(0.0)
    backlog.done(A, 0.0, again_s=3.0)
    assert backlog.due() == 3.0
    backlog.add(A, Priority.STATUS, 1.0)
    assert backlog.take(1.0) == A
    backlog.done(A, 1.0)
    assert (backlog.due(), backlog.take(5.0)) == (None, None)


def test_a_worker_for_urgent_keys_leaves_the_others_alone() -> None:
    backlog = PriorityQueue()
    backlog.add(A, Priority.CREATE, 0.0)
    assert backlog.take(0.0, Priority.EDIT) is None
    backlog.add(B, Priority.DELETE, 0.0)
    assert backlog.take(0.0, Priority.EDIT) == B
    assert backlog.take(0.0) == A


STEP = st.tuples(
    st.sampled_from(["add", "take", "done", "fail", "wait"]), st.sampled_from(ITEMS), st.sampled_from(Priority)
)


@given(st.lists(STEP, max_size=60))
def test_whatever_happens_no_key_is_held_twice_and_none_is_forgotten(
    steps: list[tuple[str, ReconcileKey, Priority]],
) -> None:
    backlog, now, held, wanted = PriorityQueue(), 0.0, set[ReconcileKey](), set[ReconcileKey]()
    for action, item, priority in steps:
        if action == "add":
            backlog.add(item, priority, now)
            wanted.add(item)
        elif action == "take" and (taken := backlog.take(now)) is not None:
            assert taken not in held
            assert taken in wanted
            held.add(taken)
            wanted.discard(taken)
        elif action in ("done", "fail") and item in held:
            held.discard(item)
            if action == "done":
                backlog.done(item, now)
            else:
                backlog.failed(item, now)
                wanted.add(item)
        elif action == "wait":
            now += 1.0
    for item in held:
        backlog.done(item, now)
    assert set(drained(backlog, now + 1000.0)) == wanted
    assert (backlog.depth, backlog.due(), backlog.oldest_s(now)) == (0, None, 0.0)


@given(st.lists(st.tuples(st.sampled_from(ITEMS), st.sampled_from(Priority)), max_size=30))
def test_keys_leave_in_the_order_of_their_most_urgent_reason(adds: list[tuple[ReconcileKey, Priority]]) -> None:
    backlog = PriorityQueue()
    best: dict[ReconcileKey, Priority] = {}
    for item, priority in adds:
        backlog.add(item, priority, 0.0)
        best[item] = min(best.get(item, priority), priority)
    left = [best[item] for item in drained(backlog)]
    assert left == sorted(best.values())


async def _next(queue: WorkQueue, limit: Priority = Priority.RESYNC) -> ReconcileKey:
    async with asyncio.timeout(5.0):
        return await queue.get(limit)


async def _settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_waiting_worker_is_woken_by_a_key_and_by_one_that_falls_due() -> None:
    queue = WorkQueue(SystemClock())
    first = asyncio.create_task(_next(queue))
    await _settle()
    queue.put(A, Priority.EDIT)
    assert await first == A
    queue.done(A, again_s=0.01)
    assert await _next(queue) == A


async def test_a_key_for_everybody_passes_the_worker_for_urgent_keys_by() -> None:
    queue = WorkQueue(SystemClock())
    express = asyncio.create_task(_next(queue, Priority.EDIT))
    await _settle()
    ordinary = asyncio.create_task(_next(queue))
    await _settle()
    queue.put(A, Priority.CREATE)
    assert await ordinary == A
    assert not express.done()
    queue.put(B, Priority.DELETE)
    assert await express == B


async def test_a_worker_cancelled_while_it_waits_takes_no_key_with_it() -> None:
    queue = WorkQueue(SystemClock())
    lost, kept = (asyncio.create_task(_next(queue)) for _ in range(2))
    await _settle()
    queue.put(A, Priority.EDIT)
    lost.cancel()
    assert await kept == A
