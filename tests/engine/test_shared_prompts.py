"""Choices of one prompt: the first computes it, the others run on its pages; where they cannot, they queue."""

from typing import Any

import pytest
from tests.engine.reference_scheduler import PAGE, PROMPT, Shadow, expected, next_token, request, scheduler

from paceline_workers.engine.scheduling import Request, SampledToken, StepPlan

LONG = [place * 7 % 50 for place in range(103)]
AHEAD = pytest.mark.parametrize("ahead", [False, True], ids=["at once", "one step late"])


class Counting(Shadow):
    """Adds up the tokens of prompts that are computed; each choice says something of its own."""

    computed = 0

    def execute(self, plan: StepPlan, tables: list[list[int]] | None = None) -> list[SampledToken]:
        self.computed += plan.work.prefill_tokens
        return super().execute(plan, tables)

    def submit(self, count: int, prompt: list[int], max_tokens: int = 6, group: str = "g", **fields: Any) -> None:
        for number in range(count):
            entry = request(f"{group}{number}", prompt, max_tokens, group=group, **fields)
            entry.choice = number
            assert self.core.submit(entry) is None


def own(entry: Request) -> int:
    return (next_token(entry) + 3 * entry.choice) % 50


def run_of(pages: int = 300, *, ahead: bool = False, **limits: Any) -> Counting:
    return Counting(scheduler(pages, **limits), own, ahead=ahead)


def alone(prompt: list[int], count: int, max_tokens: int = 6) -> list[list[int]]:
    run = run_of()
    for number in range(count):
        entry = request(f"c{number}", prompt, max_tokens)
        entry.choice = number
        run.core.submit(entry)
    run.drain()
    return [run.text(f"c{number}") for number in range(count)]


def told(run: Counting, count: int, group: str = "g") -> list[list[int]]:
    return [run.text(f"{group}{number}") for number in range(count)]


@AHEAD
@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("budget", [16, 64, 1000])
def test_a_prompt_is_computed_once_and_its_last_token_for_each_other_choice(
    budget: int, cache: bool, ahead: bool
) -> None:
    run = run_of(budget=budget, prefix_cache=cache, ahead=ahead)
    run.submit(8, LONG)
    run.drain()
    assert run.computed == len(LONG) + 7
    assert told(run, 8) == alone(LONG, 8)
    assert run.core.memory.pool.held == 0


@AHEAD
@pytest.mark.parametrize("length", [1, PAGE, PAGE + 1, 3 * PAGE])
def test_prompts_of_any_length_are_shared(length: int, ahead: bool) -> None:
    run = run_of(ahead=ahead)
    run.submit(3, LONG[:length])
    run.drain()
    assert told(run, 3) == alone(LONG[:length], 3)
    assert run.core.memory.pool.held == 0


@AHEAD
def test_a_first_choice_that_ends_with_its_first_token_leaves_the_prompt_to_the_others(ahead: bool) -> None:
    run = run_of(ahead=ahead)
    run.submit(4, LONG, max_tokens=1)
    run.drain()
    assert run.computed == len(LONG) + 3
    assert told(run, 4) == alone(LONG, 4, max_tokens=1)


@pytest.mark.parametrize("limits", [{"slots": 2}, {"pages": 30, "hopeful": True}, {"pages": 29}])
def test_for_want_of_seats_or_pages_choices_queue(limits: dict[str, Any]) -> None:
    run = run_of(**limits)
    run.submit(8, LONG)
    run.drain()
    assert told(run, 8) == alone(LONG, 8)
    assert run.core.memory.pool.held == 0


def test_choices_whose_first_is_preempted_wait_for_its_return() -> None:
    run = run_of()
    run.submit(3, LONG)
    run.core.retract(run.launch())
    run.flights.clear()
    assert [one.id for one in run.core.running] == []
    run.drain()
    assert run.computed == len(LONG) + 2
    assert told(run, 3) == alone(LONG, 3)


@pytest.mark.parametrize("steps", [0, 1, 3, 7])
def test_choices_whose_first_is_aborted_go_on_without_it(steps: int) -> None:
    run = run_of()
    run.submit(3, LONG)
    for _ in range(steps):
        run.step()
    run.core.abort("g0")
    run.drain()
    assert told(run, 3)[1:] == alone(LONG, 3)[1:]
    assert run.core.memory.pool.held == 0


def test_a_parked_choice_can_be_aborted_and_counts_as_waiting() -> None:
    run = run_of()
    run.submit(3, LONG)
    assert len(run.core.waiting) == 3
    run.step()
    assert len(run.core.waiting) == 2
    assert run.core.abort("g1")
    assert len(run.core.waiting) == 1
    run.drain()
    assert told(run, 3) == [alone(LONG, 3)[0], [], alone(LONG, 3)[2]]


def test_a_parked_choice_ends_at_its_deadline() -> None:
    run = run_of(budget=4)
    run.submit(2, LONG, deadline=0.05)
    for _ in range(10):
        run.step()
        run.events += run.core.expire(run.now)
    assert run.ends() == {"g0": "abort", "g1": "abort"}
    assert run.core.memory.pool.held == 0


def test_a_step_that_raises_ends_the_choices_that_were_in_it_alone() -> None:
    run = run_of()
    run.submit(3, LONG)
    run.launch()
    run.fail()
    run.drain()
    assert run.ends() == {"g0": "error", "g1": "length", "g2": "length"}


def test_choices_that_begin_unlike_do_not_wait_for_each_other() -> None:
    """As when a stream of several choices is resumed, each at a place of its own."""
    run = Shadow(scheduler(budget=64))
    run.core.submit(request("g0", PROMPT, 4, group="g"))
    run.core.submit(request("g1", [*PROMPT, 7], 4, group="g"))
    run.core.submit(request("g2", PROMPT, 4, group="g", salt="other"))
    run.step()
    assert {one.id for one in run.core.running} == {"g0", "g1", "g2"}
    run.drain()
    assert run.text("g1") == expected([*PROMPT, 7], 4)


def test_a_choice_that_comes_late_is_served_by_itself() -> None:
    run = run_of()
    run.submit(1, LONG)
    for _ in range(9):
        run.step()
    entry = request("late", LONG, 6, group="g")
    run.core.submit(entry)
    run.drain()
    assert run.text("late") == run.text("g0")
