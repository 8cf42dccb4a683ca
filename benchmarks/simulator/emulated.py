"""The simulator against a real worker process that emulates its engine, over HTTP, at three loads.

The engine is Qwen3 32B on an H200: steps of 14 ms and more, long against the machine's noise. Poisson arrivals with
the lengths of Azure's conversations come from a client in this process over loopback; then the simulated engine gets
the same requests at the times at which they were really sent. Both have the same step clock, limits and memory, from
the worker's own backend; no prefix cache.

Two constants come from the lowest load and serve the others: the step-time model that the worker has fitted, by which
it decides when to plan; and the median time that client and API process add to TTFT (connection, HTTP, template,
tokenizing), by which the engine sees a request later. The lowest load's TTFT is therefore no test, and has no bar.

`noise` names runs whose client sent late. The lateness of emulated steps tells less here: a worker whose model
overstates a step collects it late, on a quiet machine too, and so does the simulated engine.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.harness import Bar, Measured, Row, median_row
from benchmarks.simulator.calibration import percent
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
from paceline_simulator.engine import EngineSpec
from paceline_simulator.service_engine import engine_spec
from paceline_workers.config import EngineConfig
from paceline_workers.engine.backends.emulated import EmulatedBackend
from paceline_workers.engine.timer import SystemTimer

ENGINE = {
    "emulate": {"accelerator": "h200", "model": "qwen3-32b", "cold_start_s": 0.0},
    "max_seqs": 64,
    "step_tokens": 2048,
    "prefix_cache": False,
}
SPAN_S, QUICK_SPAN_S = 45.0, 20.0
RUNS = 2
CLOSE = Bar(5.0)


def measure(quick: bool) -> Measured:
    """Differences of TTFT p50 and mean TPOT in percent, by load."""
    config = EngineConfig.model_validate(ENGINE)
    rate, span_s = capacity(engine(config), conversations(BACKLOG, 1.0, 0)), QUICK_SPAN_S if quick else SPAN_S
    with tempfile.TemporaryDirectory() as scratch, worker_process(Path(scratch), engine=ENGINE) as worker:
        worker.ready()
        client = Measurement(worker)
        lowest = client.run(conversations(LOADS[0] * rate, span_s, 0))
        spec = engine(config, client.step_time())
        api_s = added(lowest.requests, lowest.predicted(spec, 0.0))
        runs = {LOADS[0]: [lowest]}
        for load in LOADS[1:]:
            runs[load] = [client.run(conversations(load * rate, span_s, seed)) for seed in range(1 if quick else RUNS)]
    rows = [row for load, found in runs.items() for row in compared(load, found, spec, api_s)]
    return rows, details(rate, api_s, spec, runs)


def engine(config: EngineConfig, model: StepTime | None = None) -> EngineSpec:
    """An emulated worker's engine, simulated; it predicts its steps with `model`, by default with the planner's."""
    assert config.emulate is not None
    backend = EmulatedBackend.load(config, config.emulate, SystemTimer(), lambda _: None)
    spec = engine_spec(backend.clock, backend.facts, config)
    return spec if model is None else replace(spec, model=model)


def compared(load: float, runs: Sequence[Observed], spec: EngineSpec, api_s: float) -> list[Row]:
    ttft, tpot = [], []
    for run in runs:
        found = run.predicted(spec, api_s)
        ttft.append(percent(median(r.ttft for r in found), median(r.ttft for r in run.requests)))
        tpot.append(percent(mean_tpot(found), mean_tpot(run.requests)))
    bar = CLOSE if load > LOADS[0] else None
    name = f"emulated worker at {load:.0%} of its capacity"
    return [
        median_row(f"{name}: TTFT p50", [abs(e) for e in ttft], "%", bar),
        median_row(f"{name}: TPOT mean", [abs(e) for e in tpot], "%", CLOSE),
        Row(f"{name}: requests sent late, p99", 1e3 * max(run.sent_late_s for run in runs), "ms"),
    ]
