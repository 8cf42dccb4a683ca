"""What one replica does in a second, from its step time: a mean-field model of continuous batching. Pure.

A request costs prefill seconds (its uncached tokens and the pairs of tokens that they attend to) and decode seconds
(its output tokens, each with the KV tokens that it reads). Every step costs `base` besides. Where n requests enter and
leave a replica in each step, a step takes

    T(n) = base + n·(prefill_s + decode_s)

and the replica serves n / T(n) requests a second, more the larger n is. What bounds n: T(n) within the TPOT limit, n
prompts and their decodes within `step_tokens`, n·o sequences within the slots and n·Σkv tokens within the KV cache,
since a request stays for o steps. So the sustainable rate is a closed form, without an iteration.

Prefill grows with the square of a prompt's length, and what decoding reads with that of an answer's, so a mean request
costs less than requests do on average. `LengthFactors` of completed requests correct that, and tell what the prefix
cache saves.

A step that takes longer than the TPOT limit is never planned, so a burst is prefilled as fast as the sequences that
decode at the moment leave time for; that is `prefill_share`.
"""

from dataclasses import dataclass
from math import inf
from typing import Literal, Protocol

from paceline_core.objects.service import Role
from paceline_core.wire import StepTime

Bound = Literal["step tokens", "slots", "KV cache", "TPOT"]
_SHORTEST_STEP_S = 1e-6


class ReplicaSpeed(Protocol):
    """What a replica reports, or is planned with. `slots`: sequences that it runs at most."""

    @property
    def step_time(self) -> StepTime: ...
    @property
    def slots(self) -> int: ...
    @property
    def kv_tokens(self) -> int: ...


class CompletedLengths(Protocol):
    """Sums over requests that were answered."""

    @property
    def requests(self) -> float: ...
    @property
    def prompt_tokens(self) -> float: ...
    @property
    def cached_tokens(self) -> float: ...
    @property
    def output_tokens(self) -> float: ...
    @property
    def attended_pairs(self) -> float: ...
    @property
    def kv_reads(self) -> float: ...


@dataclass(frozen=True, slots=True)
class RequestMix:
    """The mean request on a replica of some speed: prompt, uncached and output tokens, and seconds of work.

    `held_tokens`: KV tokens that a sequence holds on average over its steps; `attended_pairs`: of tokens, in prefill.
    """

    prompt: float
    uncached: float
    output: float
    prefill_s: float
    decode_s: float
    held_tokens: float
    attended_pairs: float = 0.0

    @property
    def work_s(self) -> float:
        """Seconds of prefill and decoding."""
        return self.prefill_s + self.decode_s


NO_REQUEST = RequestMix(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class LengthFactors:
    """How requests differ from one of their mean lengths.

    `cached`: the share of prompt tokens that need no computation; `pairs` and `kv_reads`: the means of attended pairs
    and of KV reads over those of such a request.
    """

    cached: float = 0.0
    pairs: float = 1.0
    kv_reads: float = 1.0

    @classmethod
    def of(cls, completed: CompletedLengths) -> "LengthFactors":
        """Those of requests that were answered."""
        count = completed.requests
        prompt, output = completed.prompt_tokens / count, completed.output_tokens / count
        cached = completed.cached_tokens / completed.prompt_tokens
        pairs, reads = _pairs(prompt, cached), _kv_reads(prompt, output)
        return cls(
            cached=cached,
            pairs=completed.attended_pairs / count / pairs if pairs > 0 else 1.0,
            kv_reads=completed.kv_reads / count / reads if reads > 0 else 1.0,
        )


def mean_request(prompt: float, output: float, factors: LengthFactors, step: StepTime, role: Role) -> RequestMix:
    """The mean of requests with these mean lengths; work that the role does not do takes no time and no memory."""
    uncached, pairs = prompt * (1 - factors.cached), factors.pairs * _pairs(prompt, factors.cached)
    reads = factors.kv_reads * _kv_reads(prompt, output)
    if role == "decode":
        uncached = pairs = 0.0
    if role == "prefill":
        output = reads = 0.0
    return RequestMix(
        prompt=prompt,
        uncached=uncached,
        output=output,
        prefill_s=step.prefill * uncached + step.context * pairs,
        decode_s=step.sequence * output + step.kv * reads,
        held_tokens=reads / output if output else prompt,
        attended_pairs=pairs,
    )


def _pairs(prompt: float, cached: float) -> float:
    computed = prompt * (1 - cached)
    return computed * (prompt - computed / 2)


def _kv_reads(prompt: float, output: float) -> float:
    return output * (prompt + output / 2)


@dataclass(frozen=True, slots=True)
class ReplicaModel:
    """One replica. `step_tokens` and `tpot_s` bound its steps; `min_prefill`: prompt tokens of a step in any case."""

    speed: ReplicaSpeed
    step_tokens: int
    tpot_s: float
    min_prefill: int = 0

    def sustainable(self, mix: RequestMix) -> float:
        """Requests of this mix that it serves in a second, for as long as they come."""
        each_step = self._each_step(mix)
        seconds = self.speed.step_time.base + each_step * mix.work_s
        return each_step / seconds if seconds > 0 else inf

    def request_s(self, mix: RequestMix) -> float:
        """Its seconds that a request of this mix takes; under limits that no step keeps, one request runs at a time."""
        alone = 1 / max(mix.output, 1.0)
        return self.speed.step_time.base / max(self._each_step(mix), alone) + mix.work_s

    def bound(self, mix: RequestMix) -> Bound:
        """What binds first at the rate that it sustains."""
        bounds = self._bounds(mix)
        return min(bounds, key=lambda bound: bounds[bound])

    def _each_step(self, mix: RequestMix) -> float:
        """Requests that can enter and leave in each step."""
        return min(self._bounds(mix).values())

    def _bounds(self, mix: RequestMix) -> dict[Bound, float]:
        base, work = self.speed.step_time.base, mix.work_s
        return {
            "step tokens": self.step_tokens / max(mix.uncached + mix.output, 1.0),
            "slots": self.speed.slots / max(mix.output, 1.0),
            "KV cache": self.speed.kv_tokens / max(mix.output * mix.held_tokens, 1.0),
            "TPOT": max(self.tpot_s - base, 0.0) / work if work > 0 else inf,
        }

    def decode_step_s(self, running: float, held_tokens: float) -> float:
        """Seconds of a step in which so many sequences decode, and nothing else."""
        step = self.speed.step_time
        return max(step.base + running * (step.sequence + step.kv * held_tokens), _SHORTEST_STEP_S)

    def prefill_share(self, running: float, decode_step_s: float, mix: RequestMix) -> float:
        """The share of its time that it can spend on prompts while so many sequences decode."""
        seconds = self.prefill_step_s(running, decode_step_s, mix)
        return seconds / (decode_step_s + seconds)

    def prefill_step_s(self, running: float, decode_step_s: float, mix: RequestMix) -> float:
        """Seconds that prompts can have of one step beside so many sequences that decode."""
        token_s = mix.prefill_s / max(mix.uncached, 1.0)
        seconds = max(self.step_tokens - running, 0.0) * token_s
        in_time_s = max(self.tpot_s - decode_step_s, self.min_prefill * token_s)
        return min(seconds, in_time_s) if running > 0 else seconds

    def most_running(self, held_tokens: float) -> float:
        """Sequences that its slots and its KV cache hold."""
        return min(self.speed.slots, self.speed.kv_tokens / max(held_tokens, 1.0))
