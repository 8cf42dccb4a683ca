"""Three clocks of one step: each answers as its source does, and bad tables are refused by field."""

import pytest

from paceline_core.errors import InvalidInput
from paceline_core.wire import StepTime
from paceline_planner import accelerators, shapes
from paceline_planner.step_clock import FittedClock, RooflineClock, StepClock, TableClock
from paceline_planner.steptime import StepWork, prior, step_seconds

SHAPE, H100 = shapes.shape("llama-3.1-8b"), accelerators.accelerator("h100")
PREFILLS = [(tokens, context) for tokens in (128, 512, 2048) for context in (256.0, 4096.0)]
DECODES = [(sequences, each) for sequences in (1, 8, 64) for each in (256, 4096)]


def measured() -> list[tuple[StepWork, float]]:
    """A table whose figures are the roofline's."""
    steps = [StepWork(prefill_tokens=tokens, context=context) for tokens, context in PREFILLS]
    steps += [StepWork(sequences=count, kv_tokens=count * each) for count, each in DECODES]
    return [(work, step_seconds(SHAPE, H100, work)) for work in steps]


def test_a_roofline_is_the_planners_step() -> None:
    work = StepWork(100, 50.0, 8, 4000)
    assert RooflineClock(SHAPE, H100).seconds(work) == step_seconds(SHAPE, H100, work)


def test_a_fit_is_its_linear_model() -> None:
    clock = FittedClock(StepTime(base=1.0, prefill=0.5, sequence=0.25, kv=0.125, context=2.0))
    assert clock.seconds(StepWork(2, 3.0, 4, 8)) == 1 + 0.5 * 2 + 0.25 * 4 + 0.125 * 8 + 2 * 2 * 3


@pytest.mark.parametrize(
    "clock",
    [RooflineClock(SHAPE, H100), FittedClock(prior(SHAPE, H100)), TableClock.of(measured())],
    ids=lambda clock: type(clock).__name__,
)
def test_a_step_without_work_takes_no_time_and_more_work_never_less(clock: StepClock) -> None:
    assert clock.seconds(StepWork()) == 0.0
    decode, prefill = StepWork(sequences=8, kv_tokens=8000), StepWork(prefill_tokens=512, context=256.5)
    mixed = clock.seconds(StepWork(512, 256.5, 8, 8000))
    assert mixed >= max(clock.seconds(decode), clock.seconds(prefill)) > 0


@pytest.mark.parametrize(("work", "seconds"), measured())
def test_a_table_gives_measured_steps_back(work: StepWork, seconds: float) -> None:
    assert TableClock.of(measured()).seconds(work) == pytest.approx(seconds)


def test_a_table_is_linear_between_and_beyond_its_points_and_flat_below() -> None:
    clock = TableClock.of([(StepWork(100), 1.0), (StepWork(200), 3.0), (StepWork(sequences=1, kv_tokens=10), 0.5)])
    assert [clock.seconds(StepWork(tokens)) for tokens in (50, 100, 150, 300)] == [1.0, 1.0, 2.0, 5.0]
    assert clock.seconds(StepWork(100, 0.0, 1, 10)) == 1.0 + 0.5 - 0.5


@pytest.mark.parametrize(
    ("steps", "field", "text"),
    [
        ([(StepWork(1, 1.0, 1, 1), 1.0)], "steps", "neither a pure prefill nor a pure decode"),
        ([(StepWork(sequences=1, kv_tokens=1), 1.0)], "steps.prefill", "is empty"),
        (measured()[1:], "steps.prefill", "lacks the step"),
        ([*measured(), (StepWork(128, 256.0), 0.0)], "steps.prefill", "longer than 0 s"),
    ],
)
def test_a_bad_table_is_refused_by_field(steps: list[tuple[StepWork, float]], field: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=text) as refused:
        TableClock.of(steps)
    assert refused.value.field == field
