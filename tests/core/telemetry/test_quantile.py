import math
from bisect import bisect_left
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.telemetry.instruments import bucket_quantile, bucket_quantile_bound


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        ([(0.5, 50.0), (1.0, 100.0), (math.inf, 100.0)], 0.5),
        ([(0.5, 0.0), (1.0, 100.0), (math.inf, 100.0)], 0.75),
        ([(0.5, 10.0), (math.inf, 100.0)], 0.5),
    ],
)
def test_the_median_of_buckets(buckets: list[tuple[float, float]], expected: float) -> None:
    assert bucket_quantile(0.5, buckets) == pytest.approx(expected)


@pytest.mark.parametrize("buckets", [[], [(0.5, 3.0)], [(math.inf, 3.0)], [(0.5, 0.0), (math.inf, 0.0)]])
def test_buckets_that_say_nothing_give_nan(buckets: list[tuple[float, float]]) -> None:
    assert math.isnan(bucket_quantile(0.5, buckets))


counts = st.lists(st.integers(0, 50), min_size=2, max_size=8)


@given(counts, st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_a_higher_quantile_is_never_lower(steps: list[int], one: float, two: float) -> None:
    total, buckets = 0.0, []
    for index, step in enumerate(steps):
        total += step
        buckets.append((float(index + 1), total))
    buckets.append((math.inf, total))
    low, high = (bucket_quantile(q, buckets) for q in sorted((one, two)))
    assert math.isnan(low) or low <= high


def test_a_bound_is_the_upper_edge_of_the_quantiles_bucket() -> None:
    buckets = {0.01: 980.0, 0.05: 990.0, 0.1: 999.0, math.inf: 1000.0}.items()
    assert bucket_quantile_bound(0.98, buckets) == 0.01
    assert bucket_quantile_bound(0.99, buckets) == 0.05
    assert bucket_quantile_bound(0.995, buckets) == 0.1
    assert bucket_quantile_bound(0.9999, buckets) == math.inf
    assert bucket_quantile_bound(0.99, [(0.01, 0.0), (math.inf, 0.0)]) is None
    assert bucket_quantile_bound(0.99, []) is None


EDGES = (0.01, 0.1, 1.0, 10.0)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=40), st.integers(1, 64).map(lambda part: part / 64))
def test_the_quantile_lies_in_the_bucket_of_the_sample_at_its_rank(samples: list[float], quantile: float) -> None:
    counts = [0] * (len(EDGES) + 1)
    for sample in samples:
        counts[bisect_left(EDGES, sample)] += 1
    buckets = list(zip((*EDGES, math.inf), accumulate(counts), strict=True))
    at_rank = sorted(samples)[math.ceil(quantile * len(samples) - 1e-9) - 1]
    index = bisect_left(EDGES, at_rank)
    lower = EDGES[index - 1] if index else 0.0
    assert bucket_quantile_bound(quantile, buckets) == EDGES[index]
    assert lower <= bucket_quantile(quantile, buckets) <= EDGES[index] * (1 + 1e-9)
