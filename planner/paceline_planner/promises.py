"""What a promise takes: the fewest replicas that keep it at a rate, or the nearest one that some keep. Pure."""

from collections.abc import Callable
from dataclasses import replace
from math import ceil, floor, inf, log10
from typing import Final

from paceline_planner.goodput import FurtherLimit, LatencyPromise, PoolModel

MOST_REPLICAS: Final = 4096
_SLACKS: Final = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
"""How much longer than an idle replica's latency limits are tried, until replicas are not mostly idle."""
WORTH: Final = 0.5
"""The usable share from which on a promise is worth naming."""


def fewest_replicas(model: PoolModel, rate: float) -> PoolModel | None:
    """The pool with the fewest replicas that keep its promise at this rate; None if MOST_REPLICAS do not."""
    low, high = 0, 1
    while not _keep(model, rate, high):
        if high >= MOST_REPLICAS:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _keep(model, rate, middle) else (middle, high)
    return replace(model, replicas=high)


def _keep(model: PoolModel, rate: float, replicas: int) -> bool:
    pool = replace(model, replicas=replicas)
    return rate <= pool.sustainable and pool.keeps(rate)


def idle_latency(model: PoolModel) -> tuple[float, float, float]:
    """A replica that does nothing else: TTFT of the promised quantile's prompt, TPOT, and the larger over its limit.

    Of several limits of TTFT that which it comes nearest to. Above 1 no number of replicas keeps the promise.
    """
    tpot_s, tightest = model.idle_tpot_s(), tightest_ttft(model)
    ttft_s, excess = _idle_ttft(tightest)
    return ttft_s, tpot_s, max(excess, tpot_s / model.promise.tpot_s)


def tightest_ttft(model: PoolModel) -> PoolModel:
    """The pool with that limit of TTFT alone which an idle replica comes nearest to, or misses most."""
    return max(model.each, key=lambda one: _idle_ttft(one)[1])


def _idle_ttft(model: PoolModel) -> tuple[float, float]:
    """TTFT on an idle replica, and that over its limit."""
    prompt = quantile_prompt(model)
    ttft_s = model.idle_ttft_s(prompt)
    return ttft_s, ttft_s / model.promise.ttft_limit(prompt)


def quantile_prompt(model: PoolModel) -> float:
    """Tokens of the prompt that as many are shorter than as TTFT is promised for."""
    return model.lengths.prompt_quantile(model.promise.ttft_quantile)


def nearest_promise(
    make: Callable[[LatencyPromise], PoolModel], asked: LatencyPromise, rate: float
) -> PoolModel | None:
    """The fewest replicas under the strictest promise that they keep without being mostly idle.

    `make`: a pool of one replica with a promise.
    """
    found = None
    for slack in _SLACKS:
        pool = fewest_replicas(make(_loosened(make(asked), slack)), rate)
        found = pool or found
        if pool is not None and pool.usable >= WORTH:
            return pool
    return found


def _loosened(model: PoolModel, slack: float) -> LatencyPromise:
    """The promise, with limits of no less than `slack` times the latency of an idle replica, in two figures."""
    tpot_s = _rounded_up(model.idle_tpot_s() * slack)
    first, *further = [_loosened_ttft(one, slack) for one in model.each]
    also = [replace(one, seconds=max(one.seconds, tpot_s)) for one in model.promise.also if one.metric == "tpot"]
    also += [FurtherLimit("ttft", one.ttft_quantile, one.ttft_s) for one in further]
    return replace(first, tpot_s=max(first.tpot_s, tpot_s), also=tuple(also))


def _loosened_ttft(model: PoolModel, slack: float) -> LatencyPromise:
    promise, prompt = model.promise, quantile_prompt(model)
    ttft_s = _rounded_up(model.idle_ttft_s(prompt) * slack - promise.per_prompt_token * prompt)
    return replace(promise, ttft_s=max(promise.ttft_s, ttft_s), also=())


def _rounded_up(seconds: float) -> float:
    """To two figures."""
    if seconds <= 0 or seconds == inf:
        return max(seconds, 0.0)
    unit = 10.0 ** (floor(log10(seconds)) - 1)
    return ceil(seconds / unit) * unit
