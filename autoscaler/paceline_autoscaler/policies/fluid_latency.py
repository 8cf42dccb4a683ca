"""Latencies of the fluid's requests: TTFT and TPOT, with the spread of lengths around a part's mean request. Pure.

TTFT is the wait, the own prompt's prefill in the time that decodes leave to it, and the steps that are under way or
planned when it comes. TPOT is the mean step of an answer. A short answer meets by chance more or fewer of the long
steps that carry prompts, so its mean scatters, the more since these come in runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import erf, sqrt
from operator import mul

from paceline_autoscaler.policies.fluid_pool import Answers, Ended
from paceline_autoscaler.policies.fluid_replica import RequestMix
from paceline_autoscaler.policies.fluid_types import LengthSpread
from paceline_autoscaler.types import SloTarget
from paceline_core.wire import StepTime

STEPS_AHEAD = 1.5
"""Steps before a request's own: half of the one under way, and the one that is planned already."""
_HALVINGS = 12


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies on replicas with this step time, of requests whose lengths spread like this."""

    step: StepTime
    lengths: LengthSpread

    def prefill_s(self, mix: RequestMix) -> list[float]:
        """Seconds of work of each prompt of the spread."""
        linear = self.step.prefill * mix.uncached
        shares = self.lengths.prompt
        square = (mix.prefill_s - linear) * len(shares) / sum([one * one for one in shares])
        return [linear * one + square * one * one for one in shares]

    def share_in_time(self, answers: Answers, ttft: SloTarget) -> float:
        """The share of a part whose first token came within the limit for its prompt."""
        part, share = answers.part, max(answers.prefill_share, 1e-9)
        ahead_s, longest = STEPS_AHEAD * answers.step_s, self.lengths.prompt[-1]
        if max(part.wait, part.last_wait) + ahead_s + longest**2 * part.mix.prefill_s / share <= ttft.seconds:
            return 1.0
        limits = [ttft.limit(part.mix.prompt * one) - ahead_s for one in self.lengths.prompt]
        own = self.prefill_s(part.mix)
        return sum([part.share_within(limit - s / share) for limit, s in zip(limits, own, strict=True)]) / len(own)

    def ttft_s(self, ended: Sequence[Ended], quantile: float) -> float:
        """The quantile of the TTFT of requests that have ended."""
        found: list[tuple[float, float]] = []
        for one in ended:
            answers = one.answers
            part, share = answers.part, max(answers.prefill_share, 1e-9)
            begun = (part.wait + part.last_wait) / 2 + STEPS_AHEAD * answers.step_s
            found += [(begun + own / share, part.requests) for own in self.prefill_s(part.mix)]
        found.sort()
        left = (1 - quantile) * sum([requests for _, requests in found])
        for seconds, requests in reversed(found):
            left -= requests
            if left <= 0:
                return seconds
        return 0.0

    def tpot_s(self, ended: Sequence[Ended], quantile: float) -> float:
        """The quantile of the TPOT of requests that have ended."""
        short, mean, longest, prompt, output = _mean_steps(ended)
        often = (mean - short) / (longest - short) if longest > short else 0.0
        if not 0 < often < 1:
            return mean
        runs = _correlated_steps(often, (1 - short / mean) / (1 - short / longest), prompt / (longest - short))
        scales = [
            sqrt(2 * often * (1 - often) * min(runs / max(output * one - 1, 1.0), 1.0)) for one in self.lengths.output
        ]
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            within = sum([1 + erf((middle - often) / scale) for scale in scales])
            low, high = (low, middle) if within >= quantile * 2 * len(scales) else (middle, high)
        return short + high * (longest - short)


def _mean_steps(ended: Sequence[Ended]) -> list[float]:
    """Seconds of a step that only decodes, of a mean step, and of the longest; of a prompt; and the output tokens."""
    rows = [
        (one.answers.decode_step_s, one.tpot_s, one.answers.longest_step_s, one.answers.part.mix.prefill_s,
         one.answers.part.mix.output)
        for one in ended
    ]  # fmt: skip
    weights = [one.answers.part.requests for one in ended]
    total = sum(weights)
    return [sum(map(mul, column, weights)) / total for column in zip(*rows, strict=True)]


def _correlated_steps(often: float, busy: float, prompt_steps: float) -> float:
    """How many steps count as one draw: long steps come in runs.

    A prompt takes so many long steps, and while a replica is `busy` with prompts for a share of what it could be, the
    next prompt follows at once: a run is that of a single server's busy period. Long and short steps alternate as in a
    Markov chain with these runs, of which a share `often` is long.
    """
    run = max(prompt_steps, 1.0) / max(1 - busy, 0.01)
    change = min(1 / (run * (1 - often)), 1.0)
    return (2 - change) / change
