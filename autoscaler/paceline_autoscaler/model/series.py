"""Values with their times, as decisions remember them, and quantiles. Pure.

A file of its own, since policies and the simulator's baselines keep them alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, fsum


@dataclass(frozen=True, slots=True)
class TimedValue:
    """A value, and when it was read or decided."""

    at: float
    value: float


Series = tuple[TimedValue, ...]
"""Values in the order of their times."""


def newer_than(series: Series, now: float, seconds: float) -> Series:
    """The values less than `seconds` old."""
    return tuple(point for point in series if point.at > now - seconds)


def mean(series: Series) -> float:
    """The mean value; 0 without values."""
    return fsum(point.value for point in series) / len(series) if series else 0.0


def highest(series: Series) -> float:
    """The highest value; 0 without values."""
    return max((point.value for point in series), default=0.0)


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share (0 to 1) of them does not exceed; there is at least one."""
    ordered = sorted(values)
    return ordered[max(ceil(share * len(ordered) - 1e-9), 1) - 1]
