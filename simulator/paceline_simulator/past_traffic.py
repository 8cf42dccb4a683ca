"""Requests as a service has had them: how many by the history of its work, how long by the summary of their lengths.

A bin of the history has so many requests as its work is of mean ones, at random times within it; where the history
varies more within bins than such requests do, its thirds differ. Lengths follow a sequence that fills the unit cube
evenly, so that few requests already have the mean lengths. A seed names the traffic: the same one every time.
Known holes: prompts and answers are independent of each other, and so is the length of the time of day.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from math import floor, fsum, sqrt
from random import Random

from paceline_autoscaler.model.late_work import thirds
from paceline_autoscaler.model.lengths import LengthSummary
from paceline_autoscaler.model.work_history import BIN_S
from paceline_autoscaler.policies.fluid_types import DemandBin, LengthSpread
from paceline_simulator.traces import BLOCK, TraceRequest

PARTS, SPREAD_PARTS = 512, 20
"""Equal parts of the requests, each with one length."""
FAMILIES = 4
"""Different beginnings that prompts share, where some of their tokens are cached."""
_OWN_BLOCKS = 1 << 24
"""The first name of blocks that only one prompt has."""
_STEPS = tuple(0.8191725133961645**power for power in (1, 2, 3))
"""Steps of an even sequence in three dimensions: powers of the inverse of the root of x^4 = x + 1 (Roberts, 2018)."""
_SINGLE = 300
"""Requests of a bin above which seconds take their number, and not each one its time."""


@dataclass(frozen=True, slots=True)
class LengthParts:
    """Prompt and output tokens of equal parts of the requests, ascending; `cached`: the share of a prompt's tokens."""

    prompts: tuple[float, ...]
    outputs: tuple[float, ...]
    cached: float = 0.0

    @classmethod
    def of(cls, summary: LengthSummary) -> "LengthParts":
        """Those of a summary with requests in it."""
        return cls(
            _parts(summary.prompts, summary.prompt_tokens / summary.requests),
            _parts(summary.outputs, summary.output_tokens / summary.requests),
            min(summary.cached_tokens / summary.prompt_tokens, 1.0),
        )

    @property
    def mean(self) -> DemandBin:
        """The mean request."""
        prompt, output = _mean(self.prompts), _mean(self.outputs)
        prompt2, output2 = (_mean([length * length for length in each]) for each in (self.prompts, self.outputs))
        pairs = (1 - self.cached) * (1 + self.cached) / 2 * prompt2
        return DemandBin(1.0, prompt, output, prompt * self.cached, pairs, output * prompt + output2 / 2)

    @property
    def spread(self) -> LengthSpread:
        """As the fluid model takes them."""
        return LengthSpread(*(_coarse(lengths) for lengths in (self.prompts, self.outputs)))

    def work_variance(self, prefill_s: float, decode_s: float) -> float:
        """The mean square of a request's work over the square of its mean, if its parts grow with the lengths."""
        prompt, output = (
            _mean([one * one for one in each]) / _mean(each) ** 2 for each in (self.prompts, self.outputs)
        )
        whole = prefill_s + decode_s
        return (prefill_s**2 * prompt + decode_s**2 * output + 2 * prefill_s * decode_s) / whole**2 if whole else 1.0

    def request(self, number: int, at: float, most: int) -> TraceRequest:
        """The request of this number, whose prompt and answer have at most `most` tokens together."""
        first, second, third = ((0.5 + number * step) % 1.0 for step in _STEPS)
        output = min(max(round(self.outputs[int(second * len(self.outputs))]), 1), most - 1)
        prompt = min(max(round(self.prompts[int(first * len(self.prompts))]), 1), most - output)
        return TraceRequest(at, prompt, output, self._blocks(number, prompt, third))

    def _blocks(self, number: int, prompt: int, third: float) -> tuple[int, ...]:
        """Names of the prompt's blocks; of those at its beginning about the cached share is common to a family."""
        if not self.cached:
            return ()
        common = min(int(self.cached * prompt / BLOCK + third), (prompt - 1) // BLOCK)
        family, count = number % FAMILIES, -(-prompt // BLOCK)
        own = _OWN_BLOCKS + number * (max(round(self.prompts[-1]), prompt) // BLOCK + 2)
        return (*range(family << 16, (family << 16) + common), *range(own, own + count - common))


@dataclass(frozen=True)
class PastTraffic:
    """`rates`: requests a second by bin of BIN_S; `dispersion`: of thirds of bins, beyond that of such requests."""

    rates: Sequence[float]
    lengths: LengthParts
    dispersion: float = 0.0
    seed: int = 0

    @cached_property
    def _until(self) -> list[int]:
        """How many requests have come before each bin, and in all."""
        return [0, *(floor(rate * BIN_S) for rate in accumulate(self.rates))]

    @property
    def count(self) -> int:
        """Requests in all."""
        return self._until[-1]

    def times(self, factor: float) -> "PastTraffic":
        """With so many times the requests."""
        return replace(self, rates=[factor * rate for rate in self.rates])

    def demand_bins(self) -> list[DemandBin]:
        """A bin for each second; all requests are mean ones."""
        mean = self.lengths.mean
        return [_multiple(mean, count) for place in range(len(self.rates)) for count in self._by_second(place)]

    def requests(self, first: int, last: int, most: int) -> list[TraceRequest]:
        """Those of some bins, from 0 s on, each with at most `most` tokens."""
        before = self._until[first]
        times = [at + (place - first) * BIN_S for place in range(first, last) for at in self._times(place)]
        return [self.lengths.request(before + number, at, most) for number, at in enumerate(times)]

    def _by_second(self, place: int) -> Sequence[float]:
        counts = array("d", bytes(8 * int(BIN_S)))
        if self.rates[place] * BIN_S <= _SINGLE:
            for at in self._times(place):
                counts[int(at)] += 1
            return counts
        random, left = self._random(place), self._count(place)
        for second in range(len(counts)):
            share = 1 / (len(counts) - second)
            drawn = random.gauss(left * share, sqrt(left * share * (1 - share)))
            counts[second] = min(max(round(drawn), 0), left)
            left -= round(counts[second])
        return counts

    def _times(self, place: int) -> Iterator[float]:
        """The arrivals of a bin, from its beginning on, in order."""
        random, count = self._random(place), self._count(place)
        edges = list(accumulate(thirds(1.0, place, self._share(place))))
        found = []
        for _ in range(count):
            third = bisect_right(edges, random.random() * edges[-1], hi=2)
            found.append(min((third + random.random()) * BIN_S / 3, BIN_S - 1e-6))
        return iter(sorted(found))

    def _share(self, place: int) -> float:
        """The dispersion in multiples of the bin's rate."""
        return self.dispersion / self.rates[place] if self.rates[place] else 0.0

    def _count(self, place: int) -> int:
        return self._until[place + 1] - self._until[place]

    def _random(self, place: int) -> Random:
        return Random(self.seed << 32 | place)  # noqa: S311 - a repeatable workload, no secret


def _parts(counts: Sequence[float], mean: float) -> tuple[float, ...]:
    """The lengths of PARTS equal parts of requests that are counted by `wire.length_bucket`, with this mean."""
    until = list(accumulate(counts))
    found = []
    for part in range(PARTS):
        wanted = (part + 0.5) / PARTS * until[-1]
        bucket = bisect_right(until, wanted)
        share = (wanted - (until[bucket] - counts[bucket])) / counts[bucket]
        found.append(2 ** ((bucket + share) / 2))
    by = mean / _mean(found)
    return tuple(max(length * by, 1.0) for length in found)


def _coarse(lengths: Sequence[float]) -> tuple[float, ...]:
    mean, size = _mean(lengths), len(lengths)
    edges = [size * part // SPREAD_PARTS for part in range(SPREAD_PARTS + 1)]
    parts = [lengths[start:end] for start, end in pairwise(edges) if end > start]
    return tuple(_mean(part) / mean for part in parts)


def _multiple(mean: DemandBin, count: float) -> DemandBin:
    return DemandBin(
        count,
        count * mean.prompt_tokens,
        count * mean.output_tokens,
        count * mean.cached_tokens,
        count * mean.attended_pairs,
        count * mean.kv_reads,
    )


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)
