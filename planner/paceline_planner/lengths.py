"""The lengths of requests: log-normal prompts and answers, their parts, and the KV tokens that they are admitted with.

Most public traces of chats are near a coefficient of variation of 1. An engine does not know how long an answer will
be: it admits a request only if all fit at the predicted peak, where each has grown by the ADMITTED_QUANTILE of what
answers of its age still grow (LightLLM's "Past-Future scheduler", ASPLOS 2025). So it holds fewer than would fit.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf, log, sqrt
from operator import mul
from statistics import NormalDist

from paceline_planner.replica import CompletedLengths, LengthFactors

ADMITTED_QUANTILE = 0.8
"""That of the worker's `engine.scheduling.admission`."""
_EDGES = (
    *(place / 10 for place in range(9)),
    0.85,
    0.9,
    0.92,
    0.94,
    0.96,
    0.98,
    0.99,
    0.995,
    0.998,
    0.999,
    0.9995,
    1.0,
)
"""Parts of all prompts, from the shortest to the longest: the finer the longer they are, since those are late first."""
SHARES = tuple(high - low for low, high in pairwise(_EDGES))
_NORMAL = NormalDist()
_MIDDLES = tuple(_NORMAL.inv_cdf((low + high) / 2) for low, high in pairwise(_EDGES))
_AGES = 64
_OLDEST = 0.999
_SURE = 1 - 1e-9
_ALIKE = 0.01


@dataclass(frozen=True, slots=True)
class LengthDistribution:
    """Mean tokens of prompt and answer, their coefficients of variation (0: all alike), the cached share of prompts.

    `context`: tokens of the longest prompt; longer ones are refused, so they are not judged.
    """

    prompt: float
    output: float
    prompt_cv: float = 1.0
    output_cv: float = 1.0
    cached: float = 0.0
    context: float = inf

    @classmethod
    def of(cls, completed: CompletedLengths) -> "LengthDistribution":
        """Those that requests which were answered had."""
        prompt, output = completed.prompt_tokens / completed.requests, completed.output_tokens / completed.requests
        found = LengthFactors.of(completed)
        longer = (found.kv_reads - 1) * (2 * prompt / output + 1) if output else 0.0
        return cls(prompt, output, sqrt(max(found.pairs - 1, 0.0)), sqrt(max(longer, 0.0)), found.cached)

    @property
    def factors(self) -> LengthFactors:
        """How requests differ from one of their mean lengths."""
        reads = self.prompt + self.output * (1 + self.output_cv**2) / 2
        return LengthFactors(self.cached, 1 + self.prompt_cv**2, reads / (self.prompt + self.output / 2))

    def prompts(self) -> list[float]:
        """A prompt length for each of SHARES; their mean is `prompt`, or less if the context cuts the longest."""
        deviation = _deviation(self.prompt_cv)
        parts = [exp(deviation * middle) for middle in _MIDDLES]
        mean = sum(map(mul, parts, SHARES))
        return [min(self.prompt * part / mean, self.context) for part in parts]

    def prompt_quantile(self, quantile: float) -> float:
        """The length that this share of prompts stays below."""
        return min(_quantile(self.prompt, self.prompt_cv, quantile), self.context)

    def peak_tokens(self) -> float:
        """KV tokens at the predicted peak for each sequence that runs, over all ages: what admission counts with."""
        if self.output_cv < _ALIKE or not self.output:
            return self.prompt + self.output / 2
        oldest = _quantile(self.output, self.output_cv, _OLDEST)
        ages = [oldest * (place + 0.5) / _AGES for place in range(_AGES)]
        passed = [_share_below(self.output, self.output_cv, age) for age in ages]
        total = sum(1 - share for share in passed)
        rows = sorted(
            ((self._growth(age, share), age, (1 - share) / total) for age, share in zip(ages, passed, strict=True)),
            reverse=True,
        )
        used = count = peak = 0.0
        for growth, age, weight in rows:  # when one ends, those that grow for longer still run and have grown as much
            used, count = used + weight * (self.prompt + age), count + weight
            peak = max(peak, used + count * growth)
        return peak

    def _growth(self, age: float, passed: float) -> float:
        """Tokens that an answer of this age, which a share of them does not reach, is expected to grow."""
        quantile = min(1 - (1 - ADMITTED_QUANTILE) * (1 - passed), _SURE)
        return _quantile(self.output, self.output_cv, quantile) - age


def _deviation(cv: float) -> float:
    """The standard deviation of the logarithm."""
    return sqrt(log(1 + cv**2))


def _quantile(mean: float, cv: float, quantile: float) -> float:
    deviation = _deviation(cv)
    return mean * exp(deviation * _NORMAL.inv_cdf(quantile) - deviation**2 / 2)


def _share_below(mean: float, cv: float, value: float) -> float:
    deviation = _deviation(cv)
    return _NORMAL.cdf((log(value / mean) + deviation**2 / 2) / deviation)
