"""The step cycle without loop, backend or process: a simulator drives it with a step clock and a clock of its own."""

from math import inf

from tests.engine.reference_scheduler import PROMPT, request, scheduler

from paceline_core.wire import StepTime
from paceline_planner.step_clock import FittedClock
from paceline_workers.engine.backends.base import StepResult
from paceline_workers.engine.scheduling import SampledToken
from paceline_workers.engine.step_cycle import StepCycle
from paceline_workers.engine.steptime import StepTimeFit

MODEL = StepTime(base=0.01, prefill=0.001)


def test_a_simulator_drives_the_cycle_with_a_step_clock() -> None:
    core = scheduler(16)
    cycle, clock, now = StepCycle(core, StepTimeFit(MODEL), ahead=False, now=5.0), FittedClock(MODEL), 5.0
    assert core.submit(request("a", list(PROMPT), 3, arrival=now)) is None
    ends, tokens = [], []
    while cycle.wake < inf:
        assert cycle.due(now)
        step = cycle.plan(now)
        if (done := cycle.collect(step, 0.0)) is not None:
            seconds = clock.seconds(done.plan.work)
            now = done.since + seconds
            samples = [SampledToken(7) for chunk in done.plan.chunks if chunk.samples]
            frames = cycle.commit(done, StepResult(samples, seconds=seconds), now)
            tokens += [token for frame in frames for token in frame.ids]
            ends += [frame.finish for frame in frames if frame.finish]
        cycle.finish(now)
    assert (tokens, ends) == ([7, 7, 7], ["length"])
    beat = cycle.heartbeat(now)
    assert [stats.prefill_tokens for stats in beat.recent] == [len(PROMPT), 0, 0]
    assert abs(now - (5.0 + 3 * MODEL.base + len(PROMPT) * MODEL.prefill)) < 1e-9
