"""A worker process measured over HTTP, and the same requests predicted by the simulator.

Both API process and client need a free core at once. Where the client sent late, the machine was not quiet enough:
`Observed.noisy`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean, median
from typing import Any

import httpx
import uvloop
from benchmarks.harness import quantile
from benchmarks.simulator.calibration import LoggedRequest, predict
from benchmarks.simulator.cells import trace
from tests.worker.processes import WorkerProcess

from paceline_cli.bench.client import BenchTarget, Client
from paceline_cli.bench.openloop import Arrival, Ending, OpenLoop, RequestSample
from paceline_cli.bench.profiles import PROBE_WORDS, Calibration, Writer, calibrate
from paceline_core.clock import SystemClock
from paceline_core.wire import LoadReport, StepTime, decode
from paceline_simulator.engine import EngineSpec
from paceline_simulator.traces import TraceRequest
from paceline_simulator.workloads import combine, poisson, resampled

LOADS = (0.3, 0.6, 0.85)
"""Shares of the rate at which the simulated engine serves a long backlog."""
BACKLOG = 400
LIMIT_S = 120.0
SENT_LATE_S = 0.02


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


Runs = Mapping[float, Sequence[Observed]]
"""By load, as a share of the worker's capacity."""


def conversations(rate: float, span_s: float, seed: int) -> list[TraceRequest]:
    """Poisson arrivals with the lengths of Azure's conversations."""
    random = Random(seed)
    return combine(poisson(rate, random), resampled(trace("conv")), random, span_s)


def capacity(spec: EngineSpec, backlog: Sequence[TraceRequest]) -> float:
    """Requests a second that the simulated engine serves of a long backlog."""
    rows = [LoggedRequest(0.0, request.prompt_tokens, request.output_tokens, 0.0, 0.0) for request in backlog]
    return len(rows) / max(row.e2e for row in predict(rows, spec))


def added(observed: Sequence[LoggedRequest], found: Sequence[LoggedRequest]) -> float:
    """Seconds that TTFT takes longer over HTTP."""
    return median(a.ttft - b.ttft for a, b in zip(observed, found, strict=True))


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


def mean_tpot(rows: Sequence[LoggedRequest]) -> float:
    """Of the requests that have one."""
    return fmean(row.tpot for row in rows if row.output > 1)


def details(rate: float, api_s: float, spec: EngineSpec, runs: Runs) -> dict[str, Any]:
    """Capacity, constants and runs of a comparison; `noise` names the runs whose client sent late."""
    noise = [
        f"{load:.0%}, run {number}" for load, found in runs.items() for number, run in enumerate(found) if run.noisy
    ]
    constants = {"capacity": rate, "api_s": api_s, "step_time": spec.model.model_dump(), "noise": noise}
    return constants | {f"{load:.0%}": [_facts(run) for run in found] for load, found in runs.items()}


def _facts(run: Observed) -> dict[str, Any]:
    return {
        "requests": len(run.requests),
        "ttft_p50": median(row.ttft for row in run.requests),
        "tpot_mean": mean_tpot(run.requests),
        "sent_late_p99_s": run.sent_late_s,
    }
