"""What one replica does in a second, from its step time: the fluid model of continuous batching. Pure.

A request costs prefill seconds (its uncached tokens and the pairs of tokens that they attend to) and decode seconds
(its output tokens, each with the KV tokens that it reads). Every step costs `base` besides. Where n requests enter and
leave a replica in each step, a step takes

    T(n) = base + n·(prefill_s + decode_s)

and the replica serves n / T(n) requests a second, more the larger n is. What bounds n: T(n) within the TPOT limit, n
prompts and their decodes within `step_tokens`, n·o sequences within the slots and n·Σkv tokens within the KV cache,
since a request stays for o steps. So the sustainable rate is a closed form, without an iteration.

A step that takes longer than the TPOT limit is never planned, so a burst is prefilled as fast as the sequences that
decode at the moment leave time for; that is `prefill_share`.
"""

from dataclasses import dataclass
from math import inf

from paceline_autoscaler.policies.fluid_types import DemandBin
from paceline_autoscaler.state import PoolSpeed

_SHORTEST_STEP_S = 1e-6


@dataclass(frozen=True, slots=True)
class RequestMix:
    """The mean request on a replica of some speed: prompt, uncached and output tokens, and seconds of work.

    `held_tokens`: KV tokens that a sequence holds on average over its steps; `attended_pairs`: see `DemandBin`.
    """

    prompt: float
    uncached: float
    output: float
    prefill_s: float
    decode_s: float
    held_tokens: float
    attended_pairs: float = 0.0


NO_REQUEST = RequestMix(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def mix_of(demand: DemandBin, speed: PoolSpeed) -> RequestMix:
    """The mean request of a bin that has some."""
    step, count = speed.step_time, demand.arrivals
    uncached = demand.prompt_tokens - demand.cached_tokens
    return RequestMix(
        prompt=demand.prompt_tokens / count,
        uncached=uncached / count,
        output=demand.output_tokens / count,
        prefill_s=(step.prefill * uncached + step.context * demand.attended_pairs) / count,
        decode_s=(step.sequence * demand.output_tokens + step.kv * demand.kv_reads) / count,
        held_tokens=demand.kv_reads / demand.output_tokens if demand.output_tokens else 0.0,
        attended_pairs=demand.attended_pairs / count,
    )


@dataclass(frozen=True, slots=True)
class ReplicaModel:
    """One replica. `step_tokens` and `tpot_s` bound its steps."""

    speed: PoolSpeed
    step_tokens: int
    tpot_s: float

    def sustainable(self, mix: RequestMix) -> float:
        """Requests of this mix that it serves in a second, for as long as they come."""
        base, work = self.speed.step_time.base, mix.prefill_s + mix.decode_s
        each_step = min(
            self.step_tokens / max(mix.uncached + mix.output, 1.0),
            self.speed.slots / max(mix.output, 1.0),
            self.speed.kv_tokens / max(mix.output * mix.held_tokens, 1.0),
            max(self.tpot_s - base, 0.0) / work if work > 0 else inf,
        )
        seconds = base + each_step * work
        return each_step / seconds if seconds > 0 else inf

    def decode_step_s(self, running: float, held_tokens: float) -> float:
        """Seconds of a step in which so many sequences decode, and nothing else."""
        step = self.speed.step_time
        return max(step.base + running * (step.sequence + step.kv * held_tokens), _SHORTEST_STEP_S)

    def prefill_share(self, running: float, decode_step_s: float, mix: RequestMix) -> float:
        """The share of its time that it can spend on prompts while so many sequences decode."""
        seconds = max(self.step_tokens - running, 0.0) * mix.prefill_s / max(mix.uncached, 1.0)
        if running > 0:
            seconds = min(seconds, max(self.tpot_s - decode_step_s, 0.0))
        return seconds / (decode_step_s + seconds)

    def most_running(self, held_tokens: float) -> float:
        """Sequences that its slots and its KV cache hold."""
        return min(self.speed.slots, self.speed.kv_tokens / max(held_tokens, 1.0))
