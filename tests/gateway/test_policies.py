"""Who is picked and why: prefixes, load, memory, classes; the guard against hot spots; stability as workers change."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.fleets import INTERACTIVE, KV, NOW, ask, fleet, has, picked, picks, say, worker
from tests.gateway.pieces import endpoint

from paceline_core.registry import RequestClass
from paceline_core.wire import PrefixDelta, StepTime, WorkerState
from paceline_core.wire.message import BLOCK, reaches
from paceline_gateway.routing.policies import RoutingRequest
from paceline_gateway.routing.worker import RAMP_S, SHARES
from paceline_gateway.routing.worker_pool import LIMIT, SLACK_S
from paceline_workers.engine.scheduling.step_builder import WEIGHTS

BATCH = RequestClass.BATCH


def test_the_worker_that_has_the_prompt_cached_is_picked_and_says_how_much() -> None:
    made, asked = fleet("a", "b", "c"), ask(1)
    has(made, "b", asked, 3)
    pick = made.pick(asked, NOW)
    assert pick is not None
    assert (pick.worker.name, pick.cached_tokens) == ("b", 750)


def test_a_queue_longer_than_what_is_cached_outweighs_it() -> None:
    made, asked = fleet("a", "b"), ask(1)
    has(made, "b", asked, 3)
    say(made, "b", queued_tokens={INTERACTIVE: 700})
    assert picked(made, asked) == "b"
    say(made, "b", queued_tokens={INTERACTIVE: 1000})
    assert picked(made, asked) == "a"


def test_a_cached_prompt_may_wait_where_it_is_though_the_worker_has_enough_to_do() -> None:
    made, asked = fleet("a", "b"), ask(1, tokens=20_000, blocks=80)
    has(made, "b", asked, 80)
    for name in "ab":
        say(made, name, queued_tokens={INTERACTIVE: 6000})
    assert picked(made, ask(2, tokens=20_000, blocks=80)) is None
    assert picked(made, asked) == "b"
    say(made, "b", queued_tokens={INTERACTIVE: 30_000})
    assert picked(made, asked) is None


def test_full_memory_outweighs_a_short_queue() -> None:
    made = fleet("a", "b")
    say(made, "a", kv=KV.model_copy(update={"free": 100}))
    say(made, "b", queued_tokens={INTERACTIVE: 1000})
    assert picked(made, ask(1, tokens=100)) == "b"


def test_a_worker_whose_own_queue_waits_for_slots_is_not_preferred() -> None:
    made = fleet("a", "b")
    say(made, "a", running=64, waiting={INTERACTIVE: 100}, slots=64)
    say(made, "b", queued_tokens={INTERACTIVE: 100}, slots=64)
    assert picked(made, ask(1)) == "b"


def test_batch_work_ahead_delays_interactive_requests_only_by_its_share() -> None:
    made = fleet("a", "b")
    say(made, "a", queued_tokens={BATCH: 4000})
    say(made, "b", queued_tokens={INTERACTIVE: 1000})
    assert picked(made, ask(1, name=INTERACTIVE)) == "a"
    assert picked(made, ask(1, name=BATCH)) == "b"


def test_shares_are_those_of_the_workers_scheduler() -> None:
    assert SHARES == WEIGHTS


def test_a_prompt_that_nobody_has_goes_to_the_same_worker_at_every_gateway() -> None:
    ours, theirs = fleet("a", "b", "c"), fleet("c", "a", "b")
    for number in range(50):
        assert picked(ours, ask(number)) == picked(theirs, ask(number))
    assert {picked(ours, ask(number)) for number in range(50)} == {"a", "b", "c"}


def test_behind_a_beginning_that_all_share_the_first_difference_decides() -> None:
    made = fleet("a", "b", "c")
    shared = tuple(f"{number:016x}" for number in range(4))
    for name in "abc":
        say(made, name, prefix=PrefixDelta(added=shared))
    asked = [RoutingRequest(1000, keys=(*shared, *ask(number).keys), prompt_bytes=8 * BLOCK) for number in range(40)]
    assert {picked(made, each) for each in asked} == {"a", "b", "c"}


@pytest.mark.parametrize("count", [2, 5, 9])
def test_a_worker_that_joins_or_leaves_moves_about_its_share_of_new_prompts(count: int) -> None:
    names = [f"w{number}" for number in range(count + 1)]
    large, small = fleet(*names), fleet(*names[:-1])
    prompts = [ask(number) for number in range(600)]
    before, after = [picked(small, each) for each in prompts], [picked(large, each) for each in prompts]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {names[-1]}
    assert 0.6 < len(moved) / (len(prompts) / (count + 1)) < 1.4


@given(st.integers(BLOCK, 1_000_000), st.integers(1, 300_000))
def test_how_many_keys_are_known_follows_from_the_tokens_that_they_cover(size: int, tokens: int) -> None:
    count = len(reaches(size))
    asked = RoutingRequest(tokens, keys=("a" * 16,) * count, prompt_bytes=size)
    for known in range(count + 1):
        covered = asked.tokens(known)
        found = asked.known(covered)
        assert asked.tokens(found) == covered <= tokens
        assert found <= known


def test_what_was_just_dispatched_counts_as_cached_there() -> None:
    made, asked = fleet("a", "b", "c"), ask(1)
    first = made.assign(1, asked, NOW, stream=True)
    assert first is not None
    first.worker.began(1)
    longer = RoutingRequest(1500, keys=(*asked.keys, "f" * 16, "e" * 16), prompt_bytes=6 * BLOCK)
    again = made.pick(longer, NOW)
    assert again is not None
    assert (again.worker, again.cached_tokens) == (first.worker, 1000)


def test_a_reopened_load_stream_replaces_the_known_prefixes() -> None:
    made, asked = fleet("a", "b", "c"), ask(1)
    has(made, "b", asked, 4)
    made.disconnected("b")
    has(made, "b", asked, 1)
    pick = made.pick(asked, NOW)
    assert pick is not None
    assert (pick.worker.name, pick.cached_tokens) == ("b", 250)


def test_a_worker_that_comes_back_has_nothing_cached() -> None:
    made, asked = fleet("a"), ask(1)
    has(made, "a", asked, 4)
    made.update([])
    made.update([endpoint("a")])
    say(made, "a")
    pick = made.pick(asked, NOW)
    assert pick is not None
    assert pick.cached_tokens == 0


def test_a_new_worker_gets_its_slots_little_by_little_while_others_have_room() -> None:
    made = fleet("a", "b", step_time=StepTime(base=0.001, prefill=0.0))
    made.update([*(each.endpoint for each in made), endpoint("new")])
    say(made, "new", step_time=StepTime(base=0.001, prefill=0.0))

    def taken(now: float) -> int:
        for number in range(192 - sum(each.in_flight for each in made)):
            assert made.assign(number, RoutingRequest(10), now, stream=True) is not None
            if worker(made, "a").in_flight + worker(made, "b").in_flight == 100:
                break
        return worker(made, "new").in_flight

    assert taken(NOW) == 13  # a fifth of its 64 slots
    assert picked(made, RoutingRequest(10)) in ("a", "b")
    assert picked(made, RoutingRequest(10), NOW + RAMP_S) == "new"


def test_a_new_worker_takes_what_nobody_else_has_room_for() -> None:
    made = fleet("a", slots=4)
    made.update([endpoint("a"), endpoint("new")])
    say(made, "new", slots=4)
    for number in range(8):
        assert made.assign(number, RoutingRequest(1), NOW, stream=True) is not None
    assert (worker(made, "a").in_flight, worker(made, "new").in_flight) == (4, 4)


def test_it_is_deterministic_and_picks_a_worker_with_room_or_none() -> None:
    prompts = [ask(number % 4, tokens=50) for number in range(25)]
    first, second = (picks(fleet("a", "b", "c", slots=6), prompts) for _ in range(2))
    assert first[18:] == [None] * 7
    assert Counter(first[:18]) == {"a": 6, "b": 6, "c": 6}
    assert first == second


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30_000)), min_size=1, max_size=120))
def test_affinity_takes_no_worker_beyond_the_guard(requests: list[tuple[int, int]]) -> None:
    made = fleet("a", "b", "c")
    for number, (prompt, tokens) in enumerate(requests):
        asked = ask(prompt, tokens=tokens)
        before = {each.name: each.work for each in made}
        pick = made.assign(number, asked, NOW, stream=True)
        assert pick is not None
        assert before[pick.worker.name] <= LIMIT * sum(before.values()) / 3 + SLACK_S
        pick.worker.began(number)
        pick.worker.give(number, NOW)


def test_one_prompt_for_all_is_spread_as_evenly_as_the_guard_says() -> None:
    made, asked = fleet("a", "b", "c"), ask(1, tokens=10_000)
    for number in range(400):
        pick = made.assign(number, asked, NOW, stream=True)
        assert pick is not None
        made.prefixes.gone(pick.worker.name)  # it is computed anew each time
        pick.worker.began(number)
        pick.worker.give(number, NOW)
    works = [each.work for each in made]
    assert max(works) <= 1.25 * sum(works) / 3


def test_old_work_fades_and_days_of_silence_do_no_harm() -> None:
    made, later = fleet("a", "b"), NOW
    for number in range(20):
        pick = made.assign(number, ask(1, tokens=10_000), later, stream=True)
        assert pick is not None
        pick.worker.began(number)
        later += 86_400.0
    works = sorted(each.work for each in made)
    assert works[0] == 0.0
    assert 0.9 < works[1] < 1.1


def test_a_worker_that_becomes_ready_starts_with_the_work_of_the_others() -> None:
    made = fleet("a", "b")
    for name, work in (("a", 3.0), ("b", 5.0)):
        worker(made, name).work = work
    made.update([*(each.endpoint for each in made), endpoint("new")])
    say(made, "new", state=WorkerState.STARTING)
    assert worker(made, "new").work == 0.0
    say(made, "new")
    say(made, "new")
    assert worker(made, "new").work == 4.0
