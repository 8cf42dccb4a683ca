"""The simulated engine keeps the loop's order of events, and leaps change nothing that anyone can see."""

from dataclasses import asdict
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulator.engines import MODEL, REPORT, Client, spec, submission

from paceline_core.wire import WorkerState
from paceline_planner.steptime import StepWork
from paceline_simulator.engine import EngineSpec, SimulatedEngine
from paceline_simulator.events import EventQueue


class Started:
    """An engine with its clock and its client."""

    def __init__(self, made: EngineSpec) -> None:
        self.events = EventQueue()
        self.client = Client(self.events)
        self.engine = SimulatedEngine(made, self.events, REPORT)

    def submit(
        self, at: float, name: str, prompt: int, output: int, letter: int = 7, most: int = 4096, deadline_s: float = inf
    ) -> None:
        made = submission(self.client, name, prompt, output, letter, most)
        made.deadline_s = deadline_s
        self.events.at(at, self.engine.submit, made)


def seconds(prompt: int = 0, decodes: int = 0, kv: int = 0) -> float:
    return MODEL.seconds(prefill_tokens=prompt, sequences=decodes, kv_tokens=kv, context=(prompt + 1) / 2)


@pytest.mark.parametrize("leaps", [False, True])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_request_alone_takes_its_steps(ahead: bool, leaps: bool) -> None:
    run = Started(spec(ahead=ahead, leaps=leaps))
    run.submit(0.0, "a", 100, 30)
    run.events.run()
    assert run.client.first["a"] == pytest.approx(seconds(100))
    decodes = sum(seconds(0, 1, 101 + token) for token in range(29))
    assert run.client.ends["a"][0] == pytest.approx(seconds(100) + decodes)
    assert run.client.ends["a"][1] == "stop"
    assert (run.engine.open, len(run.engine.scheduler.running)) == (0, 0)


def test_a_request_that_arrives_after_the_next_step_was_planned_waits_one_step_longer() -> None:
    first = {}
    for share in (0.5, 0.95):
        run = Started(spec())
        run.submit(0.0, "a", 100, 40)
        begin = seconds(100) + seconds(0, 1, 101)
        run.submit(begin + share * seconds(0, 1, 102), "late", 20, 2, 8)
        run.events.run()
        first[share] = run.client.first["late"]
    longer = first[0.95] - first[0.5]
    assert longer == pytest.approx(seconds(0, 1, 103), rel=0.01)


Step = tuple[float, int, int, int]
"""Gap before it in steps, prompt, output, letter of the prompt."""
STEPS = st.lists(
    st.tuples(st.floats(0.0, 30.0), st.integers(1, 150), st.integers(1, 40), st.integers(5, 7)), min_size=1, max_size=8
)


def outcome(steps: list[Step], made: EngineSpec, looks: int, stops: int, deadline_s: float) -> Any:
    """All that clients and gateways see: times, ends, and load reports at odd moments."""
    run = Started(made)
    at = 0.0
    for number, (gap, prompt, output, letter) in enumerate(steps):
        at += gap * 0.0131
        run.submit(at, f"r{number}", prompt, output, letter, deadline_s=deadline_s)
    reports: list[Any] = []
    for number in range(looks):
        run.events.at(0.0371 * (number + 1), lambda: reports.append(run.engine.load_report()))
    if stops < len(steps):
        name = f"r{stops}"
        run.events.at(at / 2 + 0.0177, lambda: run.engine.abort(name) if name in run.engine._submissions else None)
    run.events.run()
    run.engine.memory.check([request.pages for request in run.engine.scheduler.running])
    return (
        run.client.first,
        run.client.ends,
        reports,
        asdict(run.engine.scheduler.counters),
        run.engine.memory.pool.evicted,
    )


@given(
    STEPS,
    st.integers(10, 60),
    st.booleans(),
    st.integers(0, 8),
    st.integers(0, 9),
    st.sampled_from([2048, 40]),
    st.sampled_from([inf, 0.08]),
)
def test_leaps_change_nothing_that_clients_or_gateways_see(
    steps: list[Step], pages: int, ahead: bool, looks: int, stops: int, step_tokens: int, deadline_s: float
) -> None:
    leapt, stepped = (
        outcome(steps, spec(pages, ahead=ahead, leaps=leaps, step_tokens=step_tokens), looks, stops, deadline_s)
        for leaps in (True, False)
    )
    assert leapt == stepped


@given(STEPS, st.integers(10, 60), st.lists(st.floats(0.0, 3.0), min_size=1, max_size=6))
def test_what_is_left_may_be_looked_at_any_time_and_is_the_same_with_leaps(
    steps: list[Step], pages: int, looks: list[float]
) -> None:
    seen, ends = [], []
    for leaps, times in ((True, looks), (False, looks), (True, [])):
        run, left = Started(spec(pages, leaps=leaps)), list[int]()
        for number, (gap, prompt, output, letter) in enumerate(steps):
            run.submit(number * gap * 0.0131, f"r{number}", prompt, output, letter)
        for at in times:
            run.events.at(at, lambda run=run, left=left: left.append(run.engine.remaining_load().remaining_tokens))
        run.events.run()
        seen.append(left)
        ends.append((run.client.first, run.client.ends, asdict(run.engine.scheduler.counters)))
    assert seen[0] == seen[1]
    assert ends[0] == ends[1] == ends[2]


def test_a_prompt_that_can_never_run_ends_with_the_engines_reason() -> None:
    run = Started(spec(pages=4))
    run.submit(0.0, "a", 100, 2)
    run.events.run()
    assert run.client.ends == {"a": (0.0, "refused")}
    assert not run.client.first


def test_an_aborted_request_keeps_the_tokens_that_its_client_has() -> None:
    run = Started(spec())
    run.submit(0.0, "a", 50, 100)
    run.events.run(until=1.0)
    request = run.engine.abort("a")
    assert 0 < request.produced < 100
    run.events.run()
    assert (run.client.ends, run.engine.open) == ({}, 0)
    with pytest.raises(KeyError):
        run.engine.abort("a")


def test_a_report_says_how_it_is_and_whether_it_drains() -> None:
    run = Started(spec())
    idle = run.engine.load_report()
    assert (idle.state, idle.slots, idle.kv.free, idle.running) == (WorkerState.READY, 64, 4000, 0)
    for number in range(70):
        run.submit(0.0, f"r{number}", 50, 100, 5 + number, most=100)
    run.events.run(until=1.0)
    run.engine.drain()
    busy = run.engine.load_report()
    assert (busy.state, busy.running, sum(busy.waiting.values())) == (WorkerState.DRAINING, 64, 6)
    assert busy.kv.free < 4000


def test_an_engine_that_stops_says_nothing_more() -> None:
    run = Started(spec())
    run.submit(0.0, "a", 50, 100)
    run.events.run(until=0.5)
    run.engine.stop()
    run.events.run()
    assert run.client.ends == {}


def test_steps_take_what_the_clock_says_and_not_what_the_engine_believes() -> None:
    class Slow:
        def seconds(self, work: StepWork) -> float:
            return 1.0 if work.prefill_tokens or work.sequences else 0.0

    made = spec()
    run = Started(EngineSpec(Slow(), MODEL, made.limits, made.pages))
    run.submit(0.0, "a", 100, 5)
    run.events.run()
    assert run.client.ends["a"][0] == pytest.approx(5.0)
    assert run.engine.busy_s == pytest.approx(6.0)
