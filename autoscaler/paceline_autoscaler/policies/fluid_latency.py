"""Latencies of the fluid's requests: TTFT and TPOT, with the spread of lengths around a part's mean request. Pure.

TTFT is the wait, the own prompt's prefill in the time that decodes leave to it, and the steps that are under way or
planned when it comes. TPOT is the mean step of an answer. A short answer meets by chance more or fewer of the long
steps that carry prompts, so its mean scatters, the more since these come in runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import groupby
from math import erf, sqrt
from operator import mul
from typing import Self

from paceline_autoscaler.policies.fluid_pool import STEPS_AHEAD, Answers, Ended
from paceline_autoscaler.policies.fluid_types import LengthSpread
from paceline_autoscaler.types import SloTarget
from paceline_core.wire import StepTime
from paceline_planner.replica import RequestMix

_HALVINGS = 12
_PERIOD_S = 15.0
_LEAST_SHARE = 1e-9
_Slowest = tuple[float, int, float, float, float]
"""A part's slowest uncounted prompt: its TTFT, negative, and its place; its part's begin, share and requests."""


class Latencies:
    """Latencies of requests whose lengths spread around `mix` like this, on replicas with this step time."""

    def __init__(self, step: StepTime, lengths: LengthSpread, mix: RequestMix) -> None:
        linear = step.prefill * mix.uncached
        square = (mix.prefill_s - linear) * len(lengths.prompt) / sum([one * one for one in lengths.prompt])
        self._prompts = [mix.prompt * one for one in lengths.prompt]
        self._prefill_s = [linear * one + square * one * one for one in lengths.prompt]
        self._outputs = [mix.output * one for one in lengths.output]

    def share_in_time(self, answers: Answers, ttft: SloTarget) -> float:
        """The share of a part whose first token came within the limit for its prompt."""
        part, share = answers.part, max(answers.prefill_share, _LEAST_SHARE)
        ahead_s = STEPS_AHEAD * answers.step_s
        if max(part.wait, part.last_wait) + ahead_s + self._prefill_s[-1] / share <= ttft.seconds:
            return 1.0
        within = [
            part.share_within(ttft.limit(prompt) - ahead_s - own / share)
            for prompt, own in zip(self._prompts, self._prefill_s, strict=True)
        ]
        return sum(within) / len(within)

    def ttft_s(self, ended: Sequence[Ended], quantile: float) -> float:
        """The quantile of the TTFT of requests that have ended."""
        slowest: list[_Slowest] = []
        total, last = 0.0, len(self._prefill_s) - 1
        for one in ended:
            answers = one.answers
            part, share = answers.part, max(answers.prefill_share, _LEAST_SHARE)
            begun = (part.wait + part.last_wait) / 2 + STEPS_AHEAD * answers.step_s
            slowest.append((-begun - self._prefill_s[last] / share, last, begun, share, part.requests))
            total += part.requests
        heapify(slowest)
        left = (1 - quantile) * total * len(self._prefill_s)
        while slowest:
            negative, place, begun, share, requests = slowest[0]
            left -= requests
            if left <= 0:
                return -negative
            if place:
                heapreplace(slowest, (-begun - self._prefill_s[place - 1] / share, place - 1, begun, share, requests))
            else:
                heappop(slowest)
        return 0.0

    def tpot_s(self, ended: Sequence[Ended], quantile: float) -> float:
        """The quantile of the TPOT of requests that have ended."""
        periods = [
            _Steps.of(list(group), self._outputs) for _, group in groupby(ended, lambda one: one.at // _PERIOD_S)
        ]
        total = sum([period.requests for period in periods])
        low, high = min([period.short for period in periods]), max([period.longest for period in periods])
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            within = sum([period.requests * period.share_within(middle) for period in periods])
            low, high = (low, middle) if within >= quantile * total else (middle, high)
        return high


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of `requests` that ended at about the same time: seconds of one that only decodes and of the longest.

    A share `often` of the steps is long, in an answer with a deviation of about `scales`, by the lengths of the spread.
    """

    requests: float
    short: float
    longest: float
    often: float
    scales: Sequence[float]

    @classmethod
    def of(cls, ended: Sequence[Ended], outputs: Sequence[float]) -> Self:
        rows = [
            (one.answers.decode_step_s, one.tpot_s, one.answers.longest_step_s, one.answers.part.mix.prefill_s)
            for one in ended
        ]
        weights = [one.answers.part.requests for one in ended]
        total = sum(weights)
        short, mean, longest, prompt = (sum(map(mul, column, weights)) / total for column in zip(*rows, strict=True))
        often = (mean - short) / (longest - short) if longest > short else 0.0
        if not _LEAST_SHARE < often < 1 - _LEAST_SHARE:
            return cls(total, min(short, mean), max(mean, longest), round(often), ())
        runs = _correlated_steps(often, (1 - short / mean) / (1 - short / longest), prompt / (longest - short))
        scales = [sqrt(2 * often * (1 - often) * min(runs / max(output - 1, 1.0), 1.0)) for output in outputs]
        return cls(total, short, longest, often, scales)

    def share_within(self, seconds: float) -> float:
        """The share of its requests whose TPOT is no longer."""
        if seconds >= self.longest:
            return 1.0
        if seconds < self.short or not self.scales:
            return float(seconds >= self.short and not self.often)
        long = (seconds - self.short) / (self.longest - self.short)
        return sum([1 + erf((long - self.often) / scale) for scale in self.scales]) / (2 * len(self.scales))


def _correlated_steps(often: float, busy: float, prompt_steps: float) -> float:
    """How many steps count as one draw: long steps come in runs.

    A prompt takes so many long steps, and while a replica is `busy` with prompts for a share of what it could be, the
    next prompt follows at once: a run is that of a single server's busy period. Long and short steps alternate as in a
    Markov chain with these runs, of which a share `often` is long.
    """
    run = max(prompt_steps, 1.0) / max(1 - busy, 0.01)
    change = min(1 / (run * (1 - often)), 1.0)
    return (2 - change) / change
