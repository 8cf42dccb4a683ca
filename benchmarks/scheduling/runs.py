"""One simulated engine per run, with the production scheduler or a variant, on a published log at any speed.

Steps take what the planner's prior for Llama 3.1 8B on one H100 says. The engine commits each step before it plans the
next one, as the CPU backend does, so that a variant is not compared by how late it sees arrivals.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness import quantile
from benchmarks.scheduling.policies import OURS, SchedulingVariant

from paceline_core.wire import KVLoad, LoadReport, StepTime, WorkerState
from paceline_planner import accelerators, memory, shapes, steptime
from paceline_planner.step_clock import FittedClock
from paceline_planner.steptime import Caps, StepWork
from paceline_simulator.engine import STOPS, EngineSpec, SimulatedEngine, Submission
from paceline_simulator.events import EventQueue
from paceline_simulator.traces import TraceRequest
from paceline_workers.engine.scheduling import Request, SchedulerLimits
from paceline_workers.messages import Sampling, Tokens

STEP_TOKENS = 2048
SEQUENCES = 256
MAX_TOKENS = 4096
GREEDY = Sampling(temperature=0.0)


def h100(
    page_tokens: int, share: float = 1.0, variant: SchedulingVariant = OURS, sequences: int = SEQUENCES
) -> EngineSpec:
    """Llama 3.1 8B in bf16 on one H100 with a `share` of the KV memory that the planner finds."""
    shape, device = shapes.shape("llama-3.1-8b"), accelerators.accelerator("h100")
    caps = Caps(STEP_TOKENS, SEQUENCES)
    fit = memory.fits(shape, device, context=shape.max_context, caps=caps)
    pages = int(fit.kv_bytes * share) // (page_tokens * shape.kv_bytes_per_token)
    model = steptime.prior(shape, device, caps=caps)
    limits = SchedulerLimits(
        max_model_len=shape.max_context,
        vocab_size=1 << 31,
        page_tokens=page_tokens,
        max_seqs=sequences,
        step_tokens=STEP_TOKENS,
        max_waiting=1 << 20,
    )
    return EngineSpec(FittedClock(model), model, limits, pages, ahead=False, scheduler=variant.scheduler)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Sorted times to first token, counters, and when the last request ended."""

    ttft: list[float]
    preemptions: int
    recomputed: int
    prefilled: int
    steps: int
    seconds: float

    @property
    def mean(self) -> float:
        """Mean TTFT."""
        return sum(self.ttft) / len(self.ttft)

    def quantile(self, share: float) -> float:
        """TTFT that this share stays below."""
        return quantile(self.ttft, share)


class PrefillCounter:
    """A step clock that also counts the prefill tokens of the steps that it is asked for."""

    def __init__(self, model: StepTime) -> None:
        self._clock = FittedClock(model)
        self.tokens = 0

    def seconds(self, work: StepWork) -> float:
        self.tokens += work.prefill_tokens
        return self._clock.seconds(work)


class Client:
    """Notes when the first token of each request came."""

    def __init__(self, events: EventQueue) -> None:
        self._events = events
        self.first: dict[str, float] = {}

    def on_first_token(self, submission: Submission) -> None:
        self.first[submission.request.id] = self._events.now

    def on_end(self, submission: Submission, frame: Tokens) -> None:
        """Raises ValueError for a request that the engine refused."""
        if frame.finish != "stop":
            raise ValueError(f"{submission.request.id}: {frame.error}")


def simulate(requests: Sequence[TraceRequest], spec: EngineSpec, rate: float, *, length_known: bool = False) -> Outcome:
    """All requests, arriving `rate` times as fast as logged, until the last one has ended.

    `length_known`: `max_tokens` is the logged length of the output.
    """
    events, clock = EventQueue(), PrefillCounter(spec.model)
    client = Client(events)
    engine = SimulatedEngine(_with_clock(spec, clock), events, _report(spec))
    for number, logged in enumerate(requests):
        most = logged.output_tokens if length_known else max(MAX_TOKENS, logged.output_tokens)
        tokens = logged.tokens(number)
        request = Request(f"r{number}", len(tokens), tokens, most, GREEDY, logged.at / rate, stop_ids=STOPS)
        events.at(logged.at / rate, engine.submit, Submission(request, logged.output_tokens, client))
    events.run()
    ttft = sorted(client.first[f"r{number}"] - logged.at / rate for number, logged in enumerate(requests))
    counters = engine.scheduler.counters
    return Outcome(ttft, counters.preemptions, counters.recomputed_tokens, clock.tokens, counters.steps, events.now)


def unloaded(requests: Sequence[TraceRequest], spec: EngineSpec) -> float:
    """Median TTFT of requests that each find the engine idle and its cache empty."""
    times = sorted(
        spec.model.seconds(
            prefill_tokens=request.prompt_tokens, sequences=0, kv_tokens=0, context=(request.prompt_tokens + 1) / 2
        )
        for request in requests
    )
    return times[len(times) // 2]


def _with_clock(spec: EngineSpec, clock: PrefillCounter) -> EngineSpec:
    return EngineSpec(clock, spec.model, spec.limits, spec.pages, ahead=False, scheduler=spec.scheduler)


def _report(spec: EngineSpec) -> LoadReport:
    kv = KVLoad(page_tokens=spec.limits.page_tokens, total=spec.pages, free=spec.pages)
    return LoadReport(
        worker="engine",
        service="benchmark/scheduling",
        revision="r1",
        pool="main",
        state=WorkerState.READY,
        slots=spec.limits.max_seqs,
        kv=kv,
        step_time=spec.model,
        max_model_len=spec.limits.max_model_len,
    )
