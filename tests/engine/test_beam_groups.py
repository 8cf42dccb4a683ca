"""A beam search in the scheduler: the answers of the search alone, whatever else runs, and nothing left behind."""

from typing import Any

import pytest
from tests.engine.reference_scheduler import (
    PAGE,
    PROMPT,
    Shadow,
    beams,
    expected,
    request,
    scheduler,
    searched,
    started,
)

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.kv_cache.attention_window import AttentionWindow
from paceline_workers.engine.scheduling import Rejection, RequestStatus
from paceline_workers.engine.scheduling.beams import request_of
from paceline_workers.engine.scheduling.search import Search
from paceline_workers.messages import Sampling, Submit

STOPS = frozenset(range(0, 50, 6))
LONG = [3, 1, 4, 1, 5] * 4
SEARCHES = {
    "one": Search(1, 9),
    "two": Search(2, 9),
    "stops": Search(3, 12, STOPS),
    "early": Search(4, 12, STOPS, 0.5, early_stopping=True),
    "never": Search(4, 9, STOPS, 2.0, early_stopping="never"),
    "least": Search(3, 12, STOPS, min_tokens=6),
    "first": Search(4, 1, STOPS),
}
AHEAD = pytest.mark.parametrize("ahead", [False, True], ids=["at once", "one step late"])


def run_of(pages: int = 64, *, ahead: bool = False, **limits: Any) -> Shadow:
    return Shadow(scheduler(pages, **limits), ahead=ahead)


@AHEAD
@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("name", SEARCHES)
def test_the_answers_are_those_of_the_search_alone(name: str, cache: bool, ahead: bool) -> None:
    search = SEARCHES[name]
    for prompt in (PROMPT, PROMPT[:8], [7]):
        run = run_of(ahead=ahead, prefix_cache=cache)
        ids = [f"a{number}" for number in range(search.width)]
        assert run.core.submit(beams("a0", prompt, search, ids)) is None
        run.drain()
        assert [run.text(one) for one in ids] == searched(prompt, search)
        assert run.core.memory.pool.held == 0


@AHEAD
def test_searches_and_others_do_not_change_each_other(ahead: bool) -> None:
    run = run_of(slots=16, ahead=ahead)
    for number, (name, search) in enumerate(SEARCHES.items()):
        run.core.submit(beams(name, PROMPT[number:], search, arrival=number / 100))
        run.core.submit(request(f"plain-{name}", PROMPT[: number + 2], 15, arrival=number / 100))
        run.step()
    run.drain()
    for number, (name, search) in enumerate(SEARCHES.items()):
        assert run.text(name) == searched(PROMPT[number:], search)[0]
        assert run.text(f"plain-{name}") == expected(PROMPT[: number + 2], 15)


@AHEAD
@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("budget", [8, 64])
def test_searches_that_starve_each_other_of_pages_come_to_their_ends(budget: int, cache: bool, ahead: bool) -> None:
    """A pool for hardly one of them: each holds pages while its own beams lack some, and is put back whole."""
    run = run_of(16, slots=8, budget=budget, max_len=40, hopeful=True, ahead=ahead, prefix_cache=cache)
    search = Search(3, 12)
    for number in range(4):
        assert run.core.submit(beams(f"s{number}", LONG[number:], search, arrival=number / 100)) is None
        assert run.core.submit(request(f"r{number}", LONG[: number + 5], 12, arrival=number / 100)) is None
    run.drain(limit=2_000)
    assert run.core.counters.preemptions > 0
    for number in range(4):
        assert run.text(f"s{number}") == searched(LONG[number:], search)[0]
        assert run.text(f"r{number}") == expected(LONG[: number + 5], 12)
    assert run.core.memory.pool.held == 0


def test_a_preempted_search_goes_on_where_it_was() -> None:
    run, search = run_of(budget=64), Search(3, 12)
    run.core.submit(beams("s", PROMPT, search))
    while run.core.running or len(run.core.waiting):
        plan = run.core.step(run.now)
        run.core.retract(plan)
        assert [one.state for one in run.core.running] == []
        for _ in range(2):  # it unfolds, and gets a token further
            run.step()
    assert run.text("s") == searched(PROMPT, search)[0]
    assert run.core.counters.preemptions >= 10


@AHEAD
@pytest.mark.parametrize("steps", range(10))
def test_a_search_that_is_aborted_at_any_step_leaves_nothing(steps: int, ahead: bool) -> None:
    run = run_of(budget=8, ahead=ahead)
    run.core.submit(request("other", PROMPT, 20))
    run.core.submit(beams("s", PROMPT, Search(4, 9)))
    for _ in range(steps):
        run.step()
    assert run.core.abort("s")
    assert not run.core.abort("s")
    assert all(one.beams is None for one in run.core.running)
    run.check_books()
    run.drain()
    assert run.text("s") == []
    assert run.text("other") == expected(PROMPT, 20)
    assert run.core.memory.pool.held == 0


@AHEAD
@pytest.mark.parametrize("steps", [1, 3, 6])
def test_a_step_that_raises_ends_a_search_once(steps: int, ahead: bool) -> None:
    run = run_of(ahead=ahead)
    run.core.submit(beams("s", PROMPT, Search(4, 9)))
    for _ in range(steps):
        run.step()
    run.launch()
    run.fail()
    run.drain()
    assert [(event.id, event.finish, event.error) for event in run.events] == [("s", "error", "injected")]
    assert run.core.memory.pool.held == 0


def test_a_search_without_a_token_by_its_deadline_ends_once_and_a_begun_one_goes_on() -> None:
    run = run_of(slots=4)
    run.core.submit(request("blocks", PROMPT, 40))
    run.core.submit(beams("late", PROMPT, Search(4, 9), deadline=0.05))
    for _ in range(10):
        run.step()
        run.events += run.core.expire(run.now)
    assert run.ends() == {"late": "abort"}
    other = run_of()
    other.core.submit(beams("begun", PROMPT, Search(4, 9), deadline=0.015))
    while other.core.running or len(other.core.waiting):
        other.step()
        other.events += other.core.expire(other.now)
    assert other.ends() == {"begun": "length"}


def test_log_probabilities_and_reasons_are_those_of_each_answer() -> None:
    search = Search(3, 12, STOPS, top=2)
    run = run_of()
    run.core.submit(beams("a", PROMPT, search, ["a", "b"]))
    run.drain()
    for event in run.events:
        assert event.position == 0
        assert event.finish == ("stop" if event.ids[-1] in STOPS else "length")
        assert len(event.logprobs) == len(event.ids)
        assert all(len(top) == 2 for _, top in event.logprobs)
        assert event.timing is not None
    assert {event.id for event in run.events} == {"a", "b"}


def test_a_search_waits_for_seats_for_all_its_beams_and_nobody_passes() -> None:
    run = run_of(slots=4)
    run.core.submit(request("runs", PROMPT, 6))
    run.step()
    run.core.submit(beams("wide", PROMPT, Search(4, 3), arrival=0.01))
    run.core.submit(request("after", PROMPT, 2, arrival=0.02))
    while "runs" not in run.ends():
        assert {one.id for one in run.core.running} == {"runs"}
        run.step()
    run.drain()
    assert run.text("wide") == searched(PROMPT, Search(4, 3))[0]


def test_beams_share_the_pages_of_the_prompt() -> None:
    run, prompt = run_of(), LONG * 3
    run.core.submit(beams("s", prompt, Search(4, 6)))
    most = 0
    while run.core.running or len(run.core.waiting):
        run.step()
        most = max(most, run.core.memory.pool.held)
    assert len(prompt) // PAGE < most <= len(prompt) // PAGE + 4 * 2


@pytest.mark.parametrize(
    ("search", "prompt", "words"),
    [
        (Search(9, 4), PROMPT, "a search of 9 beams needs 9 slots; this engine has 8"),
        (Search(5, 40), LONG, "5 beams need more KV memory than there is (160 tokens)"),
    ],
)
def test_what_could_not_run_alone_is_refused(search: Search, prompt: list[int], words: str) -> None:
    assert started(40, slots=8).core.submit(beams("s", prompt, search)) == Rejection(words)


def test_a_search_of_another_class_is_put_back_whole() -> None:
    run = run_of(slots=4, budget=16)
    run.core.submit(beams("offline", PROMPT, Search(4, 9), cls=RequestClass.OFFLINE))
    for _ in range(4):
        run.step()
    run.core.submit(request("urgent", PROMPT, 3, arrival=run.now))
    run.step()
    assert [one.id for one in run.core.running] == ["urgent"]
    run.drain()
    assert run.text("offline") == searched(PROMPT, Search(4, 9))[0]


def test_a_search_is_made_of_what_was_submitted() -> None:
    submit = Submit(
        "s", [1, 2, 3], 90, Sampling(logprobs=5), stop_ids=[4], min_tokens=2, beams=3, length_penalty=0.5,
        early_stopping="never", answers=["s", "t"],
    )  # fmt: skip
    made = request_of(submit, [9], 0.0, 64)
    assert made.beams
    assert made.beams.search == Search(3, 61, frozenset({4, 9}), 0.5, "never", 2, 5)
    assert [member.id for member in made.beams.members] == ["s", "s/1", "s/2"]
    assert made.state is RequestStatus.WAITING
    assert request_of(Submit("r", [1], 9, Sampling()), [9], 0.0, 64).beams is None


@AHEAD
def test_beams_far_longer_than_the_window_share_a_bounded_pool(ahead: bool) -> None:
    """Put back when they have little in common, they come back although their ways would fill the pool many times."""
    search = Search(3, 90)
    run = run_of(24, slots=8, budget=8, attention_window=AttentionWindow(9, 2), hopeful=True, ahead=ahead)
    for number in range(2):
        assert run.core.submit(beams(f"s{number}", LONG[number:], search, arrival=number / 100)) is None
    for count in range(1500):
        if count in {60, 90, 120} and run.launch().chunks:
            run.core.retract(run.flights.pop()[0])
        run.step()
    for number in range(2):
        assert run.text(f"s{number}") == searched(LONG[number:], search)[0]
    assert run.core.counters.preemptions >= 1
    assert run.core.memory.pool.held == 0


def test_beams_without_pages_own_none_whether_let_go_or_back_from_a_preemption() -> None:
    run, search = run_of(slots=8, budget=8, prefix_cache=False), Search(4, 30)
    assert run.core.submit(beams("s", LONG, search)) is None
    shares = []
    for count in range(60):
        if count in {9, 17} and run.launch().chunks:
            run.core.retract(run.flights.pop()[0])
        run.step()
        shares += [(len(member.pages), member.own_pages) for member in run.core.running]
    assert run.text("s") == searched(LONG, search)[0]
    assert (0, 0) in shares
    assert all(0 <= own <= pages for pages, own in shares)
