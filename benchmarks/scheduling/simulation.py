"""The very scheduler of the engine on a virtual clock: each step takes what the planner's step-time model says."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.harness import quantile
from benchmarks.scheduling.traces import Call

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_planner import hardware, memory, shapes, steptime
from paceline_planner.step_clock import FittedClock
from paceline_planner.steptime import Caps
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling import (
    Request,
    SampledToken,
    Scheduler,
    SchedulerLimits,
    StepPlan,
    WeightedShares,
)
from paceline_workers.engine.scheduling.admission import Forecast
from paceline_workers.engine.scheduling.preemption import Choice, VictimCandidate, cheapest
from paceline_workers.messages import Sampling

END, WORD = 1, 2
STEP_TOKENS = 2048
SEQUENCES = 256
MAX_TOKENS = 4096
GREEDY = Sampling(temperature=0.0)


class FirstCome(WeightedShares):
    """First come, first served: every service counts the same."""

    def service(self, seconds: float) -> float:
        """One for all."""
        return min(seconds, 1.0) ** 0


class Shortest(WeightedShares):
    """Shortest remaining uncached prompt first, preempting between chunks; the oldest have no share in practice."""

    def service(self, seconds: float) -> float:
        """Differences of service outweigh any wait."""
        return seconds**8


class LoggedLength(Forecast):
    """Knows how long each output gets, which no engine does."""

    def forecast(self, request: Request, produced: int) -> int:
        """What the log says."""
        return request.max_tokens - produced


class OnePageEach(Forecast):
    """Admission with one spare page for each running request, whatever it will produce."""

    def __init__(self, page_tokens: int) -> None:
        super().__init__(0, review=1)
        self._page_tokens = page_tokens

    def forecast(self, request: Request, produced: int) -> int:  # noqa: ARG002 - as Forecast has it
        """One page."""
        return self._page_tokens


class NoGrowth(Forecast):
    """Admission of whatever fits now."""

    def forecast(self, request: Request, produced: int) -> int:  # noqa: ARG002 - as Forecast has it
        """Next to nothing."""
        return 1


def last_admitted(candidates: Iterable[VictimCandidate], step: int) -> Request:  # noqa: ARG001 - a Choice
    """The newest running request, however much it has computed."""
    return list(candidates)[-1].request


@dataclass(frozen=True, slots=True)
class Machine:
    """One emulated replica: its step times and its pages."""

    model: StepTime
    pages: int
    page_tokens: int
    context: int

    @classmethod
    def h100(cls, page_tokens: int, share: float = 1.0) -> "Machine":
        """Llama 3.1 8B in bf16 on one H100 with a `share` of the KV memory that the planner finds."""
        shape, device = shapes.shape("llama-3.1-8b"), hardware.accelerator("h100")
        caps = Caps(STEP_TOKENS, SEQUENCES)
        fit = memory.fits(shape, device, context=shape.max_context, caps=caps)
        pages = int(fit.kv_bytes * share) // (page_tokens * shape.kv_bytes_per_token)
        return cls(steptime.prior(shape, device, caps=caps), pages, page_tokens, shape.max_context)

    def seconds(self, plan: StepPlan) -> float:
        """What a step takes."""
        return FittedClock(self.model).seconds(plan.work)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to schedule. `length_known`: `max_tokens` is the logged length of the output."""

    policy: Callable[[], WeightedShares]
    choose: Choice
    forecast: Callable[[int, int], Forecast]
    length_known: bool = False


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


OURS = Way(WeightedShares, cheapest, lambda length, _: Forecast(length))
ORACLE = Way(Shortest, cheapest, lambda length, _: LoggedLength(length), length_known=True)
FCFS = Way(FirstCome, last_admitted, lambda _, page_tokens: OnePageEach(page_tokens))

LAST_ADMITTED = Way(WeightedShares, last_admitted, lambda length, _: NoGrowth(length))
CHEAPEST = Way(WeightedShares, cheapest, lambda length, _: NoGrowth(length))


def simulate(calls: Sequence[Call], machine: Machine, way: Way, rate: float) -> Outcome:
    """All calls, arriving `rate` times as fast as logged, until the last one has ended."""
    core = _scheduler(machine, way)
    requests: list[Request] = []
    lengths: dict[str, int] = {}
    now, prefilled = 0.0, 0
    while len(requests) < len(calls) or core.running or len(core.waiting):
        while len(requests) < len(calls) and (at := calls[len(requests)].at / rate) <= now:
            requests.append(_submit(core, calls[len(requests)], len(requests), at, length_known=way.length_known))
            lengths[requests[-1].id] = calls[len(requests) - 1].output
        plan = core.step(now)
        if plan.chunks:
            now += machine.seconds(plan)
            core.commit(plan, [_draw(chunk.request, lengths) for chunk in plan.chunks if chunk.samples], now)
            prefilled += plan.work.prefill_tokens
        else:
            coming = calls[len(requests)].at / rate if len(requests) < len(calls) else now
            now = max(coming, now) if plan.wake is None else min(max(coming, now), plan.wake)
    begun = [request.first_token - request.arrival for request in requests if request.first_token is not None]
    counters = core.counters
    return Outcome(sorted(begun), counters.preemptions, counters.recomputed_tokens, prefilled, counters.steps, now)


def unloaded(calls: Sequence[Call], machine: Machine) -> float:
    """Median TTFT of calls that each find the machine idle and its cache empty."""
    times = sorted(
        machine.model.seconds(prefill_tokens=call.prompt, sequences=0, kv_tokens=0, context=(call.prompt + 1) / 2)
        for call in calls
    )
    return times[len(times) // 2]


def _scheduler(machine: Machine, way: Way) -> Scheduler:
    limits = SchedulerLimits(
        max_model_len=machine.context,
        vocab_size=1 << 31,
        page_tokens=machine.page_tokens,
        max_seqs=SEQUENCES,
        step_tokens=STEP_TOKENS,
        max_waiting=1 << 20,
    )
    core = Scheduler(
        KVCacheManager(machine.pages, machine.page_tokens),
        limits,
        way.policy(),
        choose=way.choose,
        forecast=way.forecast(machine.context, machine.page_tokens),
    )
    core.learn(machine.model)
    return core


def _submit(core: Scheduler, call: Call, number: int, at: float, *, length_known: bool) -> Request:
    prompt = call.tokens()
    request = Request(
        id=f"r{number}",
        prompt_len=len(prompt),
        tokens=prompt,
        max_tokens=call.output if length_known else max(MAX_TOKENS, call.output),
        sampling=GREEDY,
        arrival=at,
        request_class=RequestClass.INTERACTIVE,
        stop_ids=frozenset({END}),
    )
    if refusal := core.submit(request):
        raise ValueError(refusal)
    return request


def _draw(request: Request, lengths: dict[str, int]) -> SampledToken:
    """Words, until the logged length is reached."""
    return SampledToken(END if request.produced + 1 >= lengths[request.id] else WORD)
