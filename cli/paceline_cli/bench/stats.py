"""Exact percentiles of samples, with their counts. Pure.

A percentile is interpolated linearly between the two closest ranks (rank q * (n - 1), numpy's default), and never
stands without its n.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

METHOD = "linear interpolation between closest ranks, rank q * (n - 1)"


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in a few numbers, seconds; all None when `n` is 0."""

    n: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


def percentile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of a sorted, non-empty sequence."""
    rank = q * (len(ordered) - 1)
    low, high = math.floor(rank), math.ceil(rank)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def spread(values: Sequence[float]) -> Spread:
    """Summarise values in any order."""
    if not values:
        return Spread(0)
    ordered = sorted(values)
    p50, p90, p95, p99 = (percentile(ordered, q) for q in (0.5, 0.9, 0.95, 0.99))
    return Spread(len(ordered), math.fsum(ordered) / len(ordered), p50, p90, p95, p99, ordered[-1])
