"""Published logs of vLLM engines: the step-time coefficients fitted on half of a log predict the other half.

The engine is the simulator's, with vLLM's order, admission and victims. Five coefficients are fitted by a simplex
search (Nelder and Mead) over their logarithms; the loss is the mean relative error of TPOT, end-to-end time and TTFT.
What is left out: the API process, and how the two engines of the DP2 log share their requests (here they are one).
"""

import csv
import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from random import Random

from benchmarks.scheduling.policies import VLLM
from benchmarks.traces import folder

from paceline_core.wire import KVLoad, LoadReport, StepTime, WorkerState
from paceline_planner.step_clock import FittedClock
from paceline_simulator.engine import STOPS, EngineSpec, SimulatedEngine, Submission
from paceline_simulator.events import EventQueue
from paceline_workers.engine.scheduling import Request, SchedulerLimits
from paceline_workers.messages import Sampling, Tokens

PAGE_TOKENS = 16
RUNS = 60
_GREEDY = Sampling(temperature=0.0)
_TTFT_FLOOR_S = 0.05
"""Added to both TTFTs before they are compared, so that short ones do not rule the fit."""


@dataclass(frozen=True, slots=True)
class LoggedEngine:
    """One log: its KV pages and slots, and where the search begins (base, prefill, sequence, kv, context)."""

    name: str
    pages: int
    slots: int
    start: tuple[float, float, float, float, float]


LOGS = (
    LoggedEngine("rtxpro6000_llama-3.1-8b", 20_000, 128, (0.012, 5e-5, 2e-5, 5e-8, 1e-9)),
    LoggedEngine("rtx4090_llama-3.1-8b", 2_588, 256, (0.018, 1e-4, 3e-5, 1.3e-7, 3e-9)),
    LoggedEngine("rtxpro6000_qwen3-32b", 20_000, 128, (0.025, 1e-4, 5e-5, 1e-7, 2e-9)),
    LoggedEngine("rtxpro6000_qwen3-30b-a3b", 40_000, 256, (0.02, 4e-5, 5e-5, 5e-8, 1e-9)),
)


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One row: arrival, lengths, and seconds from arrival to first and to last token."""

    at: float
    prompt: int
    output: int
    ttft: float
    e2e: float

    @property
    def tpot(self) -> float:
        return (self.e2e - self.ttft) / max(self.output - 1, 1)


def read(name: str) -> list[LoggedRequest]:
    with gzip.open(folder() / "calib" / f"vllm019_{name}.csv.gz", "rt") as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    return [
        LoggedRequest(
            row["t_s"],
            int(row["prompt_tokens"]),
            int(row["output_tokens"]),
            row["first_token_s"] - row["t_s"],
            row["last_token_s"] - row["t_s"],
        )
        for row in rows
    ]


class Replay:
    """Requests that were logged, at one simulated engine; receives their tokens."""

    def __init__(self, rows: Sequence[LoggedRequest], spec: EngineSpec) -> None:
        self.events = EventQueue()
        self.first: dict[str, float] = {}
        self.last: dict[str, float] = {}
        report = LoadReport(
            worker="logged",
            service="log/logged",
            revision="r1",
            pool="main",
            state=WorkerState.READY,
            slots=1,
            kv=KVLoad(page_tokens=1, total=1, free=1),
            step_time=spec.model,
            max_model_len=1,
        )
        self.engine = SimulatedEngine(spec, self.events, report)
        for number, row in enumerate(rows):
            request = Request(
                f"{number}", row.prompt, [number + 10] * row.prompt, row.output, _GREEDY, row.at, stop_ids=STOPS
            )
            self.events.at(row.at, self.engine.submit, Submission(request, row.output, self))
        self.events.run()

    def on_first_token(self, submission: Submission) -> None:
        self.first[submission.request.id] = self.events.now

    def on_end(self, submission: Submission, _: Tokens) -> None:
        self.last[submission.request.id] = self.events.now


def vllm(engine: LoggedEngine, model: StepTime) -> EngineSpec:
    """A logged engine, simulated."""
    limits = SchedulerLimits(
        max_model_len=131_072,
        vocab_size=1 << 31,
        page_tokens=PAGE_TOKENS,
        max_seqs=engine.slots,
        step_tokens=2048,
    )
    return EngineSpec(
        FittedClock(model), model, limits, engine.pages, prefix_cache=False, ahead=False, scheduler=VLLM.scheduler
    )


def predict(rows: Sequence[LoggedRequest], spec: EngineSpec) -> list[LoggedRequest]:
    """The same requests with simulated times."""
    replay = Replay(rows, spec)
    return [
        LoggedRequest(row.at, row.prompt, row.output, replay.first[f"{n}"] - row.at, replay.last[f"{n}"] - row.at)
        for n, row in enumerate(rows)
    ]


def fit(
    rows: Sequence[LoggedRequest],
    spec: Callable[[StepTime], EngineSpec],
    start: Sequence[float],
    known: Sequence[bool],
) -> StepTime:
    """The coefficients with the least loss over the `known` requests; `spec` is the engine that has them."""

    def loss(logarithms: Sequence[float]) -> float:
        model = _model(logarithms)
        pairs = [(a, b) for a, b, use in zip(predict(rows, spec(model)), rows, known, strict=True) if use]
        tpot, e2e = (
            _mean([abs(log(a.tpot / b.tpot)) for a, b in pairs]),
            _mean([abs(log(a.e2e / b.e2e)) for a, b in pairs]),
        )
        ttft = _mean([abs(log((a.ttft + _TTFT_FLOOR_S) / (b.ttft + _TTFT_FLOOR_S))) for a, b in pairs])
        return tpot + e2e + ttft / 2

    return _model(minimize(loss, [log(value) for value in start], 0.3, RUNS))


def halves(rows: Sequence[LoggedRequest]) -> list[bool]:
    """Half of the requests, at random."""
    random = Random(1)
    return [random.random() < 0.5 for _ in rows]


def minimize(loss: Callable[[Sequence[float]], float], start: Sequence[float], step: float, runs: int) -> list[float]:
    """The best point found by Nelder and Mead's simplex in about so many evaluations."""
    points = [list(start), *([x + step * (i == j) for j, x in enumerate(start)] for i in range(len(start)))]
    simplex = sorted((loss(point), point) for point in points)
    used = len(points)
    while used < runs:
        (worst, last), best = simplex[-1], simplex[0][0]
        centre = [_mean([point[i] for _, point in simplex[:-1]]) for i in range(len(start))]

        def along(distance: float, centre: list[float] = centre, last: list[float] = last) -> tuple[float, list[float]]:
            point = [c + distance * (c - x) for c, x in zip(centre, last, strict=True)]
            return loss(point), point

        found = along(1.0)
        used += 1
        if found[0] < best:
            found, used = min(found, along(2.0)), used + 1
        elif found[0] >= simplex[-2][0]:
            found, used = along(-0.5), used + 1
        if found[0] < worst:
            simplex[-1] = found
        else:
            first = simplex[0][1]
            shrunk = [[f + 0.5 * (x - f) for f, x in zip(first, point, strict=True)] for _, point in simplex[1:]]
            simplex[1:] = [(loss(point), point) for point in shrunk]
            used += len(shrunk)
        simplex.sort()
    return simplex[0][1]


def _model(logarithms: Sequence[float]) -> StepTime:
    base, prefill, sequence, kv, context = map(exp, logarithms)
    return StepTime(base=base, prefill=prefill, sequence=sequence, kv=kv, context=context)


def percent(found: float, observed: float) -> float:
    """How much more was found than observed."""
    return 100 * (found / observed - 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
