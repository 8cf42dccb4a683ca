"""Values with their times, as decisions remember them. Pure.

A file of its own, since policies and the simulator's baselines keep them alike.
"""

from dataclasses import dataclass


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
    return sum(point.value for point in series) / len(series) if series else 0.0


def highest(series: Series) -> float:
    """The highest value; 0 without values."""
    return max((point.value for point in series), default=0.0)
