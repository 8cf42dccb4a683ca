"""The scheduler: what is in a step, who goes first, who has to give way, how requests end."""

from dataclasses import replace

import pytest
from tests.engine.reference_scheduler import PAGE, PROMPT, VOCAB, Shadow, expected, request, scheduler, shape, started

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.scheduling import Chunk, Rejection, RequestStatus, StepPlan, WeightedShares

INTERACTIVE, BATCH, OFFLINE = RequestClass


# --- the shape of steps


def test_a_prompt_is_prefilled_in_one_step_and_then_decoded_token_by_token() -> None:
    run = started()
    run.core.submit(request("a", PROMPT, 3))
    assert [shape(run.step()) for _ in range(4)] == [[("a", 0, 10)], [("a", 10, 1)], [("a", 11, 1)], []]
    assert run.text("a") == expected(PROMPT, 3)
    assert run.ends() == {"a": "length"}


def test_a_long_prompt_is_cut_where_the_budget_ends() -> None:
    run = started(budget=4)
    run.core.submit(request("a", PROMPT, 1))
    assert [shape(run.step()) for _ in range(3)] == [[("a", 0, 4)], [("a", 4, 4)], [("a", 8, 2)]]
    assert run.text("a") == expected(PROMPT, 1)


def test_decodes_come_first_and_prefills_fill_the_rest_of_the_budget() -> None:
    run = started(budget=6)
    run.core.submit(request("a", [7] * 4, 9))
    run.step()
    run.core.submit(request("b", PROMPT, 9, arrival=1.0))
    assert shape(run.step()) == [("a", 4, 1), ("b", 0, 5)]
    assert shape(run.step()) == [("a", 5, 1), ("b", 5, 5)]


def test_sixteen_requests_together_take_far_fewer_steps_than_one_after_another() -> None:
    together, serial = started(256, slots=16, budget=64), started(256, slots=16, budget=64)
    for number in range(16):
        together.core.submit(request(f"r{number}", [number, *PROMPT], 12))
        serial.core.submit(request(f"r{number}", [number, *PROMPT], 12))
        serial.drain()
    assert together.drain() <= 0.4 * serial.core.counters.steps
    assert all(together.text(f"r{n}") == serial.text(f"r{n}") for n in range(16))


def test_the_numbers_of_a_plan_count_its_tokens() -> None:
    old = request("a", PROMPT[:4], 9)
    old.tokens.append(7)
    new = request("b", PROMPT)
    plan = StepPlan((Chunk(old, 4, 1, True), Chunk(new, 4, 6, True)))
    assert (plan.work.prefill_tokens, plan.work.sequences, plan.work.kv_tokens) == (6, 1, 5)
    assert plan.work.context == sum(range(5, 11)) / 6


def test_slots_never_exceed_the_budget_so_that_every_running_request_moves() -> None:
    run = started(slots=64, budget=16)
    for number in range(20):
        run.core.submit(request(f"r{number}", [number], 4))
    run.step()
    assert len(run.core.running) == 16
    assert len(run.step().chunks) == 16


# --- classes


def test_urgent_classes_are_admitted_first_whatever_their_arrival() -> None:
    run = started(budget=8)
    for number, cls in enumerate((OFFLINE, BATCH, INTERACTIVE)):
        run.core.submit(request(cls, [number] * 4, 2, arrival=float(number), cls=cls))
    run.now = 3.0
    assert shape(run.step()) == [("interactive", 0, 4), ("batch", 0, 4)]


def test_an_urgent_prompt_passes_the_running_prefill_of_a_less_urgent_one() -> None:
    run = started(budget=4)
    run.core.submit(request("slow", PROMPT * 3, 2, cls=OFFLINE))
    run.step()
    run.core.submit(request("fast", [7] * 4, 2, arrival=0.1))
    assert shape(run.step()) == [("fast", 0, 4)]


def test_within_a_class_the_order_is_first_come_first_served() -> None:
    run = started(slots=1)
    for name in "abc":
        run.core.submit(request(name, PROMPT, 1))
    run.drain()
    assert list(run.ends()) == ["a", "b", "c"]


def test_classes_with_a_backlog_share_the_tokens_by_their_weights() -> None:
    run = started(slots=1, prefix_cache=False)
    for number in range(200):
        for cls in RequestClass:
            run.core.submit(request(f"{cls}{number}", [number % VOCAB, *PROMPT], 1, cls=cls))
    while len(run.ends()) < 110:
        run.step()
    shares = {cls: sum(name.startswith(cls) for name in run.ends()) for cls in RequestClass}
    assert shares == {INTERACTIVE: 80, BATCH: 20, OFFLINE: 10}


def test_an_old_backlog_does_not_make_an_urgent_request_wait() -> None:
    run = started(slots=1)
    for number in range(9):
        run.core.submit(request(f"old{number}", [number, *PROMPT], 1, cls=OFFLINE))
    for _ in range(4):
        run.step()
    run.core.submit(request("new", PROMPT, 1, arrival=run.now))
    run.step()
    assert list(run.ends()) == ["old0", "old1", "old2", "old3", "new"]


def test_an_idle_class_saves_no_share_up() -> None:
    policy = WeightedShares()
    policy.order({OFFLINE})
    policy.charge(OFFLINE, 1000)
    assert policy.order(set(RequestClass)) == [INTERACTIVE, BATCH, OFFLINE]
    policy.charge(INTERACTIVE, 8)
    assert policy.order(set(RequestClass)) == [BATCH, OFFLINE, INTERACTIVE]


# --- order within a class


def test_a_short_prompt_passes_a_long_one_that_came_just_before() -> None:
    run = started(slots=1)
    run.core.submit(request("long", PROMPT * 3, 1))
    run.core.submit(request("short", PROMPT, 1, arrival=0.01))
    run.now = 0.1
    run.drain()
    assert list(run.ends()) == ["short", "long"]


def test_of_two_that_have_just_come_the_shorter_goes_first() -> None:
    run = started(slots=1)
    run.core.submit(request("long", PROMPT * 3, 1))
    run.core.submit(request("short", PROMPT, 1))
    run.drain()
    assert list(run.ends()) == ["short", "long"]


def test_a_long_prompt_that_has_waited_longer_for_its_length_goes_first() -> None:
    run = started(slots=1)
    run.core.submit(request("long", PROMPT * 3, 1))
    run.core.submit(request("short", PROMPT, 1, arrival=0.9))
    run.now = 1.0
    run.drain()
    assert list(run.ends()) == ["long", "short"]


def test_what_is_cached_does_not_count_as_length() -> None:
    run = started(slots=1)
    run.core.submit(request("first", PROMPT * 3, 1))
    run.drain()
    run.core.submit(request("short", [*range(20)], 1, arrival=1.0))
    run.core.submit(request("known", PROMPT * 3, 1, arrival=1.0))
    run.now = 2.0
    run.drain()
    assert list(run.ends()) == ["first", "known", "short"]


def test_a_prefix_cached_while_a_request_waits_moves_it_when_it_heads_its_lane() -> None:
    run = started(slots=1)
    first, twin = request("first", PROMPT * 3, 1), request("twin", PROMPT * 3, 1, arrival=0.5)
    for entry in (first, twin):
        run.core.submit(entry)
    assert (first.uncached, twin.uncached) == (30, 30)
    run.step()
    run.step()
    run.step()
    assert twin.uncached == 2


def test_a_prefix_cached_while_a_request_waits_is_noticed_though_others_head_its_lane() -> None:
    run = started(slots=1)
    run.core.submit(request("first", PROMPT * 3, 30))
    for number in range(6):
        run.core.submit(request(f"r{number}", [number] * 30, 9, arrival=0.1))
    twin = request("twin", PROMPT * 3, 1, arrival=0.5)
    run.core.submit(twin)
    for _ in range(12):
        run.step()
    assert (twin.state, twin.uncached) == (RequestStatus.WAITING, 2)


def test_a_stream_of_short_prompts_does_not_starve_a_long_one() -> None:
    run = started(slots=1)
    run.core.submit(request("long", PROMPT * 5, 1))
    number = 0
    while "long" not in run.ends():
        for _ in range(2):
            run.core.submit(request(f"s{number}", [number % VOCAB], 1, arrival=run.now))
            number += 1
        run.step()
        assert number <= 2 * 8 * 51, "the oldest waits for eight times its own service at most"


def test_a_preempted_request_comes_back_before_all_new_ones_of_its_class() -> None:
    run = started(slots=1)
    run.core.submit(request("slow", PROMPT, 9, cls=OFFLINE))
    run.step()
    run.core.submit(request("tiny", [1], 1, arrival=0.0, cls=OFFLINE))
    run.core.submit(request("fast", [7], 1, arrival=run.now))
    run.drain()
    assert list(run.ends()) == ["fast", "slow", "tiny"]


def test_a_class_has_a_queue_of_its_own_length() -> None:
    run = Shadow(scheduler(class_waiting={BATCH: 1}))
    assert run.core.submit(request("a", PROMPT, cls=BATCH)) is None
    full = Rejection("the engine's queue for class batch is full (1 requests)", "queue_full")
    assert run.core.submit(request("b", PROMPT, cls=BATCH)) == full
    assert run.core.submit(request("c", PROMPT)) is None


def test_an_urgent_request_takes_the_slot_of_the_newest_least_urgent_one() -> None:
    run = started(slots=3)
    for number, cls in enumerate((OFFLINE, OFFLINE, BATCH)):
        run.core.submit(request(f"{cls}{number}", [number], 9, arrival=float(number), cls=cls))
    run.step()
    run.core.submit(request("now", PROMPT, 2, arrival=3.0))
    run.step()
    assert [entry.id for entry in run.core.running] == ["now", "batch2", "offline0"]
    run.drain()
    assert run.text("offline1") == expected([1], 9)


def test_a_request_put_back_for_an_urgent_one_produces_a_token_before_it_is_put_back_again() -> None:
    run = started(slots=1, budget=4)
    slow = request("slow", PROMPT, 9, cls=OFFLINE)
    run.core.submit(slow)
    for number in range(8):
        run.step()
        run.core.submit(request(f"fast{number}", [number], 1, arrival=1.0 + number))
        while f"fast{number}" not in run.ends():
            run.step()
        assert slow.preemptions <= 1 + slow.produced
    run.drain()
    assert slow.preemptions > 1
    assert run.text("slow") == expected(PROMPT, 9)


# --- prefix cache


def test_a_second_request_with_the_same_prompt_computes_only_what_is_not_cached() -> None:
    run = started()
    run.core.submit(request("a", PROMPT, 2))
    run.drain()
    run.core.submit(request("b", PROMPT, 2))
    assert shape(run.step()) == [("b", 8, 2)]
    run.drain()
    assert run.text("b") == run.text("a")
    assert (run.core.counters.lookup_tokens, run.core.counters.hit_tokens) == (20, 8)
    assert [event.cached for event in run.events if event.id == "b"] == [8, 8]


def test_a_resumed_request_is_looked_up_whole_and_its_cached_prompt_is_no_longer_than_its_prompt() -> None:
    run = Shadow(scheduler(64))
    first = request("first", PROMPT, 12)
    assert run.core.submit(first) is None
    run.drain()
    resumed = request("resumed", PROMPT, 20)
    resumed.tokens += run.text("first")
    assert run.core.submit(resumed) is None
    run.drain()
    looked, hit = run.core.counters.lookup_tokens, run.core.counters.hit_tokens
    assert (looked, hit) == (10 + 22, 20)
    assert resumed.cached == len(PROMPT)


def test_a_whole_prompt_in_the_cache_still_leaves_one_token_to_compute() -> None:
    run = started()
    for name in "ab":
        run.core.submit(request(name, PROMPT[: 2 * PAGE], 2))
        plan = run.step()
        run.drain()
    assert shape(plan) == [("b", 4, 4)]


def test_salts_keep_tenants_apart() -> None:
    run = started()
    for salt in ("x", "y"):
        run.core.submit(request(salt, PROMPT, 1, salt=salt))
        plan = run.step()
    assert shape(plan) == [("y", 0, 10)]


def test_equal_prompts_in_the_same_step_end_up_sharing_their_full_pages() -> None:
    run = started(budget=32)
    run.core.submit(request("a", PROMPT, 4))
    run.core.submit(request("b", PROMPT, 4))
    run.step()
    first, second = run.core.running
    assert first.pages[:2] == second.pages[:2]
    assert first.pages[2] != second.pages[2]


def test_without_the_prefix_cache_nothing_is_looked_up_or_kept() -> None:
    run = Shadow(scheduler(prefix_cache=False))
    for name in "ab":
        run.core.submit(request(name, PROMPT, 1))
        plan = run.step()
    assert shape(plan) == [("b", 0, 10)]
    assert (run.core.memory.pool.cached, run.core.counters.lookup_tokens) == (0, 0)


# --- preemption


def test_when_pages_run_out_a_request_is_recomputed_and_nothing_changes_for_clients() -> None:
    run = started(8, hopeful=True)
    for number in range(3):
        run.core.submit(request(f"r{number}", [number] * 5, 14, arrival=float(number)))
    run.drain()
    assert run.core.counters.preemptions > 0
    assert all(run.text(f"r{n}") == expected([n] * 5, 14) for n in range(3))
    assert list(run.ends()) == ["r0", "r1", "r2"]


def test_a_preempted_request_finds_its_own_pages_again() -> None:
    run = started(slots=1)
    run.core.submit(request("slow", PROMPT, 9, cls=OFFLINE))
    run.step()
    run.core.submit(request("fast", [7], 1, arrival=1.0))
    run.step()
    assert shape(run.step()) == [("slow", 8, 3)]


def test_positions_told_to_the_client_run_on_across_a_preemption() -> None:
    run = started(8, hopeful=True)
    for number in range(3):
        run.core.submit(request(f"r{number}", [number] * 5, 14, arrival=float(number)))
    run.drain()
    for number in range(3):
        assert [event.position for event in run.events if event.id == f"r{number}"] == list(range(14))


# --- numbers


def test_queued_tokens_count_waiting_and_half_done_prompts_but_no_decodes() -> None:
    run = started(slots=2, budget=8)
    run.core.submit(request("a", [1] * 4, 9))
    run.core.submit(request("b", PROMPT, 9, arrival=0.1))
    run.core.submit(request("c", PROMPT, 9, arrival=0.2, cls=BATCH))
    run.step()
    assert run.core.queued_tokens() == {INTERACTIVE: 6, BATCH: 10, OFFLINE: 0}
    assert run.core.waiting.counts == {INTERACTIVE: 0, BATCH: 1, OFFLINE: 0}
    assert run.core.oldest_wait(1.2) == pytest.approx(1.0)


def test_the_same_inputs_give_the_same_plans() -> None:
    def plans() -> list[list[tuple[str, int, int]]]:
        run = started(10, slots=3, budget=7)
        shapes = []
        for number, cls in enumerate([*RequestClass] * 3):
            run.core.submit(request(f"r{number}", [number % 4] * (5 + number), 6, arrival=number / 10, cls=cls))
            shapes.append(shape(run.step()))
        while run.core.running:
            shapes.append(shape(run.step()))
        return shapes

    assert plans() == plans()


def test_a_request_knows_its_state() -> None:
    run = started()
    entry = request("a", PROMPT, 1)
    run.core.submit(entry)
    states = [entry.state]
    run.step()
    assert [*states, entry.state] == [RequestStatus.WAITING, RequestStatus.DONE]
    assert replace(entry).gap == entry.gap
