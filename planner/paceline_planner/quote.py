"""What a promise costs at other quantiles: dollars an hour, the limit, and the nearest promise if it fails. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from paceline_planner.goodput import LatencyPromise, PoolModel
from paceline_planner.promises import fewest_replicas, idle_latency, nearest_promise

QUANTILES: Final = (0.9, 0.95, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class Quote:
    """The same limits, kept for a share of requests. `pool` is None if nothing keeps them; then `nearest` does more."""

    quantile: float
    pool: PoolModel | None
    nearest: PoolModel | None
    price: Decimal | None

    @property
    def dollars_per_hour(self) -> Decimal | None:
        """Of all replicas; None if there are none, or if a replica's price is unknown."""
        return None if self.pool is None or self.price is None else self.price * self.pool.replicas


def quotes(
    make: Callable[[LatencyPromise], PoolModel], promise: LatencyPromise, rate: float, price: Decimal | None
) -> tuple[Quote, ...]:
    """A quote for each of QUANTILES. `make`: a pool of one replica with a promise, which costs `price` an hour."""
    found = []
    for quantile in QUANTILES:
        asked = replace(promise, ttft_quantile=quantile, tpot_quantile=quantile)
        *_, excess = idle_latency(make(asked))
        pool = fewest_replicas(make(asked), rate) if excess <= 1 else None
        nearest = None if pool else nearest_promise(make, asked, rate)
        found.append(Quote(quantile, pool, nearest, price))
    return tuple(found)
