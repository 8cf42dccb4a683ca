"""What gateways are told about this worker, and when."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs
from tests.worker.harness import running, settings
from tests.worker.scripted_engine import Script

from paceline_core.registry import RequestClass
from paceline_core.wire import LoadReport, PrefixDelta, WorkerState, decode
from paceline_workers.messages import Heartbeat, Started
from paceline_workers.server.engine.client import EngineState
from paceline_workers.server.load_report import LINE, LoadPublisher

STARTED = Started(
    pages=64, page_tokens=16, page_bytes=4, max_model_len=512, slots=8, eos_ids=[], emulated=True, stages={}
)


def beat(running: int) -> Heartbeat:
    return Heartbeat(
        steps=1,
        running=running,
        waiting={RequestClass.BATCH: 2},
        queued_tokens={RequestClass.BATCH: 90},
        oldest_wait=0.0,
        pages_free=50,
        pages_cached=4,
        preemptions=0,
        evicted_pages=0,
        lookup_tokens=0,
        hit_tokens=0,
        step_time=[0.01, 0.001, 0.002, 0.003, 0.004, 7.0],
    )


@pytest.fixture
def board() -> LoadPublisher:
    return LoadPublisher(settings())


async def line(lines: AsyncIterator[bytes]) -> LoadReport:
    return decode(LoadReport, await asyncio.wait_for(anext(lines), 10))


def test_a_fresh_worker_is_starting(board: LoadPublisher) -> None:
    assert (board.report.state, board.report.slots, board.report.max_model_len) == (WorkerState.STARTING, 64, 0)


def test_a_report_holds_what_the_engine_said(board: LoadPublisher) -> None:
    for event in (EngineState.LOADING, STARTED, EngineState.UP, beat(3)):
        board.on_engine(event)
    report = board.report
    assert (report.worker, report.service, report.revision, report.pool) == (
        "chat-main-0", "team/chat", "abcdefghij", "main",
    )  # fmt: skip
    assert (report.state, report.emulated, report.slots, report.max_model_len) == (WorkerState.READY, True, 8, 512)
    assert (report.running, report.waiting, report.queued_tokens) == (
        3, {RequestClass.BATCH: 2}, {RequestClass.BATCH: 90},
    )  # fmt: skip
    assert (report.kv.page_tokens, report.kv.total, report.kv.free, report.kv.cached) == (16, 64, 50, 4)
    assert (report.step_time.base, report.step_time.context, report.step_time.observations) == (0.01, 0.004, 7)


async def test_a_ready_line_always_knows_the_step_time(folder: Path) -> None:
    reports: list[LoadReport] = []
    async with running(Script(), folder=folder, ready=False) as rig:
        rig.worker.parts.engine.listen(lambda _: reports.append(rig.worker.board.report))
        await rig.reaches(EngineState.UP)
    ready = [report for report in reports if report.state is WorkerState.READY]
    assert ready
    assert all(report.step_time.base == 0.01 for report in ready)


async def test_a_reader_is_told_the_keys_that_are_cached_and_then_what_changes(board: LoadPublisher) -> None:
    board.on_engine(STARTED)
    board.on_engine(structs.replace(beat(1), prefix_added=["a", "b"]))
    lines = board.lines()
    assert (await line(lines)).prefix == PrefixDelta(added=("a", "b"))
    board.on_engine(structs.replace(beat(1), prefix_added=["c"], prefix_evicted=["a"]))
    assert (await line(lines)).prefix == PrefixDelta(added=("c",), evicted=("a",))
    board.on_engine(structs.replace(beat(1), prefix_added=["a"], prefix_evicted=["c"]))
    assert (await line(lines)).prefix == PrefixDelta(added=("a",), evicted=("c",))
    board.on_engine(beat(2))
    assert (await line(lines)).prefix == PrefixDelta()
    assert (await line(board.lines())).prefix == PrefixDelta(added=("b", "a"))


async def test_a_report_says_how_many_gateways_share_the_slots(board: LoadPublisher) -> None:
    lines = board.lines()
    with board.subscribed(gateway=True):
        assert (await line(lines)).gateways == 1
        with board.subscribed(gateway=True), board.subscribed(gateway=False):
            assert (await line(lines)).gateways == 2
            assert board.subscribers == 3
        assert (await line(lines)).gateways == 1
    assert (board.subscribers, board.report.gateways) == (0, 1)


async def test_keys_that_come_and_go_between_two_lines_are_not_told(board: LoadPublisher) -> None:
    lines = board.lines()
    await line(lines)
    board.on_engine(structs.replace(beat(1), prefix_added=["a"]))
    board.on_engine(structs.replace(beat(1), prefix_evicted=["a"]))
    assert (await line(lines)).prefix == PrefixDelta()


async def test_a_new_engine_has_none_of_the_keys_of_the_last_one(board: LoadPublisher) -> None:
    board.on_engine(structs.replace(beat(1), prefix_added=["a"]))
    lines = board.lines()
    await line(lines)
    board.on_engine(STARTED)
    assert (await line(lines)).prefix == PrefixDelta(evicted=("a",))


async def test_keys_of_prompts_under_way_are_told_and_taken_back_unless_they_were_cached(board: LoadPublisher) -> None:
    lines = board.lines()
    await line(lines)
    board.on_prompt({"a"}, 1)
    board.on_prompt({"a", "b"}, 1)
    assert sorted((await line(lines)).prefix.added) == ["a", "b"]
    board.on_prompt({"a"}, -1)
    board.on_engine(structs.replace(beat(1), prefix_added=["b"]))
    assert (await line(lines)).prefix == PrefixDelta()
    board.on_prompt({"a", "b"}, -1)
    assert (await line(lines)).prefix == PrefixDelta(evicted=("a",))
    board.on_engine(structs.replace(beat(1), prefix_evicted=["b"]))
    assert (await line(lines)).prefix == PrefixDelta(evicted=("b",))


async def test_what_is_evicted_while_a_prompt_needs_it_is_still_told_as_there(board: LoadPublisher) -> None:
    board.on_engine(structs.replace(beat(1), prefix_added=["a"]))
    lines = board.lines()
    await line(lines)
    board.on_prompt({"a"}, 1)
    board.on_engine(STARTED)
    assert (await line(lines)).prefix == PrefixDelta()
    board.on_prompt({"a"}, -1)
    assert (await line(lines)).prefix == PrefixDelta(evicted=("a",))


async def test_many_keys_are_told_in_lines_of_bounded_length(board: LoadPublisher) -> None:
    keys = [f"{number:016x}" for number in range(LINE + 10)]
    board.on_engine(structs.replace(beat(1), prefix_added=keys))
    lines = board.lines()
    told = [(await line(lines)).prefix.added for _ in range(2)]
    assert [len(added) for added in told] == [LINE, 10]
    assert [key for added in told for key in added] == keys


def test_a_dead_engine_is_a_failed_worker(board: LoadPublisher) -> None:
    board.on_engine(EngineState.DOWN)
    assert board.report.state is WorkerState.FAILED


def test_draining_is_the_last_word(board: LoadPublisher) -> None:
    board.drain()
    board.on_engine(EngineState.UP)
    assert board.report.state is WorkerState.DRAINING


def test_a_new_engine_starts_with_nothing_running(board: LoadPublisher) -> None:
    board.on_engine(beat(3))
    board.on_engine(STARTED)
    assert (board.report.running, board.report.waiting) == (0, {})


async def test_a_subscriber_sees_the_state_now_and_each_turn_at_once(board: LoadPublisher) -> None:
    lines = board.lines()
    assert (await line(lines)).state is WorkerState.STARTING
    coming = asyncio.create_task(line(lines))
    await asyncio.sleep(0)
    board.on_engine(EngineState.UP)
    report = await coming
    assert (report.state, report.seq) == (WorkerState.READY, 1)


async def test_changes_between_two_lines_come_as_one(board: LoadPublisher) -> None:
    lines = board.lines()
    await line(lines)
    for count in (1, 2, 3):
        board.on_engine(beat(count))
    assert (await line(lines)).running == 3


async def test_a_closing_board_still_says_that_it_drains(board: LoadPublisher) -> None:
    lines = board.lines()
    await line(lines)
    coming = asyncio.create_task(line(lines))
    await asyncio.sleep(0)
    board.drain()
    board.close()
    assert (await coming).state is WorkerState.DRAINING
    with pytest.raises(StopAsyncIteration):
        await line(lines)


async def test_every_subscriber_counts_its_own_lines(board: LoadPublisher) -> None:
    first, second = board.lines(), board.lines()
    await line(first)
    board.drain()
    assert [(await line(first)).seq, (await line(second)).seq] == [1, 0]
