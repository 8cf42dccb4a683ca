"""What a promise takes: the fewest replicas that keep it at a rate, or the nearest one that some keep. Pure."""

from collections.abc import Callable
from dataclasses import replace
from math import ceil, floor, inf, log10
from typing import Final

from paceline_planner.goodput import LatencyPromise, PoolModel

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
    return rate <= pool.sustainable and pool.late_share(rate) <= pool.promise.late


def idle_latency(model: PoolModel) -> tuple[float, float, float]:
    """A replica that does nothing else: TTFT of the promised quantile's prompt, TPOT, and the larger over its limit.

    Above 1 no number of replicas keeps the promise.
    """
    promise, prompt = model.promise, quantile_prompt(model)
    ttft_s, tpot_s = model.idle_ttft_s(prompt), model.idle_tpot_s()
    return ttft_s, tpot_s, max(ttft_s / promise.ttft_limit(prompt), tpot_s / promise.tpot_s)


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
    ttft_s, tpot_s, _ = idle_latency(model)
    promise, extra = model.promise, model.promise.per_prompt_token * quantile_prompt(model)
    return replace(
        promise,
        ttft_s=max(promise.ttft_s, _rounded_up(ttft_s * slack - extra)),
        tpot_s=max(promise.tpot_s, _rounded_up(tpot_s * slack)),
    )


def _rounded_up(seconds: float) -> float:
    """To two figures."""
    if seconds <= 0 or seconds == inf:
        return max(seconds, 0.0)
    unit = 10.0 ** (floor(log10(seconds)) - 1)
    return ceil(seconds / unit) * unit
