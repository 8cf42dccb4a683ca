"""Latencies of the fluid's requests: TTFT and TPOT, with the spread of lengths around a part's mean request. Pure.

TTFT is the wait, the own prompt's prefill in the time that decodes leave to it, and the steps that are under way or
planned when it comes. TPOT is the mean step of an answer. A short answer meets by chance more or fewer of the long
steps that carry prompts: its mean scatters like that of independent draws of short and longest steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import erf, sqrt

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
        total = sum([one.answers.part.requests for one in ended])
        mean, short, longest, runs, output = (
            sum([one.answers.part.requests * value(one) for one in ended]) / total
            for value in (
                lambda one: one.tpot_s,
                lambda one: min(one.answers.decode_step_s, one.tpot_s),
                lambda one: max(one.answers.longest_step_s, one.tpot_s),
                _steps_of_a_prompt,
                lambda one: one.answers.part.mix.output,
            )
        )
        variance = (mean - short) * (longest - mean) * runs
        scales = [sqrt(2 * variance / max(output * one - 1, 1.0)) for one in self.lengths.output]
        low, high = short, longest
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            within = sum(
                [1 + erf((middle - mean) / scale) if scale > 0 else 2.0 * (middle >= mean) for scale in scales]
            )
            low, high = (low, middle) if within / (2 * len(scales)) >= quantile else (middle, high)
        return high


def _steps_of_a_prompt(ended: Ended) -> float:
    """The longest steps that one prompt takes in a row, at least one."""
    answers = ended.answers
    room = answers.longest_step_s - answers.decode_step_s
    return max(answers.part.mix.prefill_s / room, 1.0) if room > 0 else 1.0
