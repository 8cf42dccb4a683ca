"""The backlog in seconds, by hand."""

import pytest
from tests.worker.test_measures import beat

from paceline_core.registry import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.messages import Heartbeat, StepStats
from paceline_workers.server.telemetry.metrics import backlog_seconds

MODEL = StepTime(base=0.01, prefill=0.001, sequence=0.002, kv=1e-5, context=1e-6)


def queued(*recent: StepStats, **tokens: int) -> Heartbeat:
    """Two requests run, three of `batch` wait."""
    plain = beat(1, *recent)
    return type(plain)(
        **{name: getattr(plain, name) for name in plain.__struct_fields__}
        | {"queued_tokens": {RequestClass(name): count for name, count in tokens.items()}}
    )


def test_a_queue_takes_its_prompts_and_the_steps_that_they_need() -> None:
    backlog = backlog_seconds(queued(batch=300), MODEL, step_tokens=102)
    prompts = 300 * (0.001 + 1e-6 * 50)
    steps = 3 * (0.01 + 2 * 0.002)
    assert backlog == pytest.approx({RequestClass.BATCH: prompts + steps})


def test_what_the_decodes_read_slows_each_step() -> None:
    step = StepStats(0.1, 8, 2, 3, kv_tokens=1000)
    lone = backlog_seconds(queued(batch=100), MODEL, step_tokens=102)[RequestClass.BATCH]
    beside = backlog_seconds(queued(step, batch=100), MODEL, step_tokens=102)[RequestClass.BATCH]
    assert beside - lone == pytest.approx(1000 * 1e-5)


def test_an_empty_queue_is_no_backlog() -> None:
    assert backlog_seconds(queued(interactive=0), MODEL, step_tokens=102) == {RequestClass.INTERACTIVE: 0.0}


def test_nothing_is_said_of_an_engine_whose_speed_is_unknown() -> None:
    assert backlog_seconds(queued(batch=300), StepTime(base=0.0, prefill=0.0), step_tokens=102) == {}


def test_prompts_that_cost_no_more_than_the_step_they_are_in_take_their_steps() -> None:
    model = StepTime(base=0.01, prefill=0.0)
    assert backlog_seconds(queued(batch=300), model, step_tokens=102)[RequestClass.BATCH] == pytest.approx(0.03)


def test_requests_that_take_all_of_a_step_leave_it_a_token() -> None:
    assert backlog_seconds(queued(batch=10), MODEL, step_tokens=1)[RequestClass.BATCH] > 10 * (0.01 + 0.004)
