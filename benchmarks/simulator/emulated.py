"""The simulator against a real worker process that emulates its engine, over HTTP, at three loads.

The engine is Qwen3 32B on an H200: steps of 14 ms and more, long against the machine's noise. Poisson arrivals with
the lengths of Azure's conversations come from a client in this process over loopback; then the simulated engine gets
the same requests at the times at which they were really sent. Both have the same step clock, limits and memory, from
the worker's own backend; no prefix cache.

Two constants come from the lowest load and serve the others: the step-time model that the worker has fitted, by which
it decides when to plan; and the median time that client and API process add to TTFT (connection, HTTP, template,
tokenizing), by which the engine sees a request later. The lowest load's TTFT is therefore no test, and has no bar.

Both API process and client need a free core at once. Where the client sent late, the machine was not quiet enough, and
`noise` names the run. The lateness of emulated steps tells less here: a worker whose model overstates a step collects
it late, on a quiet machine too, and so does the simulated engine.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import httpx
import uvloop
from benchmarks.harness import Bar, Measured, Row, median_row, quantile
from benchmarks.simulator.calibration import LoggedRequest, predict
from benchmarks.simulator.cells import trace
from tests.worker.processes import WorkerProcess, worker_process

from paceline_cli.bench.client import BenchTarget, Client
from paceline_cli.bench.openloop import Arrival, Ending, OpenLoop, RequestSample
from paceline_cli.bench.profiles import PROBE_WORDS, Calibration, Writer, calibrate
from paceline_core.clock import SystemClock
from paceline_core.wire import LoadReport, StepTime, decode
from paceline_simulator.engine import EngineSpec
from paceline_simulator.traces import TraceRequest
from paceline_simulator.workloads import combine, poisson, resampled
from paceline_workers.config import EngineConfig
from paceline_workers.engine.backends.emulated import EmulatedBackend
from paceline_workers.engine.timer import SystemTimer

ENGINE = {
    "emulate": {"accelerator": "h200", "model": "qwen3-32b", "cold_start_s": 0.0},
    "max_seqs": 64,
    "step_tokens": 2048,
    "prefix_cache": False,
}
LOADS = (0.3, 0.6, 0.85)
"""Shares of the rate at which the simulated engine serves a long backlog."""
SPAN_S, QUICK_SPAN_S = 45.0, 20.0
RUNS = 2
BACKLOG = 400
LIMIT_S = 120.0
SENT_LATE_S = 0.02
CLOSE = Bar(5.0)


@dataclass(frozen=True, slots=True)
class Observed:
    """One run over HTTP, and the p99 of how late its requests were sent."""

    requests: list[LoggedRequest]
    sent_late_s: float

    @property
    def noisy(self) -> bool:
        return self.sent_late_s > SENT_LATE_S

    def predicted(self, spec: EngineSpec, api_s: float) -> list[LoggedRequest]:
        """The same requests by the simulator; their engine sees each `api_s` seconds after it was sent."""
        return [replace(row, ttft=row.ttft + api_s, e2e=row.e2e + api_s) for row in predict(self.requests, spec)]


def measure(quick: bool) -> Measured:
    """Differences of TTFT p50 and mean TPOT in percent, by load."""
    config = EngineConfig.model_validate(ENGINE)
    rate, span_s = capacity(engine(config)), QUICK_SPAN_S if quick else SPAN_S
    with tempfile.TemporaryDirectory() as scratch, worker_process(Path(scratch), engine=ENGINE) as worker:
        worker.ready()
        client = Measurement(worker)
        lowest = client.run(requests(LOADS[0] * rate, span_s, 0))
        spec = engine(config, client.step_time())
        api_s = added(lowest.requests, lowest.predicted(spec, 0.0))
        runs = {LOADS[0]: [lowest]}
        for load in LOADS[1:]:
            runs[load] = [client.run(requests(load * rate, span_s, seed)) for seed in range(1 if quick else RUNS)]
    rows = [row for load, found in runs.items() for row in compared(load, found, spec, api_s)]
    noise = [
        f"{load:.0%}, run {number}" for load, found in runs.items() for number, run in enumerate(found) if run.noisy
    ]
    details = {"capacity": rate, "api_s": api_s, "step_time": spec.model.model_dump(), "noise": noise}
    return rows, details | {f"{load:.0%}": [_facts(run) for run in found] for load, found in runs.items()}


def engine(config: EngineConfig, model: StepTime | None = None) -> EngineSpec:
    """An emulated worker's engine, simulated; it predicts its steps with `model`, by default with the planner's.

    A simulated prompt's ids only tell contents apart, so no vocabulary bounds them.
    """
    assert config.emulate is not None
    backend = EmulatedBackend.load(config, config.emulate, SystemTimer(), lambda _: None)
    facts = backend.facts
    return EngineSpec(
        backend.clock,
        model or facts.prior,
        replace(facts.limits, vocab_size=1 << 31),
        facts.pages,
        prefix_cache=config.prefix_cache,
        ahead=facts.ahead,
    )


def capacity(spec: EngineSpec) -> float:
    """Requests a second of a long backlog."""
    rows = [LoggedRequest(0.0, r.prompt_tokens, r.output_tokens, 0.0, 0.0) for r in requests(BACKLOG, 1.0, 0)]
    return len(rows) / max(row.e2e for row in predict(rows, spec))


def requests(rate: float, span_s: float, seed: int) -> list[TraceRequest]:
    random = Random(seed)
    return combine(poisson(rate, random), resampled(trace("conv")), random, span_s)


def added(observed: Sequence[LoggedRequest], found: Sequence[LoggedRequest]) -> float:
    """Seconds that TTFT takes longer over HTTP."""
    return median(a.ttft - b.ttft for a, b in zip(observed, found, strict=True))


def compared(load: float, runs: Sequence[Observed], spec: EngineSpec, api_s: float) -> list[Row]:
    ttft, tpot = [], []
    for run in runs:
        found = run.predicted(spec, api_s)
        ttft.append(_percent(median(r.ttft for r in found), median(r.ttft for r in run.requests)))
        tpot.append(_percent(_mean_tpot(found), _mean_tpot(run.requests)))
    bar = CLOSE if load > LOADS[0] else None
    name = f"emulated worker at {load:.0%} of its capacity"
    return [
        median_row(f"{name}: TTFT p50", [abs(e) for e in ttft], "%", bar),
        median_row(f"{name}: TPOT mean", [abs(e) for e in tpot], "%", CLOSE),
        Row(f"{name}: requests sent late, p99", 1e3 * max(run.sent_late_s for run in runs), "ms"),
    ]


class Measurement:
    """A client of one worker."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self._client = Client(BenchTarget(worker.url, "none", "chat"), SystemClock(), LIMIT_S)
        self._writer = Writer(0)
        self._words = uvloop.run(self._calibrate())

    def run(self, asked: Sequence[TraceRequest]) -> Observed:
        """Send the requests at their times; raises RuntimeError unless all are answered."""
        samples = uvloop.run(self._offer(asked))
        late = [sample.lateness or 0.0 for sample in samples]
        return Observed([_logged(sample) for sample in samples], quantile(late, 0.99))

    def step_time(self) -> StepTime:
        """The model that the worker has fitted by now."""
        url, headers = f"{self._worker.url}/internal/load", self._worker.gateway_headers
        with httpx.stream("GET", url, headers=headers, timeout=LIMIT_S) as answer:
            return decode(LoadReport, next(answer.iter_lines()).encode()).step_time

    async def _offer(self, asked: Sequence[TraceRequest]) -> list[RequestSample]:
        clock = SystemClock()
        arrivals = [Arrival(n, r.at, "load", r.prompt_tokens, r.output_tokens) for n, r in enumerate(asked)]
        return await OpenLoop(self._prepare, self._client.send, clock).run(arrivals, clock.monotonic() + 0.5)

    def _prepare(self, arrival: Arrival) -> bytes:
        text = self._writer.text(self._words.words(arrival.prompt_tokens))
        return self._client.prepare(text, arrival.output_tokens)

    async def _calibrate(self) -> Calibration:
        counts = []
        for words in (1, 1 + PROBE_WORDS):
            probe = Arrival(0, 0.0, "probe", words, 1)
            sample = await self._client.send(probe, self._client.prepare(self._writer.text(words), 1))
            counts.append(sample.prompt_tokens)
        return calibrate(*counts)


def _logged(sample: RequestSample) -> LoggedRequest:
    """As its client saw it: sent, and first and last token after that."""
    if sample.ending is not Ending.OK or sample.usage is None or sample.sent is None:
        raise RuntimeError(f"request {sample.arrival.number} ended {sample.ending}: {sample.detail}")
    first, last = sample.content[0] - sample.sent, sample.content[-1] - sample.sent
    return LoggedRequest(sample.sent, sample.usage.prompt_tokens, sample.usage.output_tokens, first, last)


def _mean_tpot(rows: Sequence[LoggedRequest]) -> float:
    several = [row.tpot for row in rows if row.output > 1]
    return sum(several) / len(several)


def _percent(found: float, observed: float) -> float:
    return 100 * (found / observed - 1)


def _facts(run: Observed) -> dict[str, Any]:
    return {
        "requests": len(run.requests),
        "ttft_p50": median(row.ttft for row in run.requests),
        "tpot_mean": _mean_tpot(run.requests),
        "sent_late_p99_s": run.sent_late_s,
    }
