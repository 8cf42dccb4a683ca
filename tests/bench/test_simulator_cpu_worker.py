"""The comparison with a worker on the CPU: what is asked of it, and a run that the simulator wrote."""

import pytest
from benchmarks.simulator.calibration import LoggedRequest
from benchmarks.simulator.cpu_worker import FITTED, SHORTEST, compared, engine, fitted, shortened
from benchmarks.simulator.overhttp import LOADS, Observed, mean_tpot

from paceline_core.wire import StepTime
from paceline_simulator.traces import TraceRequest

MODEL = StepTime(base=3e-3, prefill=6e-5, sequence=2e-4, kv=2e-7, context=1e-8)
SPEC = engine(MODEL)
ASKED = [LoggedRequest(0.05 * number, 40 + 9 * (number % 11), 8 + 5 * (number % 7), 0.0, 0.0) for number in range(60)]
RUN = Observed(Observed(ASKED, 0.0).predicted(SPEC, 0.002), 0.0)


def test_what_is_asked_fits_the_model_s_context() -> None:
    longest, short = shortened(TraceRequest(0.0, 14_050, 1_000)), shortened(TraceRequest(0.0, 3, 5))
    assert longest.prompt_tokens + longest.output_tokens < SPEC.limits.max_model_len
    assert (short.prompt_tokens, short.output_tokens) == (SHORTEST, SHORTEST)


def test_the_fit_predicts_the_run_that_it_knows() -> None:
    found = fitted([RUN, RUN], SPEC, 0.002)
    predicted = RUN.predicted(engine(found), 0.002)
    assert mean_tpot(predicted) == pytest.approx(mean_tpot(RUN.requests), rel=0.03)


def test_only_loads_that_are_held_out_have_bars() -> None:
    for load in LOADS:
        tpot, e2e, *_ = compared(load, [RUN], SPEC, 0.002)
        assert (tpot.value, e2e.value) == pytest.approx((0, 0), abs=1e-9)
        assert (tpot.bar is None) == (e2e.bar is None) == (load == FITTED)
