"""The simulated engine keeps the loop's order of events, and leaps change nothing that anyone can see."""

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulator.engines import MODEL, REPORT, Client, spec

from paceline_core.wire import WorkerState
from paceline_planner.steptime import StepWork
from paceline_simulator.engine import STOPS, EngineSpec, SimulatedEngine, Submission
from paceline_simulator.events import EventQueue
from paceline_workers.engine.scheduling import Request
from paceline_workers.messages import Sampling


def submission(name: str, prompt: int, output: int, letter: int = 7, most: int = 4096) -> Submission:
    request = Request(name, prompt, [letter] * prompt, max(most, output), Sampling(temperature=0.0), 0.0)
    request.stop_ids = STOPS
    return Submission(request, output)


def started(made: EngineSpec) -> tuple[EventQueue, Client, SimulatedEngine]:
    events = EventQueue()
    client = Client(events)
    return events, client, SimulatedEngine(made, events, client, REPORT)


def seconds(prompt: int = 0, decodes: int = 0, kv: int = 0) -> float:
    return MODEL.seconds(prefill_tokens=prompt, sequences=decodes, kv_tokens=kv, context=(prompt + 1) / 2)


@pytest.mark.parametrize("leaps", [False, True])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_request_alone_takes_its_steps(ahead: bool, leaps: bool) -> None:
    events, client, engine = started(spec(ahead=ahead, leaps=leaps))
    engine.submit(submission("a", 100, 30))
    events.run()
    assert client.first["a"] == pytest.approx(seconds(100))
    decodes = sum(seconds(0, 1, 101 + token) for token in range(29))
    assert client.ends["a"][0] == pytest.approx(seconds(100) + decodes)
    assert client.ends["a"][1] == "stop"
    assert (engine.open, len(engine.scheduler.running)) == (0, 0)


def test_a_request_that_arrives_after_the_next_step_was_planned_waits_one_step_longer() -> None:
    first = {}
    for share in (0.5, 0.95):
        events, client, engine = started(spec())
        engine.submit(submission("a", 100, 40))
        begin = seconds(100) + seconds(0, 1, 101)
        events.at(begin + share * seconds(0, 1, 102), engine.submit, submission("late", 20, 2, 8))
        events.run()
        first[share] = client.first["late"]
    longer = first[0.95] - first[0.5]
    assert longer == pytest.approx(seconds(0, 1, 103), rel=0.01)


Step = tuple[float, int, int, int]
"""Gap before it in steps, prompt, output, letter of the prompt."""
STEPS = st.lists(
    st.tuples(st.floats(0.0, 30.0), st.integers(1, 150), st.integers(1, 40), st.integers(5, 7)), min_size=1, max_size=8
)


def outcome(steps: list[Step], made: EngineSpec, looks: int, stops: int) -> Any:
    """All that clients and gateways see: times, ends, and load reports at odd moments."""
    events, client, engine = started(made)
    at = 0.0
    for number, (gap, prompt, output, letter) in enumerate(steps):
        at += gap * 0.0131
        events.at(at, engine.submit, submission(f"r{number}", prompt, output, letter))
    reports: list[Any] = []
    for number in range(looks):
        events.at(0.0371 * (number + 1), lambda: reports.append(engine.load_report()))
    if stops < len(steps):
        name = f"r{stops}"
        events.at(at / 2 + 0.0177, lambda: engine.abort(name) if name in engine._submissions else None)
    events.run()
    engine.memory.check([request.pages for request in engine.scheduler.running])
    return client.first, client.ends, reports, asdict(engine.scheduler.counters), engine.memory.pool.evicted


@given(STEPS, st.integers(10, 60), st.booleans(), st.integers(0, 8), st.integers(0, 9))
def test_leaps_change_nothing_that_clients_or_gateways_see(
    steps: list[Step], pages: int, ahead: bool, looks: int, stops: int
) -> None:
    leapt, stepped = (outcome(steps, spec(pages, ahead=ahead, leaps=leaps), looks, stops) for leaps in (True, False))
    assert leapt == stepped


def test_a_prompt_that_can_never_run_ends_with_the_engines_reason() -> None:
    events, client, engine = started(spec(pages=4))
    engine.submit(submission("a", 100, 2))
    assert client.ends == {"a": (0.0, "refused")}
    assert not client.first
    events.run()


def test_an_aborted_request_keeps_the_tokens_that_its_client_has() -> None:
    events, client, engine = started(spec())
    engine.submit(submission("a", 50, 100))
    events.run(until=1.0)
    produced = engine.produced("a")
    assert 0 < produced < 100
    request = engine.abort("a")
    assert request.produced == produced
    events.run()
    assert (client.ends, engine.open) == ({}, 0)
    with pytest.raises(KeyError):
        engine.abort("a")


def test_a_report_says_how_it_is_and_whether_it_drains() -> None:
    events, _, engine = started(spec())
    idle = engine.load_report()
    assert (idle.state, idle.slots, idle.kv.free, idle.running) == (WorkerState.READY, 64, 4000, 0)
    for number in range(70):
        engine.submit(submission(f"r{number}", 50, 100, 5 + number, most=100))
    events.run(until=1.0)
    engine.drain()
    busy = engine.load_report()
    assert (busy.state, busy.running, sum(busy.waiting.values())) == (WorkerState.DRAINING, 64, 6)
    assert busy.kv.free < 4000


def test_an_engine_that_stops_says_nothing_more() -> None:
    events, client, engine = started(spec())
    engine.submit(submission("a", 50, 100))
    events.run(until=0.5)
    engine.stop()
    events.run()
    assert client.ends == {}


def test_steps_take_what_the_clock_says_and_not_what_the_engine_believes() -> None:
    class Slow:
        def seconds(self, work: StepWork) -> float:
            return 1.0 if work.prefill_tokens or work.sequences else 0.0

    made = spec()
    events, client, engine = started(EngineSpec(Slow(), MODEL, made.limits, made.pages))
    engine.submit(submission("a", 100, 5))
    events.run()
    assert client.ends["a"][0] == pytest.approx(5.0)
    assert engine.busy_s == pytest.approx(6.0)
