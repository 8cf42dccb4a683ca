"""Goodput: its limits by hand, and what must hold whatever the lengths and the promise."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.wire import StepTime
from paceline_planner.goodput import LatencyPromise, PlannedSpeed, PoolModel
from paceline_planner.lengths import LengthDistribution

STEP = StepTime(base=0.01, prefill=2e-5, sequence=1e-5, kv=4e-8, context=0.0)
SPEED = PlannedSpeed(STEP, slots=256, kv_tokens=500_000)
ALIKE = LengthDistribution(1000, 200, 0.0, 0.0)
POOL = PoolModel(SPEED, 2048, ALIKE, LatencyPromise(1.0, 0.05))
POOLS = st.builds(
    PoolModel,
    st.builds(
        PlannedSpeed,
        st.builds(
            StepTime,
            base=st.floats(0.002, 0.05),
            prefill=st.floats(1e-6, 3e-4),
            sequence=st.floats(1e-6, 1e-4),
            kv=st.floats(1e-9, 5e-7),
            context=st.floats(0, 5e-9),
        ),
        slots=st.integers(16, 512),
        kv_tokens=st.integers(50_000, 1_000_000),
    ),
    st.sampled_from([1024, 2048, 8192]),
    st.builds(
        LengthDistribution,
        st.floats(10, 8000),
        st.floats(1, 1000),
        st.floats(0, 1.5),
        st.floats(0, 1.5),
        st.sampled_from([0.0, 0.5, 0.9]),
    ),
    st.builds(LatencyPromise, st.floats(0.1, 10), st.floats(0.06, 0.5), st.sampled_from([0.5, 0.9, 0.95, 0.99])),
    st.sampled_from([1, 3, 16]),
)


def test_an_idle_replica_takes_a_step_and_a_half_and_the_steps_of_its_own_prompt() -> None:
    assert POOL.idle_ttft_s(1000) == pytest.approx(1.5 * 0.01 + 1000 * 2e-5 + 0.01)
    assert POOL.idle_ttft_s(5000) == pytest.approx(1.5 * 0.01 + 5000 * 2e-5 + 3 * 0.01)
    assert POOL.idle_tpot_s() == pytest.approx(0.01 + 1e-5 + 4e-8 * 1100)


def test_cached_tokens_take_no_time_of_an_idle_replica() -> None:
    cached = replace(POOL, lengths=replace(ALIKE, cached=0.5))
    assert cached.idle_ttft_s(1000) == pytest.approx(1.5 * 0.01 + 500 * 2e-5 + 0.01)


def test_without_load_only_prompts_that_are_too_long_are_late() -> None:
    pool = replace(POOL, lengths=LengthDistribution(10_000, 10, 1.0, 0.0), promise=LatencyPromise(1.0, inf))
    share = sum(pool.idle_ttft_s(length) > 1.0 for length in _quantiles(pool.lengths)) / 1000
    assert pool.late_share(0.0) == pytest.approx(share, abs=0.01)


def _quantiles(lengths: LengthDistribution) -> list[float]:
    return [lengths.prompt_quantile((place + 0.5) / 1000) for place in range(1000)]


def test_one_server_waits_as_pollaczek_and_khinchine_say() -> None:
    """Prompts of 100 ms, a step each: the mean wait of an M/D/1 queue, and a step and a half where one is under way."""
    step = StepTime(base=1e-5, prefill=1e-4, sequence=0.0, kv=0.0)
    pool = PoolModel(
        PlannedSpeed(step, 1000, 10_000_000), 1000, LengthDistribution(1000, 1, 0.0, 0.0), LatencyPromise(1.0, inf)
    )
    rate, mean_wait = 5.0, 0.5 * 0.1 / (2 * (1 - 0.5)) + 1.5 * 0.5 * 0.1
    waits = [replace(pool, promise=LatencyPromise(0.105 + 0.01 * place, inf)).late_share(rate) for place in range(200)]
    waits_s = 0.01 * sum(waits)
    assert waits_s == pytest.approx(mean_wait, rel=0.05)


def test_what_binds_has_the_name_of_the_setting_or_of_the_promise() -> None:
    assert POOL.limit == "slots"
    assert replace(POOL, speed=replace(SPEED, slots=2048)).limit == "TPOT"
    assert replace(POOL, speed=replace(SPEED, kv_tokens=20_000)).limit == "KV cache"
    assert replace(POOL, step_tokens=512).limit == "step tokens"
    assert replace(POOL, promise=LatencyPromise(0.07, 0.05)).limit == "TTFT"


def test_the_usable_share_grows_with_the_number_of_replicas() -> None:
    shares = [
        replace(POOL, lengths=LengthDistribution(1000, 200), promise=LatencyPromise(0.2, 0.05), replicas=n).usable
        for n in (1, 4, 16)
    ]
    assert shares == sorted(shares)
    assert shares[0] < 0.9 < shares[2]


def test_a_pipeline_has_a_queue_for_each_lane() -> None:
    lanes, replicas = replace(POOL, lanes=4), replace(POOL, replicas=4)
    assert lanes.goodput() == pytest.approx(replicas.goodput())


@given(pool=POOLS, share=st.floats(0.1, 0.9))
def test_no_more_is_kept_at_a_higher_rate_a_stricter_limit_or_fewer_replicas(pool: PoolModel, share: float) -> None:
    """Where most first tokens are late anyway, a few less may be so at a higher rate."""
    rate = share * pool.sustainable
    looser = replace(pool.promise, ttft_s=2 * pool.promise.ttft_s)
    if pool.keeps(rate):
        assert pool.keeps(0.8 * rate)
        assert replace(pool, replicas=2 * pool.replicas).keeps(rate)
        assert replace(pool, promise=looser).keeps(rate)


@given(pool=POOLS)
def test_goodput_is_sustainable_and_its_ttft_is_as_promised(pool: PoolModel) -> None:
    rate = pool.goodput()
    assert 0 <= rate <= pool.sustainable
    if 0.01 * pool.sustainable < rate < pool.sustainable:
        assert pool.ttft_s(0.99 * rate) <= pool.promise.ttft_s * 1.01
        assert pool.tpot_s(rate) <= max(pool.promise.tpot_s, pool.speed.step_time.base * 10) + 1


def test_a_rate_that_no_replica_sustains_has_no_latency() -> None:
    assert POOL.ttft_s(10 * POOL.sustainable) == inf


@given(POOLS)
def test_a_token_takes_no_longer_than_a_full_step_at_every_rate_that_is_sustainable(pool: PoolModel) -> None:
    free = replace(pool, promise=replace(pool.promise, tpot_s=inf))
    assert free.tpot_s(free.sustainable) < inf
