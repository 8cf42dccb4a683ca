"""The simulator against a real worker process that computes on the CPU, over HTTP, at three loads.

The worker runs the demo model. Lengths are those of Azure's conversations, divided by SHORTER to fit its context. Two
constants come from the load FITTED: what client and API process add to TTFT, and the step-time coefficients with which
the simulated engine's times are nearest to the observed ones. The other loads are held out. The loads take turns, since
steps of three milliseconds follow every change of the machine's speed. How much runs of one load differ among
themselves (`spread`) is what no model could predict; the engine needs a core, the client and the API process another.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.harness import Bar, Measured, Row, median_row
from benchmarks.simulator.calibration import LoggedRequest, fit, percent
from benchmarks.simulator.overhttp import (
    BACKLOG,
    LOADS,
    Measurement,
    Observed,
    added,
    capacity,
    conversations,
    details,
    mean_tpot,
)
from tests.worker.processes import worker_process

from paceline_core.wire import StepTime
from paceline_planner.step_clock import FittedClock
from paceline_simulator.engine import EngineSpec
from paceline_simulator.service_engine import engine_spec
from paceline_simulator.traces import TraceRequest
from paceline_workers.config import EngineConfig
from paceline_workers.engine.backends.cpu.backend import CpuBackend
from paceline_workers.engine.timer import SystemTimer

ENGINE: dict[str, Any] = {"max_seqs": 16, "step_tokens": 512, "prefix_cache": False}
SHORTER, SHORTEST = 8, 8
FITTED = LOADS[1]
SPAN_S, QUICK_SPAN_S = 20.0, 5.0
ROUNDS = 4
WARM_RATE = 4.0
START = (2e-3, 4.5e-5, 3e-4, 1e-7, 2e-8)
"""Where the search for coefficients begins: base, prefill, sequence, kv, context."""
APART_S = 1_000.0
TPOT, E2E = Bar(5.0), Bar(8.0)


def measure(quick: bool) -> Measured:
    """Differences of mean TPOT and E2E in percent, by load."""
    runs: dict[float, list[Observed]] = {load: [] for load in LOADS}
    with tempfile.TemporaryDirectory() as scratch, worker_process(Path(scratch), engine=ENGINE) as worker:
        worker.ready()
        client = Measurement(worker)
        client.run(requests(WARM_RATE, SPAN_S, 0))
        first = engine(client.step_time())
        rate = capacity(first, requests(BACKLOG, 1.0, 0))
        for number in range(1 if quick else ROUNDS):
            for load in LOADS:
                asked = requests(load * rate, QUICK_SPAN_S if quick else SPAN_S, number)
                runs[load].append(client.run(asked))
    api_s = median(added(run.requests, run.predicted(first, 0.0)) for run in runs[FITTED])
    spec = _stepping(first, fitted(runs[FITTED], first, api_s))
    rows = [row for load, found in runs.items() for row in compared(load, found, spec, api_s)]
    return rows, details(rate, api_s, spec, runs)


def engine(model: StepTime) -> EngineSpec:
    """The worker's engine, simulated, with these coefficients."""
    config = EngineConfig.model_validate(ENGINE)
    facts = CpuBackend.load(config, "builtin://demo", SystemTimer(), lambda _: None).facts
    return _stepping(engine_spec(FittedClock(model), facts, config), model)


def _stepping(spec: EngineSpec, model: StepTime) -> EngineSpec:
    """The engine with steps that take, and are predicted to take, what the model says."""
    return replace(spec, clock=FittedClock(model), model=model)


def requests(rate: float, span_s: float, seed: int) -> list[TraceRequest]:
    return [shortened(request) for request in conversations(rate, span_s, seed)]


def shortened(request: TraceRequest) -> TraceRequest:
    prompt, output = (max(tokens // SHORTER, SHORTEST) for tokens in (request.prompt_tokens, request.output_tokens))
    return replace(request, prompt_tokens=prompt, output_tokens=output)


def fitted(runs: Sequence[Observed], spec: EngineSpec, api_s: float) -> StepTime:
    """The coefficients for these runs, one after another, without what the API adds."""
    rows = [
        replace(row, at=row.at + number * APART_S, ttft=max(row.ttft - api_s, 1e-4), e2e=row.e2e - api_s)
        for number, run in enumerate(runs)
        for row in run.requests
    ]
    return fit(rows, partial(_stepping, spec), START, [True] * len(rows))


def compared(load: float, runs: Sequence[Observed], spec: EngineSpec, api_s: float) -> list[Row]:
    """Errors of the means over all runs; the load that was fitted has no bar."""
    observed = [row for run in runs for row in run.requests]
    found = [row for run in runs for row in run.predicted(spec, api_s)]
    name, held = f"CPU worker at {load:.0%} of its capacity", load != FITTED
    tpots = [mean_tpot(run.requests) for run in runs]
    return [
        Row(f"{name}: TPOT mean", abs(percent(mean_tpot(found), mean_tpot(observed))), "%", bar=TPOT if held else None),
        Row(f"{name}: E2E mean", abs(percent(_e2e(found), _e2e(observed))), "%", bar=E2E if held else None),
        median_row(f"{name}: observed TPOT", [1e3 * tpot for tpot in tpots], "ms"),
        Row(f"{name}: spread of observed TPOT", 100 * (max(tpots) / min(tpots) - 1), "%"),
    ]


def _e2e(rows: Sequence[LoggedRequest]) -> float:
    return fmean(row.e2e for row in rows)
