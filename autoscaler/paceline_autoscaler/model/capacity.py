"""What clients' requests cost on a replica. Pure.

A request takes the seconds of a replica that serves as many of its kind as it sustains (`replica`): its own work, and
its part of what each step costs besides. A prompt token costs its share of prefill's part, an output token its share of
decoding's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum

from paceline_autoscaler.state import PoolSpeed
from paceline_autoscaler.types import ClassSignals, Role, WorkerLoad
from paceline_planner.replica import LengthFactors, ReplicaModel, mean_request

OUTPUT_PRIOR = 128.0


@dataclass(frozen=True, slots=True)
class TokenMix:
    """The mean request: tokens in, tokens out."""

    prompt_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class TokenCost:
    """Replica-seconds of one prompt token, and of one output token."""

    prompt: float
    output: float

    def of(self, requests: float, prompt_tokens: float, output_tokens: float) -> float:
        """Replica-seconds of `requests` requests with `prompt_tokens` in total and `output_tokens` each."""
        return prompt_tokens * self.prompt + requests * output_tokens * self.output


def mix_of(classes: Iterable[ClassSignals], learned_output: float | None) -> TokenMix:
    """The mean over classes, weighted by their arrivals in the longest window."""
    arrivals = prompt = output = 0.0
    for cls in classes:
        if cls.flows and cls.flows[-1].arrivals > 0:
            flow = cls.flows[-1]
            arrivals += flow.arrivals
            prompt += flow.prompt_tokens
            output += flow.arrivals * output_of(cls, learned_output)
    if arrivals == 0:
        return TokenMix(0.0, learned_output if learned_output is not None else OUTPUT_PRIOR)
    return TokenMix(prompt / arrivals, output / arrivals)


def output_of(cls: ClassSignals, learned: float | None) -> float:
    """Expected output tokens of one request: the class's own mean, else the service's, else a prior."""
    known = cls.output_tokens if cls.output_tokens is not None else learned
    return OUTPUT_PRIOR if known is None else known


def price(replica: ReplicaModel, mix: TokenMix, factors: LengthFactors, role: Role) -> TokenCost:
    """The costs of tokens on such a replica; work that the role does not do is free."""
    step = replica.speed.step_time
    prompt, output = max(mix.prompt_tokens, 1.0), max(mix.output_tokens, 1.0)
    request = mean_request(prompt, output, factors, step, role)
    busy = replica.request_s(request)
    if request.work_s <= 0:  # a step costs the same whatever is in it
        return TokenCost(busy / prompt, 0.0) if role == "prefill" else TokenCost(0.0, busy / output)
    part = busy / request.work_s
    return TokenCost(part * request.prefill_s / prompt, part * request.decode_s / output)


def work_level(classes: Iterable[ClassSignals], unit: TokenCost, learned_output: float | None) -> float:
    """Replica-seconds per second that clients bring, over the longest window."""
    return fsum(
        unit.of(flow.arrivals, flow.prompt_tokens, output_of(cls, learned_output)) / max(flow.seconds, 1.0)
        for cls in classes
        for flow in cls.flows[-1:]
    )


def work_rate(
    classes: Iterable[ClassSignals], unit: TokenCost, learned_output: float | None, shortest_s: float = 0.0
) -> float:
    """The highest rate of any window from `shortest_s` on; the longest one always counts."""
    windows: dict[int, float] = {}
    for cls in classes:
        output = output_of(cls, learned_output)
        for index, flow in enumerate(cls.flows):
            if flow.seconds >= shortest_s or index == len(cls.flows) - 1:
                work = unit.of(flow.arrivals, flow.prompt_tokens, output)
                windows[index] = windows.get(index, 0.0) + work / max(flow.seconds, 1.0)
    return max(windows.values(), default=0.0)


def speed_of(pool: str, loads: Iterable[WorkerLoad]) -> PoolSpeed | None:
    """The pool's speed, as fitted by the replica with the most observed steps; a prior if there is nothing better.

    None if no replica knows its step time.
    """
    known = [load for load in loads if load.step_time.base + load.step_time.prefill > 0]
    best = max(known, key=lambda load: (load.step_time.observations, load.worker), default=None)
    return None if best is None else PoolSpeed(pool, best.step_time, best.slots, best.kv_tokens)
