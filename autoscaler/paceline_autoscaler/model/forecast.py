"""What demand may be once replicas ordered now have caught up, from the paths of the knowledge. Pure.

A file of its own, since the decisions of all policies have the forecast. All paths are equally likely; one that ends
earlier is left out.
"""

from collections.abc import Iterable
from math import floor

from paceline_autoscaler.model.series import quantile
from paceline_autoscaler.state import DemandPath
from paceline_autoscaler.types import DemandForecast


def demand_forecast(paths: Iterable[DemandPath], now: float, after_s: float) -> DemandForecast | None:
    """The demand at `now + after_s`; None without a path that reaches so far."""
    rates = [rate for path in paths if (rate := _rate(path, now + after_s)) is not None]
    return DemandForecast(after_s, quantile(rates, 0.5), quantile(rates, 0.9)) if rates else None


def _rate(path: DemandPath, at: float) -> float | None:
    index = floor((at - path.start) / path.bin_s)
    return path.rates[index] if 0 <= index < len(path.rates) else None
