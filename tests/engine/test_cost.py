"""How the step-time model limits chunks, and what is shed because it could not be in time."""

from math import inf

import pytest
from tests.engine.reference_scheduler import PAGE, PROMPT, Shadow, expected, request, scheduler, shape
from tests.every import cases

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.attention_window import AttentionWindow
from paceline_workers.engine.scheduling import Rejection, Request, cost
from paceline_workers.engine.scheduling.step_builder import chunk_seconds, longest_chunk
from paceline_workers.messages import Sampling, Submit

INTERACTIVE, BATCH, _ = RequestClass
MODEL = StepTime(base=0.010, prefill=0.001, sequence=0.0005, kv=0.00001, context=0.000002, observations=99)


def promising(tpot: float, budget: int = 64) -> Shadow:
    return Shadow(scheduler(256, budget=budget, tpot={INTERACTIVE: tpot}, model=MODEL))


def decoding(run: Shadow) -> None:
    run.core.submit(request("old", PROMPT, 99))
    run.step()


def test_alone_a_prompt_takes_the_whole_budget() -> None:
    run = promising(0.012)
    run.core.submit(request("a", PROMPT * 9))
    assert shape(run.step()) == [("a", 0, 64)]


def test_beside_a_decode_a_chunk_ends_where_the_promise_would_break() -> None:
    run = promising(0.040)
    decoding(run)
    run.core.submit(request("new", [7] * 90, arrival=run.now))
    plan = run.step()
    assert [chunk.request.id for chunk in plan.chunks] == ["old", "new"]
    spent = MODEL.seconds(
        prefill_tokens=plan.work.prefill_tokens, sequences=1, kv_tokens=plan.work.kv_tokens, context=plan.work.context
    )
    assert spent <= 0.040 < spent + chunk_seconds(MODEL, plan.chunks[1].count, 1)


@cases("start", [0, 30, 400])
@cases("budget", [0.0, 0.004, 0.03, 0.3])
@cases("seen", [1.0, 20.0, 100.0, inf])
def test_the_longest_chunk_within_a_budget_is_found_whatever_is_in_sight(
    seen: float, budget: float, start: int
) -> None:
    count = longest_chunk(MODEL, start, budget, seen)
    assert count is not None
    assert chunk_seconds(MODEL, start, count, seen) <= budget < chunk_seconds(MODEL, start, count + 1, seen)


def test_with_a_window_a_prompts_end_is_cut_into_chunks_as_long_as_its_middle() -> None:
    run = Shadow(
        scheduler(256, budget=64, attention_window=AttentionWindow(16, 4), tpot={INTERACTIVE: 0.026}, model=MODEL)
    )
    decoding(run)
    run.core.submit(request("new", [7] * 200, arrival=run.now))
    counts = [chunk.count for _ in range(20) for chunk in run.step().chunks if chunk.request.id == "new"]
    assert len(set([count for count in counts if count > 1][1:-1])) == 1


@pytest.mark.parametrize(("own", "engine"), [(0.030, 0.040), (0.050, 0.040), (0.030, None)])
def test_a_promise_that_came_with_a_request_and_the_engines_own_are_both_kept(own: float, engine: float | None) -> None:
    run = Shadow(scheduler(256, budget=64, tpot={} if engine is None else {INTERACTIVE: engine}, model=MODEL))
    told = Request.of(Submit("old", PROMPT, 99, Sampling(temperature=0.0), tpot_s=own), (), 0.0)
    run.core.submit(told)
    run.step()
    run.core.submit(request("new", [7] * 90, arrival=run.now))
    plan = run.step()
    spent = MODEL.seconds(
        prefill_tokens=plan.work.prefill_tokens, sequences=1, kv_tokens=plan.work.kv_tokens, context=plan.work.context
    )
    promise = own if engine is None else min(own, engine)
    assert spent <= promise < spent + chunk_seconds(MODEL, plan.chunks[1].count, 1)


def test_steps_that_take_up_to_the_margin_longer_than_predicted_keep_the_promise() -> None:
    run = promising(0.040)
    run.core.learn(run.core.costs.model, 0.25)
    decoding(run)
    run.core.submit(request("new", [7] * 90, arrival=run.now))
    plan = run.step()
    spent = MODEL.seconds(
        prefill_tokens=plan.work.prefill_tokens, sequences=1, kv_tokens=plan.work.kv_tokens, context=plan.work.context
    )
    assert 1.25 * spent <= 0.040 < 1.25 * (spent + chunk_seconds(MODEL, plan.chunks[1].count, 1))


def test_a_promise_that_cannot_be_kept_still_lets_a_page_of_prefill_through() -> None:
    run = promising(0.001)
    decoding(run)
    run.core.submit(request("new", [7] * 10, 1, arrival=run.now))
    assert [shape(run.step())[1] for _ in range(3)] == [("new", 0, PAGE), ("new", 4, PAGE), ("new", 8, 2)]


def test_a_class_without_a_promise_does_not_cap_the_prefill_of_others() -> None:
    run = promising(0.001)
    run.core.submit(request("old", PROMPT, 99, cls=BATCH))
    run.step()
    run.core.submit(request("new", [7] * 90, arrival=run.now))
    assert shape(run.step())[1] == ("new", 0, 63)


@pytest.mark.parametrize("model", [MODEL, StepTime(base=0.01, prefill=0.001)])
@pytest.mark.parametrize("start", [0, 100])
def test_the_longest_chunk_is_the_longest_within_its_seconds(model: StepTime, start: int) -> None:
    count = longest_chunk(model, start, 0.5)
    assert count is not None
    assert chunk_seconds(model, start, count) <= 0.5 < chunk_seconds(model, start, count + 1)


def test_the_chunks_of_a_prompt_add_up_to_its_service() -> None:
    cut = chunk_seconds(MODEL, 0, 7) + chunk_seconds(MODEL, 7, 93)
    assert MODEL.base + cut == pytest.approx(cost.service(MODEL, 100, 100))


# --- shedding


def test_a_prompt_that_would_be_late_is_shed_before_anything_is_computed() -> None:
    run = Shadow(scheduler(slots=1, model=MODEL))
    run.core.submit(request("first", PROMPT, 9))
    run.step()
    run.core.submit(request("late", [7] * 40, 9, arrival=run.now, deadline=run.now + 0.08))
    assert run.core.expire(run.now) == []
    while not (ends := run.core.expire(run.now)):
        run.step()
    assert [(event.id, event.finish) for event in ends] == [("late", "abort")]
    assert "shed: 40 tokens are to compute" in ends[0].error
    assert run.now < 0.01 + 0.08
    assert run.core.counters.shed_by == {"backlog": 1}


def test_a_prompt_that_could_not_be_in_time_even_if_it_began_at_once_is_shed_at_once() -> None:
    run = Shadow(scheduler(model=MODEL))
    run.core.submit(request("late", [7] * 40, 9, deadline=0.02))
    (event,) = run.core.expire(0.0)
    assert event.error.startswith("shed: 40 tokens")


def test_what_waits_before_it_counts_against_a_deadline() -> None:
    run = Shadow(scheduler(slots=1, model=MODEL))
    for number in range(20):
        run.core.submit(request(f"r{number}", [number] * 20, 9))
    refusal = run.core.submit(request("late", [40] * 20, 9, deadline=0.3))
    assert refusal is not None
    assert refusal.message.startswith("shed: 400 tokens are to compute before")
    assert refusal.finish == "abort"
    assert run.core.submit(request("short", [40], 9, deadline=0.3)) is None
    assert run.core.submit(request("patient", [41] * 20, 9, deadline=3.0)) is None


def test_requests_that_are_not_served_are_counted_by_why() -> None:
    run = Shadow(scheduler(slots=1, max_waiting=2))
    run.core.submit(request("first", PROMPT, 9))
    run.step()
    run.core.submit(request("late", [8], 9, arrival=run.now, deadline=run.now + 0.001))
    run.core.submit(request("patient", [8], 9, arrival=run.now))
    full = Rejection("the engine's queue is full (2 requests)", "queue_full")
    assert run.core.submit(request("full", [8], 9, arrival=run.now)) == full
    assert run.core.expire(run.now + 1.0)
    assert run.core.counters.shed_by == {"queue_full": 1, "deadline": 1}


def test_a_cached_prompt_is_not_shed() -> None:
    run = Shadow(scheduler(model=MODEL))
    run.core.submit(request("first", [7] * 40, 1))
    run.drain()
    run.core.submit(request("known", [7] * 40, 2, arrival=run.now, deadline=run.now + 0.03))
    run.drain()
    assert run.text("known") == expected([7] * 40, 2)


@pytest.mark.parametrize("model", [None, MODEL.model_copy(update={"observations": 9})])
def test_without_a_model_that_has_seen_enough_nothing_is_shed(model: StepTime | None) -> None:
    run = Shadow(scheduler(model=model))
    assert run.core.submit(request("a", [7] * 40, 2, deadline=0.001)) is None
    assert run.core.expire(0.0) == []
