"""Who is asked to leave a draining worker: as many as others can take, nobody before those who wait, all in time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.pieces import endpoint, report

from paceline_core.registry import RequestClass
from paceline_core.wire import KVLoad, StepTime, WorkerState
from paceline_gateway.routing.evacuation_plan import AGAIN_S, FULL, GRACE_S, EvacuationPlanner, MovableStream
from paceline_gateway.routing.policies import ShortestTTFT
from paceline_gateway.routing.worker import Worker
from paceline_gateway.routing.worker_pool import WorkerPool

NOW = 1000.0
LOOKAHEAD_S = 0.5
INTERACTIVE, BATCH, OFFLINE = RequestClass
NOBODY = dict.fromkeys(RequestClass, 0)
KV = KVLoad(page_tokens=16, total=10_000, free=10_000)
FAST = StepTime(base=0.001, prefill=0.0001)
CLASSES = st.sampled_from(RequestClass)


def fleet(*names: str, slots: int = 8, now: float = NOW, **said: object) -> WorkerPool:
    """The first one drains, with one request in flight; all were heard now."""
    made = WorkerPool(ShortestTTFT(LOOKAHEAD_S), silence_s=6.0, lookahead_s=LOOKAHEAD_S, prefix_bytes=1)
    made.update(endpoint(name) for name in names)
    for name in names:
        made.on_report(name, report(name, **({"slots": slots, "kv": KV, "step_time": FAST} | said)), now)
    made.on_report(names[0], report(names[0], state=WorkerState.DRAINING), now)
    worker(made, names[0]).take(10**9, 1, INTERACTIVE, now, stream=True)
    return made


def worker(made: WorkerPool, name: str) -> Worker:
    found = made.workers.get(name)
    assert found is not None
    return found


def due(
    made: WorkerPool,
    streams: Sequence[MovableStream],
    moves: EvacuationPlanner | None = None,
    waiting: Mapping[RequestClass, int] = NOBODY,
) -> list[int]:
    """Whom to ask, of streams that are all at the worker that drains."""
    (leaving,) = made.leaving()
    chosen = (moves or EvacuationPlanner(LOOKAHEAD_S)).due(made, {leaving: streams}, waiting, NOW)
    return chosen.get(leaving, [])


def streams(count: int, tokens: int = 100, name: RequestClass = INTERACTIVE) -> list[MovableStream]:
    return [MovableStream(number, name, tokens) for number in range(count)]


def test_a_worker_is_left_once_it_has_drained_for_a_moment() -> None:
    made, moves = fleet("a", "b"), EvacuationPlanner(LOOKAHEAD_S)
    assert moves.leaving(made, NOW) == []
    assert moves.leaving(made, NOW + GRACE_S - 0.01) == []
    assert moves.leaving(made, NOW + GRACE_S) == [worker(made, "a")]


def test_a_retired_worker_is_left_only_once_it_has_to_end() -> None:
    made, moves = fleet("a", "b"), EvacuationPlanner(LOOKAHEAD_S)
    made.on_report("a", report("a", state=WorkerState.DRAINING, retired=True), NOW)
    assert worker(made, "a").draining
    assert [found.name for found in made.ready(NOW)] == ["b"]
    assert moves.leaving(made, NOW) == moves.leaving(made, NOW + 10 * GRACE_S) == []
    made.update([replace(endpoint("a"), terminating=True), endpoint("b")])
    assert moves.leaving(made, NOW + 11 * GRACE_S) == []
    assert moves.leaving(made, NOW + 12 * GRACE_S) == [worker(made, "a")]


def test_a_pod_that_terminates_drains_whatever_it_says() -> None:
    made, moves = fleet("a", "b"), EvacuationPlanner(LOOKAHEAD_S)
    made.on_report("a", report("a"), NOW)
    made.update([replace(endpoint("a"), terminating=True), endpoint("b")])
    assert moves.leaving(made, NOW) == []
    assert moves.leaving(made, NOW + GRACE_S) == [worker(made, "a")]


def test_all_go_at_once_where_there_is_room() -> None:
    assert sorted(due(fleet("a", "b", "c"), streams(16))) == list(range(16))


def test_no_more_go_than_the_others_have_free_slots() -> None:
    made = fleet("a", "b", "c")
    worker(made, "b").take(1, 1, INTERACTIVE, NOW, stream=True)
    assert len(due(made, streams(50))) == 15


def test_no_more_go_than_prompts_that_the_others_can_compute_soon() -> None:
    """Each takes prompts until it has as much ahead as it may be given: 5,000 tokens, the last one may go beyond."""
    assert len(due(fleet("a", "b", "c", slots=64), streams(50, tokens=2_000))) == 6


def test_what_is_longer_than_that_goes_alone() -> None:
    assert len(due(fleet("a", "b"), streams(3, tokens=60_000))) == 1


def test_nobody_is_moved_to_where_the_memory_is_full() -> None:
    full = KVLoad(page_tokens=16, total=10_000, free=10_000 - int(FULL * 10_000))
    assert due(fleet("a", "b", kv=full), streams(1, tokens=32)) == []


@pytest.mark.parametrize("state", [WorkerState.STARTING, WorkerState.DRAINING, WorkerState.FAILED])
def test_who_is_not_ready_gets_nothing(state: WorkerState) -> None:
    made = fleet("a", "b")
    made.on_report("b", report("b", state=state), NOW)
    assert due(made, streams(1)) == []


def test_who_was_not_heard_lately_gets_nothing() -> None:
    made = fleet("a", "b")
    made.disconnected("b")
    assert due(made, streams(1)) == []


def test_another_revisions_model_gets_nothing() -> None:
    made = fleet("a", "b")
    made.update([endpoint("a"), replace(endpoint("b"), revision="r2")])
    assert due(made, streams(1)) == []


def test_the_last_worker_keeps_its_streams() -> None:
    assert due(fleet("a"), streams(3)) == []


def test_those_who_wait_and_are_as_urgent_come_first() -> None:
    made = fleet("a", "b")
    mixed = [MovableStream(1, INTERACTIVE, 10), MovableStream(2, BATCH, 10), MovableStream(3, OFFLINE, 10)]
    assert due(made, mixed, waiting=NOBODY | {BATCH: 1}) == [1]
    assert due(made, mixed, waiting=NOBODY | {OFFLINE: 1}) == [1, 2]
    assert due(made, mixed, waiting=NOBODY | {INTERACTIVE: 1}) == []


def test_slots_reserved_for_urgent_requests_stay_free() -> None:
    made = fleet("a", "b")
    made.reserved = 4
    assert len(due(made, streams(8, name=BATCH))) == 4
    assert len(due(made, streams(8))) == 8


def test_who_was_asked_and_is_still_there_is_asked_again_only_later() -> None:
    made, moves = fleet("a", "b"), EvacuationPlanner(LOOKAHEAD_S)
    (leaving,), own = made.leaving(), {worker(made, "a"): streams(1)}
    assert moves.due(made, own, NOBODY, NOW) == {leaving: [0]}
    assert moves.due(made, own, NOBODY, NOW + 1) == {}
    made.on_report("b", report("b"), NOW + AGAIN_S)
    assert moves.due(made, own, NOBODY, NOW + AGAIN_S) == {leaving: [0]}


STREAMS = st.lists(st.builds(MovableStream, st.just(0), CLASSES, st.integers(1, 20_000)), max_size=40).map(
    lambda drawn: [stream._replace(number=number) for number, stream in enumerate(drawn)]
)


@given(STREAMS, st.integers(1, 4), st.integers(1, 12), st.integers(0, 20), st.integers(0, 20))
def test_nobody_is_flooded(asked: list[MovableStream], others: int, slots: int, kept: int, busy: int) -> None:
    made = fleet("leaving", *(f"w{number}" for number in range(others)), slots=slots)
    made.reserved = kept
    for number in range(min(busy, slots)):
        worker(made, "w0").take(1000 + number, 1, INTERACTIVE, NOW, stream=True)
    chosen = due(made, asked)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= {stream.number for stream in asked}
    assert len(chosen) <= others * slots - min(busy, slots)
    spent = sorted(worker(made, "w0").prefill_s(asked[number].tokens) for number in chosen)
    assert sum(spent[:-others]) <= others * LOOKAHEAD_S  # each takes no more, and one that may go beyond


@given(STREAMS)
def test_round_by_round_everybody_gets_away(asked: list[MovableStream]) -> None:
    made, moves, left = fleet("a", "b", "c"), EvacuationPlanner(LOOKAHEAD_S), asked
    for _ in range(len(asked)):
        gone = due(made, left, moves)
        assert gone or not left
        left = [stream for stream in left if stream.number not in gone]  # and have ended where they went
    assert left == []
