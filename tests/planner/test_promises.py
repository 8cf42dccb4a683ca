"""The fewest replicas, the nearest promise, and quotes."""

from dataclasses import replace
from decimal import Decimal

import pytest
from tests.planner.test_goodput import POOL

from paceline_planner.goodput import LatencyPromise, PoolModel
from paceline_planner.lengths import LengthDistribution
from paceline_planner.promises import fewest_replicas, idle_latency, nearest_promise
from paceline_planner.quote import QUANTILES, quotes

CHAT = replace(POOL, lengths=LengthDistribution(1000, 200), promise=LatencyPromise(0.5, 0.05))


def make(promise: LatencyPromise) -> PoolModel:
    return replace(CHAT, promise=promise)


def test_one_replica_fewer_does_not_carry_the_rate() -> None:
    rate = 5.5 * CHAT.goodput()
    pool = fewest_replicas(CHAT, rate)
    assert pool is not None
    assert pool.goodput() >= rate > replace(pool, replicas=pool.replicas - 1).goodput()


def test_a_promise_that_an_idle_replica_misses_has_no_number_of_replicas() -> None:
    *_, excess = idle_latency(make(LatencyPromise(0.02, 0.05)))
    assert excess > 1
    assert fewest_replicas(make(LatencyPromise(0.02, 0.05)), 1.0) is None


def test_the_nearest_promise_loosens_only_what_is_missed_and_is_kept_by_busy_replicas() -> None:
    asked = LatencyPromise(0.02, 0.05)
    pool = nearest_promise(make, asked, 100.0)
    assert pool is not None
    assert pool.promise.tpot_s == 0.05
    assert 0.02 < pool.promise.ttft_s < 0.5
    assert pool.usable >= 0.5
    assert fewest_replicas(pool, 100.0) == pool


def test_a_quote_costs_no_less_for_more_of_the_requests() -> None:
    rows = quotes(make, CHAT.promise, 100.0, Decimal("3.93"))
    assert [row.quantile for row in rows] == list(QUANTILES)
    costs = [row.dollars_per_hour for row in rows if row.dollars_per_hour is not None]
    assert costs == sorted(costs)
    assert rows[0].pool is not None
    assert rows[0].dollars_per_hour == Decimal("3.93") * rows[0].pool.replicas


def test_a_quote_that_fails_names_the_nearest_promise() -> None:
    last = quotes(make, LatencyPromise(0.12, 0.05), 100.0, None)[-1]
    assert last.pool is None
    assert last.dollars_per_hour is None
    assert last.nearest is not None
    assert last.nearest.promise.ttft_quantile == pytest.approx(0.999)
