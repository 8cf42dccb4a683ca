"""How many requests a second a pool answers within its promise, by a mean-field model and two queues. Pure.

`replica` gives the fixed point of one engine at a rate r: a step takes base / (1 - r·work) on average, and r·output
times that many sequences decode at once, give or take the root of their number. The engine plans no step longer than
TPOT, so what may be late are first tokens:

    prefill   prompts queue for the share of time that decodes leave them: a server for each engine, whose service time
              is s = prefill / share, with the second moment E[prefill²]; the engine's order is half first come, first
              served, and half by response ratio, where a prompt of x times the mean waits (1 - a) + a·x / (1 + cv²)
              times as long as the mean one (Brinch Hansen 1971)
    slots     where sequences come near the most that slots and KV cache hold, requests queue for a place; the gateway
              lets those go first that can still be in time, so that a part of the late ones saves the others

Both are queues of Poisson arrivals at c servers with load a. A request waits with probability a^(√(2(c+1)) - 1)
(Sakasegawa 1977) and then for an exponential time with the mean s·(1 + cv²) / (2c(1 - a)), exact for one server
(Pollaczek and Khinchine). Where late ones give way, (1 - a)·P / (1 - a·P) are late instead of P (de Kok and Tijms
1985). A first token comes after the wait, STEPS_AHEAD steps, and the steps of its own prefill. Goodput is the highest
rate at which no more than 1 - quantile are late; its part of what replicas sustain is the usable share.

`python -m benchmarks.planner` holds this against the exact simulator. Known holes: arrivals in bursts, priorities
between classes, and preemptions where answers are much longer than usual.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, exp, inf, sqrt
from operator import mul
from statistics import NormalDist
from typing import Literal

from paceline_core.wire import StepTime
from paceline_planner.lengths import SHARES, LengthDistribution
from paceline_planner.replica import Bound, ReplicaModel, RequestMix, mean_request

Limit = Literal["TTFT"] | Bound
_TTFT_BINDS = 0.9
"""Below this usable share first tokens are what binds."""
STEPS_AHEAD = 1.5
"""Steps before a request's own: half of the one under way, and the one that is planned already."""
_FEW_PARTS = 8
_FEW_MIDDLES = tuple(NormalDist().inv_cdf((2 * place + 1) / (2 * _FEW_PARTS)) for place in range(_FEW_PARTS))
_HALVINGS = 30
_LONGEST_S = 3600.0
_ROUNDING = 1e-9
_SELDOM = 1e-3


@dataclass(frozen=True, slots=True)
class FurtherLimit:
    """A limit in seconds at another quantile of the metric."""

    metric: Literal["ttft", "tpot"]
    quantile: float
    seconds: float


@dataclass(frozen=True, slots=True)
class LatencyPromise:
    """Limits in seconds, each for a share of requests; inf: none. `per_prompt_token` adds to TTFT for each token.

    `also`: limits at further quantiles. `tpot_s` is the strictest one, since the engine plans no longer step.
    """

    ttft_s: float = inf
    tpot_s: float = inf
    ttft_quantile: float = 0.95
    tpot_quantile: float = 0.95
    per_prompt_token: float = 0.0
    also: tuple[FurtherLimit, ...] = ()

    @property
    def each_ttft(self) -> "tuple[LatencyPromise, ...]":
        """The promise once for each limit of TTFT, all of which are kept."""
        one = replace(self, also=())
        further = (limit for limit in self.also if limit.metric == "ttft")
        return (one, *(replace(one, ttft_s=limit.seconds, ttft_quantile=limit.quantile) for limit in further))

    @property
    def late(self) -> float:
        """The share of first tokens that may be late."""
        return 1 - self.ttft_quantile

    def ttft_limit(self, prompt: float) -> float:
        return self.ttft_s + self.per_prompt_token * prompt


@dataclass(frozen=True, slots=True)
class PlannedSpeed:
    """The speed of one engine, as `replica.ReplicaSpeed` has it."""

    step_time: StepTime
    slots: int
    kv_tokens: int


@dataclass(frozen=True, slots=True)
class _Queue:
    """Poisson arrivals at `servers` with this load; `service_s` and `cv` of their service time."""

    load: float
    servers: float
    service_s: float
    cv: float

    def share_waiting(self, seconds: float) -> float:
        """The share of arrivals that waits for longer, first come, first served."""
        if self.load >= 1 or seconds < 0:
            return 1.0
        if self.load <= 0:
            return 0.0
        mean = self.service_s * (1 + self.cv**2) / (2 * self.servers * (1 - self.load))
        return float(self.load ** (sqrt(2 * (self.servers + 1)) - 1) * exp(-seconds / mean))

    def share_late(self, seconds: float) -> float:
        """The share that waits for longer where those that cannot be in time give way."""
        if self.load >= 1 or seconds < 0:
            return 1.0
        waiting = self.share_waiting(seconds)
        return (1 - self.load) * waiting / (1 - self.load * waiting)


@dataclass(frozen=True)
class PoolModel:
    """A pool of equal replicas. `lanes`: engines of each, of which a pipeline has several; `speed` is that of one."""

    speed: PlannedSpeed
    step_tokens: int
    lengths: LengthDistribution
    promise: LatencyPromise
    replicas: int = 1
    lanes: int = 1

    @property
    def alone(self) -> ReplicaModel:
        """An engine that does nothing else."""
        return ReplicaModel(self.speed, self.step_tokens, self.promise.tpot_s)

    @cached_property
    def engine(self) -> ReplicaModel:
        """An engine under load, with the KV tokens that running sequences may hold to fit at the predicted peak."""
        held = self.mix.held_tokens / max(self.lengths.peak_tokens(), self.mix.held_tokens)
        return replace(self.alone, speed=replace(self.speed, kv_tokens=int(self.speed.kv_tokens * held)))

    @cached_property
    def mix(self) -> RequestMix:
        """The mean request."""
        lengths = self.lengths
        return mean_request(lengths.prompt, lengths.output, lengths.factors, self.speed.step_time, "both")

    @property
    def engines(self) -> int:
        return self.replicas * self.lanes

    @property
    def sustainable(self) -> float:
        """Requests a second that all replicas serve, however late their first tokens come."""
        return self.engines * self.engine.sustainable(self.mix)

    @cached_property
    def each(self) -> "tuple[PoolModel, ...]":
        """The pool once for each limit of TTFT."""
        return tuple(replace(self, promise=one) for one in self.promise.each_ttft) if self.promise.also else (self,)

    def keeps(self, rate: float) -> bool:
        """Whether no more first tokens come late than each limit allows."""
        return all(one.late_share(rate) <= one.promise.late for one in self.each)

    def goodput(self) -> float:
        """The highest rate in requests a second that keeps the promise; 0 if none does."""
        too_high = _least(lambda rate: not self.keeps(rate), self.sustainable)
        return min(too_high, self.sustainable)

    @cached_property
    def usable(self) -> float:
        """The share of what the replicas sustain that they answer within the promise."""
        return self.goodput() / self.sustainable

    @property
    def limit(self) -> Limit:
        """What goodput ends at: first tokens, or what binds the rate that replicas sustain."""
        return "TTFT" if self.usable < _TTFT_BINDS else self.engine.bound(self.mix)

    def late_share(self, rate: float) -> float:
        """The share of first tokens that come later than promised at this rate."""
        return self._late(rate, self.promise.ttft_limit)

    def ttft_s(self, rate: float) -> float:
        """The promised quantile of TTFT; inf at a rate that is not sustainable."""
        return _least(lambda seconds: self._late(rate, lambda _: seconds) <= self.promise.late, _LONGEST_S)

    def tpot_s(self, rate: float) -> float:
        """The promised quantile of an answer's mean step: what runs beside it varies by the root of its number.

        No step is longer than a full one, so it is finite at every rate that is sustainable.
        """
        each = rate / self.engines
        running = max(self._running(each), 1.0)
        peak = each * (1 + NormalDist().inv_cdf(self.promise.tpot_quantile) / sqrt(running))
        decode_s = self.engine.decode_step_s(running, self.mix.held_tokens)
        return min(self._step_s(peak), decode_s + self.engine.prefill_step_s(running, decode_s, self.mix))

    def idle_ttft_s(self, prompt: float) -> float:
        """TTFT of a prompt on a replica that does nothing else: no number of replicas makes it shorter."""
        decode_s = self.alone.decode_step_s(0.0, 0.0)
        return STEPS_AHEAD * decode_s + self._prefill_steps_s(self._prefill_s(prompt), 0.0, decode_s)

    def idle_tpot_s(self) -> float:
        """The step of a sequence that decodes alone."""
        return self.alone.decode_step_s(1.0, self.mix.held_tokens)

    def _late(self, rate: float, limit: Callable[[float], float]) -> float:
        """The share of first tokens that come later than the limit for their prompt."""
        each = rate / self.engines
        running, step_s = self._running(each), self._step_s(each)
        if step_s == inf:
            return 1.0
        most, deviation = self.engine.most_running(self.mix.held_tokens), sqrt(running / self.engines)
        slots = _Queue(running / most, most * self.engines, self.mix.output * step_s, self.lengths.output_cv)
        counts = [min(max(running + deviation * middle, 1.0), most) for middle in _FEW_MIDDLES]
        busy = sum(self._late_beside(each, count, slots, limit) for count in counts) / len(counts)
        alone = exp(-running)
        return busy if alone < _SELDOM else (1 - alone) * busy + alone * self._late_beside(each, 0.0, slots, limit)

    def _late_beside(self, each: float, running: float, slots: _Queue, limit: Callable[[float], float]) -> float:
        """The same while so many sequences decode on each engine."""
        decode_s = self.engine.decode_step_s(running, self.mix.held_tokens)
        share = self.engine.prefill_share(running, decode_s, self.mix)
        if share <= 0:
            return 1.0
        service_s = self.mix.prefill_s / share
        load, cv = each * service_s, self._prefill_cv
        full_s, busy = self.engine.prefill_step_s(running, decode_s, self.mix), min(load, 1.0)
        queued_s = max(
            busy * min(full_s, (1 + cv**2) * self.mix.prefill_s), decode_s * busy * share / (1 - busy * share)
        )
        ahead_s = STEPS_AHEAD * (decode_s + queued_s)
        late = 0.0
        for part, prompt, seconds in zip(SHARES, *self._prompts, strict=True):
            by_ratio = 1 - load + load * seconds / self.mix.prefill_s / (1 + cv**2)
            queue = _Queue(load, self.engines, (1 + by_ratio) / 2 * service_s, cv)
            left = limit(prompt) - ahead_s - self._prefill_steps_s(seconds, running, decode_s)
            late += part * min(queue.share_waiting(left) + slots.share_late(left), 1.0)
        return late

    @cached_property
    def _prompts(self) -> tuple[list[float], list[float]]:
        """Prompt lengths, and the seconds of their prefill."""
        prompts = self.lengths.prompts()
        return prompts, [self._prefill_s(prompt) for prompt in prompts]

    @cached_property
    def _prefill_cv(self) -> float:
        _, own = self._prompts
        mean = sum(map(mul, own, SHARES))
        square = sum(part * seconds**2 for part, seconds in zip(SHARES, own, strict=True))
        return sqrt(max(square / mean**2 - 1, 0.0)) if mean else 0.0

    def _prefill_s(self, prompt: float) -> float:
        step, uncached = self.speed.step_time, prompt * (1 - self.lengths.cached)
        return step.prefill * uncached + step.context * uncached * (prompt - uncached / 2)

    def _prefill_steps_s(self, seconds: float, running: float, decode_s: float) -> float:
        """The steps that so many seconds of prefill take, beside sequences that decode."""
        longest_s = self.alone.prefill_step_s(running, decode_s, self.mix)
        return seconds + ceil(seconds / longest_s - _ROUNDING) * decode_s

    def _step_s(self, each: float) -> float:
        """Seconds of a mean step of an engine with this rate; inf if it cannot keep up."""
        idle = 1 - each * self.mix.work_s
        return self.speed.step_time.base / idle if idle > 0 else inf

    def _running(self, each: float) -> float:
        return each * self.mix.output * self._step_s(each)


def _least(holds: Callable[[float], bool], most: float) -> float:
    """The least value up to `most` from which on it holds; inf if it does not hold there."""
    if not holds(most):
        return inf
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
