"""Quantiles of histograms from their cumulative buckets, as Prometheus estimates them. Pure.

Buckets are (upper edge, cumulative count) in any order; the edge `inf` counts all. Exact percentiles of samples are
another thing: see the bench client's `stats`.
"""

import math
from collections.abc import Iterable

Bucket = tuple[float, float]
ROUNDING = 1e-9
"""Of a rank: a quantile that equals a count lies in that bucket."""


def bucket_quantile(quantile: float, buckets: Iterable[Bucket]) -> float:
    """Prometheus's `histogram_quantile`: linear within a bucket, NaN without observations, never past the last edge."""
    edges = sorted(buckets)
    if not edges or not math.isinf(edges[-1][0]) or edges[-1][1] <= 0:
        return math.nan
    rank = quantile * edges[-1][1]
    index = _reached(rank, edges)
    if math.isinf(edges[index][0]):
        return edges[-2][0] if len(edges) > 1 else math.nan
    lower, below = edges[index - 1] if index else (0.0, 0.0)
    upper, count = edges[index]
    return lower + (upper - lower) * (rank - below) / (count - below) if count > below else upper


def bucket_quantile_bound(quantile: float, buckets: Iterable[Bucket]) -> float | None:
    """The upper edge of the bucket that holds the quantile; None without observations."""
    edges = sorted(buckets)
    if not edges or edges[-1][1] <= 0:
        return None
    return edges[_reached(quantile * edges[-1][1] - ROUNDING, edges)][0]


def _reached(rank: float, edges: list[Bucket]) -> int:
    """The index of the first bucket whose count reaches the rank."""
    return next(index for index, (_, count) in enumerate(edges) if count >= rank)
