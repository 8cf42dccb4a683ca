"""Pages kept for a class: the others plan around them, nobody waits for ever, and the kept ones are there at once."""

from collections.abc import Iterable

import pytest
from tests.engine.reference_scheduler import PAGE, Shadow, request, started
from tests.every import cases

from paceline_core.errors import InvalidInput
from paceline_core.registry.enums import RequestClass
from paceline_workers.config import EngineConfig
from paceline_workers.engine import sizing
from paceline_workers.engine.scheduling.admission import Admission, Forecast, reserved
from paceline_workers.engine.scheduling.cost import UNKNOWN
from paceline_workers.engine.scheduling.plan import SchedulerLimits
from paceline_workers.engine.scheduling.step_builder import StepBuilder

INTERACTIVE, BATCH, OFFLINE = RequestClass
LIMITS = SchedulerLimits(100, 50, PAGE, 8, 32, reserved={INTERACTIVE: 0.5, BATCH: 0.25})


def kept(share: float = 0.5, pages: int = 16) -> Shadow:
    return started(pages, slots=8, budget=64, reserved={INTERACTIVE: share})


def submit(run: Shadow, cls: RequestClass, names: Iterable[str], pages: int = 2) -> None:
    """Requests that each take so many pages and then one more."""
    for name in names:
        prompt = [ord(name) % 50] * (pages * PAGE - 1)
        assert run.core.submit(request(name, prompt, PAGE, arrival=run.now, cls=cls)) is None


def running(run: Shadow) -> str:
    return "".join(sorted(entry.id for entry in run.core.running))


def test_less_urgent_classes_leave_the_kept_pages_alone_and_the_class_has_them_at_once() -> None:
    run = kept()
    submit(run, BATCH, "abcd")
    run.step()
    assert running(run) == "ab"
    submit(run, INTERACTIVE, "xy")
    run.step()
    assert running(run) == "abxy"
    assert run.core.counters.preemptions == 0
    run.drain()
    assert set(run.ends().values()) == {"length"}


def test_less_urgent_classes_leave_the_kept_slots_alone_and_the_class_has_them_at_once() -> None:
    run = started(64, slots=4, budget=64, reserved={INTERACTIVE: 0.5})
    submit(run, BATCH, "abc")
    run.step()
    assert running(run) == "ab"
    submit(run, INTERACTIVE, "xy")
    run.step()
    assert running(run) == "abxy"
    assert run.core.counters.preemptions == 0
    run.drain()
    assert run.ends() == dict.fromkeys("abcxy", "length")


def test_without_a_share_everybody_may_plan_with_all() -> None:
    run = started(16, slots=8, budget=64)
    submit(run, BATCH, "abcd")
    run.step()
    assert running(run) == "abcd"


def test_the_class_itself_may_fill_everything() -> None:
    run = kept()
    submit(run, INTERACTIVE, "abcd")
    run.step()
    assert running(run) == "abcd"


def test_a_request_that_is_larger_than_what_is_left_runs_when_none_of_its_kind_does() -> None:
    run = kept(0.75)
    submit(run, BATCH, "a", pages=8)
    submit(run, INTERACTIVE, "x")
    run.step()
    assert running(run) == "ax"
    submit(run, BATCH, "b")
    run.step()
    assert running(run) == "ax"
    run.drain()
    assert run.ends() == dict.fromkeys("abx", "length")


def test_nobody_as_urgent_or_less_passes_one_that_has_to_wait() -> None:
    run = kept()
    submit(run, BATCH, "a", pages=4)
    run.step()
    submit(run, BATCH, "b", pages=6)
    submit(run, OFFLINE, "c", pages=1)
    submit(run, INTERACTIVE, "x")
    run.step()
    assert running(run) == "ax"
    run.drain()
    assert run.ends() == dict.fromkeys("abcx", "length")


@cases(
    ("urgency", "pages", "others", "barred"),
    [
        (0, 16, [(0, (0, 16))], False),
        (1, 4, [(1, (0, 4))], False),
        (1, 5, [(1, (0, 4))], True),
        (1, 5, [(0, (0, 4))], False),
        (1, 5, [(2, (0, 4))], True),
        (2, 4, [(1, (0, 4))], False),
        (2, 2, [(2, (0, 2))], False),
        (2, 3, [(2, (0, 2))], True),
        (2, 3, [(1, (0, 2))], False),
    ],
)
def test_each_share_holds_against_all_that_are_less_urgent_together(
    urgency: int, pages: int, others: list[tuple[int, tuple[int, int]]], barred: bool
) -> None:
    assert reserved(urgency, [(0, pages)], others, LIMITS, 16) is barred


def test_shares_that_leave_nothing_and_classes_that_are_none_are_refused() -> None:
    for shares, message in (({"interactive": 0.6, "batch": 0.4}, "leaves nothing"), ({"royal": 0.1}, "is no class")):
        engine = EngineConfig.model_validate({"class_reserved": shares})
        with pytest.raises(InvalidInput, match=f"engine.class_reserved: .*{message}"):
            sizing.limits(engine, context=100, vocab_size=9, pages=10)


def test_one_that_has_to_leave_pages_bars_its_class_and_those_below_and_a_lack_of_pages_bars_all() -> None:
    step, waiting = StepBuilder(10, UNKNOWN, 4), request("b", [1], cls=BATCH)
    step.close(waiting, reserved=True)
    assert [step.admits(name) for name in RequestClass] == [True, False, False]
    step.close(waiting, reserved=False)
    assert not any(step.admits(name) for name in RequestClass)


def test_debt_is_what_those_that_run_will_lack() -> None:
    run = started(8, slots=8, budget=64, hopeful=True)
    for name in "abc":
        assert run.core.submit(request(name, [ord(name) % 50] * 7, 20)) is None
    run.step()
    assert run.core.admission.debt(run.core.running) == 0
    foreseeing = Admission(run.core.memory, run.core.limits, Forecast(32))
    assert len(run.core.running) == 3
    for entry in run.core.running:
        entry.review = 0  # what the hopeful forecast said is to be looked up again
    assert foreseeing.debt(run.core.running) == 3 * 7 - 8
