"""When waiting requests may join: windows of a running engine, dynamic and static batches."""

from math import inf

import pytest
from tests.engine.reference_scheduler import PROMPT, Shadow, request, scheduler, shape

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.scheduling.batch_window import STATIC_TIMEOUT_S

INTERACTIVE, BATCH, OFFLINE = RequestClass
WINDOWS = {INTERACTIVE: 0.01, BATCH: 0.05}


def serving(batching: str = "continuous", slots: int = 4) -> Shadow:
    """An engine that decodes a request when the test begins."""
    run = Shadow(scheduler(slots=slots, windows=WINDOWS, batching=batching))
    for number in range(1 if batching == "continuous" else slots):
        run.core.submit(request(f"old{number}", [number], 9, arrival=-inf))
    run.step()
    return run


def test_a_batch_request_waits_its_window_beside_a_running_one() -> None:
    run = serving()
    run.core.submit(request("new", PROMPT, 1, arrival=run.now, cls=BATCH))
    joined = [len(run.step().chunks) for _ in range(6)]
    assert joined == [1, 1, 1, 1, 1, 2]
    (timing,) = [event.timing for event in run.events if event.id == "new"]
    assert timing is not None
    assert timing.batch_wait == pytest.approx(0.05)
    assert timing.queue == pytest.approx(0.0, abs=1e-9)


def test_a_window_has_shrunk_by_the_age_of_its_head() -> None:
    run = serving()
    run.core.submit(request("new", PROMPT, 1, arrival=run.now - 0.045, cls=BATCH))
    assert [len(run.step().chunks) for _ in range(2)] == [1, 2]


def test_batch_requests_that_fill_the_free_slots_do_not_wait() -> None:
    run = serving()
    for number in range(3):
        run.core.submit(request(f"b{number}", [9 + number], 2, arrival=run.now, cls=BATCH))
    assert len(run.step().chunks) == 4


def test_an_interactive_request_joins_past_a_held_batch_request() -> None:
    run = serving()
    run.core.submit(request("held", [8], 2, arrival=run.now, cls=BATCH))
    run.core.submit(request("now", [9], 2, arrival=run.now))
    assert [name for name, _, _ in shape(run.step())] == ["old0", "now"]


# --- whole batches


def test_a_dynamic_batch_ends_before_the_next_one_begins() -> None:
    run = serving("dynamic", slots=2)
    run.core.submit(request("new", PROMPT, 1, arrival=run.now))
    while run.core.running:
        assert not {"new"} & {name for name, _, _ in shape(run.step())}
    run.now += 1.0
    assert shape(run.step()) == [("new", 0, 10)]


def test_a_dynamic_batch_begins_when_it_is_full_or_its_window_has_passed() -> None:
    run = Shadow(scheduler(slots=2, windows=WINDOWS, batching="dynamic"))
    run.core.submit(request("a", [1], 1))
    assert run.core.step(0.0).wake == pytest.approx(0.01)
    run.core.submit(request("b", [2], 1))
    assert len(run.core.step(0.0).chunks) == 2


def test_a_static_batch_waits_for_its_size_but_not_for_ever() -> None:
    run = Shadow(scheduler(slots=2, windows=WINDOWS, batching="static"))
    run.core.submit(request("a", [1], 1))
    assert run.core.step(0.5).wake == STATIC_TIMEOUT_S
    assert len(run.core.step(STATIC_TIMEOUT_S).chunks) == 1


def test_a_batch_whose_prompts_take_several_steps_is_filled_to_its_seats_and_no_further() -> None:
    run = Shadow(scheduler(slots=4, budget=12, windows=WINDOWS, batching="static"))
    for number in range(6):
        run.core.submit(request(f"r{number}", [number] * 10, 4))
    while len(run.ends()) < 4:
        run.step()
        assert len(run.core.running) + len(run.ends()) <= 4
    assert sorted(run.ends()) == ["r0", "r1", "r2", "r3"]


def test_a_preempted_member_comes_back_into_its_batch() -> None:
    run = Shadow(scheduler(8, slots=3, batching="dynamic", hopeful=True))
    for number in range(3):
        run.core.submit(request(f"r{number}", [number] * 5, 14))
    run.drain()
    assert run.core.counters.preemptions > 0
    assert len(run.ends()) == 3


@pytest.mark.parametrize("batching", ["dynamic", "static"])
def test_whole_batches_serve_everything(batching: str) -> None:
    run = Shadow(scheduler(slots=3, budget=7, windows=WINDOWS, batching=batching))
    for number in range(10):
        run.core.submit(request(f"r{number}", [number] * (1 + number), 1 + number, cls=[*RequestClass][number % 3]))
    run.drain()
    assert len(run.ends()) == 10
