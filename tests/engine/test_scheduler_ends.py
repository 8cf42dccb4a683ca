"""How requests leave the scheduler: done, aborted, failed, too late or refused; and how long they wait for company."""

import pytest
from tests.engine.reference_scheduler import PROMPT, VOCAB, Shadow, beams, expected, request, scheduler, shape, started
from tests.every import cases

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.scheduling import Request, SampledToken, StepPlan
from paceline_workers.engine.scheduling.search import Search

INTERACTIVE, BATCH, OFFLINE = RequestClass

# --- how requests end


def test_a_stop_id_ends_a_request_and_is_its_last_token() -> None:
    stop = expected(PROMPT, 3)[2]
    run = started()
    run.core.submit(request("a", PROMPT, 9, stop_ids=frozenset({stop})))
    run.drain()
    assert run.text("a") == expected(PROMPT, 3)
    assert run.ends() == {"a": "stop"}


def test_a_stop_id_before_min_tokens_does_not_end_a_request() -> None:
    stop = expected(PROMPT, 1)[0]
    run = started()
    run.core.submit(request("a", PROMPT, 2, stop_ids=frozenset({stop}), min_tokens=1))
    run.drain()
    assert len(run.text("a")) == 2


def test_a_sample_that_ends_its_grammar_ends_a_request() -> None:
    core = scheduler()
    core.submit(request("a", PROMPT, 9, min_tokens=5))
    (event,) = core.commit(core.step(0.0), [SampledToken(7, ended=True)], 0.0)
    assert (event.ids, event.finish, core.running) == ([7], "stop", [])


def test_a_row_that_went_wrong_ends_its_own_request_alone() -> None:
    run = started(budget=64)
    run.core.submit(request("sick", PROMPT, 9))
    run.core.submit(request("well", PROMPT, 5))
    run.core.submit(beams("beams", PROMPT, Search(3, 9)))
    for _ in range(2):
        run.step()
    plan, wrong = run.core.step(run.now), {"sick", "beams/1", "beams/2"}
    drawn = zip(plan.chunks, run.execute(plan), strict=True)
    samples = [SampledToken(0, error="no number") if chunk.request.id in wrong else sample for chunk, sample in drawn]
    run.events += run.core.commit(plan, samples, run.now)
    run.drain()
    assert {(event.id, event.error) for event in run.events if event.error} == {
        ("sick", "no number"),
        ("beams", "no number"),
    }
    assert run.text("well") == expected(PROMPT, 5)
    assert run.core.memory.pool.held == 0


def test_a_request_ends_where_the_context_of_the_model_ends() -> None:
    run = started(max_len=12)
    run.core.submit(request("a", PROMPT, 99))
    run.drain()
    assert run.text("a") == expected(PROMPT, 2)
    assert run.ends() == {"a": "length"}


def test_the_last_event_divides_the_time_into_phases() -> None:
    run = Shadow(scheduler(slots=2, windows={INTERACTIVE: 0.5}))
    run.core.submit(request("a", PROMPT, 3))
    run.now = run.core.step(0.0).wake or 0.0
    run.core.submit(request("other", PROMPT, 9, arrival=0.5))
    run.step()
    run.core.submit(request("b", PROMPT, 1, arrival=0.51))
    run.drain()
    first, second, _ = (event.timing for event in run.events if event.timing)
    assert first is not None
    assert second is not None
    assert [first.queue, first.batch_wait, first.prefill, first.decode] == pytest.approx([0, 0.5, 0.01, 0.02])
    assert [second.queue, second.batch_wait, second.prefill, second.decode] == pytest.approx([0.02, 0, 0.01, 0])


@pytest.mark.parametrize("steps", range(6))
def test_an_abort_after_any_step_frees_everything(steps: int) -> None:
    run = started(budget=4)
    run.core.submit(request("a", PROMPT, 4))
    for _ in range(steps):
        run.step()
    assert run.core.abort("a")
    assert not run.core.abort("a")
    run.check_books()
    assert run.core.memory.pool.held == 0


def test_an_abort_while_a_step_is_executed_is_silent() -> None:
    run = started()
    run.core.submit(request("a", PROMPT, 4))
    plan = run.core.step(0.0)
    samples = run.execute(plan)
    run.core.abort("a")
    assert run.core.commit(plan, samples, 1.0) == []
    run.check_books()


def test_a_commit_with_a_sample_too_few_is_refused() -> None:
    run = started()
    run.core.submit(request("a", PROMPT, 4))
    with pytest.raises(ValueError, match="0 samples"):
        run.core.commit(run.core.step(0.0), [], 1.0)


def test_a_failed_step_ends_its_requests_with_the_reason_and_spares_the_others() -> None:
    run = started(slots=1)
    run.core.submit(request("a", PROMPT, 4))
    run.core.submit(request("b", PROMPT, 1))
    events = run.core.fail(run.core.step(0.0), "the step failed", 1.0)
    assert [(event.id, event.finish, event.error) for event in events] == [("a", "error", "the step failed")]
    run.drain()
    assert run.text("b") == expected(PROMPT, 1)


# --- results one step late


def test_a_stop_that_is_seen_a_step_late_costs_one_row_and_no_word() -> None:
    run = Shadow(scheduler(), ahead=True)
    text = expected(PROMPT, 6)
    run.core.submit(request("a", PROMPT, 9, stop_ids=frozenset({text[3]})))
    run.drain()
    assert (run.text("a"), run.ends()) == (text[: text.index(text[3]) + 1], {"a": "stop"})
    assert run.core.counters.steps == len(run.text("a")) + 1
    assert run.core.memory.pool.held == 0


def test_a_request_is_not_planned_past_its_own_limit() -> None:
    run = Shadow(scheduler(), ahead=True)
    run.core.submit(request("a", PROMPT, 3))
    run.drain()
    assert (run.text("a"), run.core.counters.steps) == (expected(PROMPT, 3), 3)


def test_the_late_token_of_a_preempted_request_is_dropped_and_drawn_again() -> None:
    run = Shadow(scheduler(6, hopeful=True), ahead=True)
    for name in "ab":
        run.core.submit(request(name, [*PROMPT, ord(name) % 7], 9))
    run.drain()
    assert run.core.counters.preemptions > 0
    assert {name: run.text(name) for name in "ab"} == {name: expected([*PROMPT, ord(name) % 7], 9) for name in "ab"}


def test_a_step_that_fails_sends_those_of_the_next_one_back_and_ends_its_own() -> None:
    run = Shadow(scheduler(budget=10), ahead=True)
    run.core.submit(request("a", PROMPT, 9))
    run.launch()
    run.core.submit(request("b", PROMPT[::-1], 3, arrival=1.0))
    run.launch()
    run.fail()
    assert run.ends() == {"a": "error"}
    run.drain()
    assert run.text("b") == expected(PROMPT[::-1], 3)


# --- deadlines


def test_a_request_without_a_token_by_its_deadline_ends_with_the_reason() -> None:
    run = started(slots=1)
    run.core.submit(request("a", PROMPT, 9))
    run.core.submit(request("b", PROMPT, 9, deadline=0.5))
    run.step()
    assert run.core.expire(0.4) == []
    (event,) = run.core.expire(0.5)
    assert (event.id, event.finish, event.error) == ("b", "abort", "no token before the deadline, 0.500 s")
    run.check_books()


def test_a_prefill_past_its_deadline_gives_its_pages_back() -> None:
    run = started(budget=4)
    run.core.submit(request("a", PROMPT, 9, deadline=0.5))
    run.step()
    assert [event.id for event in run.core.expire(1.0)] == ["a"]
    assert run.core.memory.pool.held == 0


def test_a_stream_that_has_begun_is_finished_after_its_deadline() -> None:
    run = started()
    run.core.submit(request("a", PROMPT, 3, deadline=0.5))
    run.step()
    assert run.core.expire(9.0) == []
    run.drain()
    assert run.ends() == {"a": "length"}


# --- batch window


def test_from_idle_the_first_request_waits_for_company_as_long_as_its_class_allows() -> None:
    run = Shadow(scheduler(windows={INTERACTIVE: 0.003, BATCH: 0.02}))
    run.core.submit(request("a", PROMPT, 2, cls=BATCH))
    assert run.core.step(0.0) == StepPlan(wake=0.02)
    run.core.submit(request("b", PROMPT, 2, arrival=0.01))
    assert run.core.step(0.01).wake == pytest.approx(0.013)
    plan = run.core.step(0.014)
    assert [name for name, *_ in shape(plan)] == ["b", "a"]
    assert plan.window == pytest.approx(0.014)


def test_a_window_whose_requests_went_away_is_forgotten() -> None:
    run = Shadow(scheduler(windows={INTERACTIVE: 0.01}))
    run.core.submit(request("a", PROMPT, 2))
    run.core.step(0.0)
    run.core.abort("a")
    run.core.step(0.005)
    run.core.submit(request("b", PROMPT, 2, arrival=5.0))
    run.core.step(5.0)
    assert run.core.step(5.01).window == pytest.approx(0.01)


def test_a_full_house_does_not_wait() -> None:
    run = Shadow(scheduler(slots=2, windows={INTERACTIVE: 1.0}))
    run.core.submit(request("a", PROMPT, 2))
    run.core.submit(request("b", PROMPT, 2))
    assert len(run.core.step(0.0).chunks) == 2


def test_a_running_engine_admits_without_a_window() -> None:
    run = Shadow(scheduler(windows={INTERACTIVE: 0.01}))
    run.core.submit(request("a", PROMPT, 9))
    run.now = 0.01
    run.step()
    run.core.submit(request("b", [7], 9, arrival=run.now))
    assert len(run.step().chunks) == 2


def test_an_idle_engine_wakes_for_the_nearest_deadline() -> None:
    run = Shadow(scheduler(windows={INTERACTIVE: 1.0}))
    assert run.core.step(0.0) == StepPlan()
    run.core.submit(request("a", PROMPT, 2, deadline=0.3))
    assert run.core.step(0.0).wake == pytest.approx(0.3)


# --- refusals


@cases(
    ("entry", "finish", "reason"),
    [
        (request("a", []), "refused", "at least one token"),
        (request("a", PROMPT, -1), "refused", "max_tokens 0 or more"),
        (request("a", [VOCAB]), "refused", "vocabulary of 50"),
        (request("a", [-1]), "refused", "vocabulary of 50"),
        (request("a", [1] * 20), "refused", "the prompt has 20 tokens; this model takes fewer than 20"),
        (request("a", [1] * 9, 8), "refused", "more KV memory than there is (16 tokens)"),
        (request("used", PROMPT), "error", "a request 'used' is running already"),
        (request("a", PROMPT), "queue_full", "queue is full (1 requests)"),
    ],
)
def test_a_request_that_cannot_be_queued_is_refused_with_the_reason(entry: Request, finish: str, reason: str) -> None:
    core = scheduler(4, max_len=20, max_waiting=1)
    assert core.submit(request("used", [1])) is None
    refusal = core.submit(entry)
    assert refusal is not None
    assert reason in refusal.message
    assert refusal.finish == finish
    assert len(core.waiting) == 1


def test_a_request_that_fills_the_pool_exactly_is_served() -> None:
    run = started(4)
    assert run.core.submit(request("a", [1] * 9, 7)) is None
    run.drain()
    assert run.text("a") == expected([1] * 9, 7)
