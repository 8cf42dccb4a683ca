"""Requests as the fluid model's demand: bins, and how lengths spread."""

from collections.abc import Sequence

from paceline_autoscaler.policies.fluid_types import DemandBin, LengthSpread
from paceline_simulator.traces import TraceRequest


def demand_bins(
    requests: Sequence[TraceRequest],
    bin_s: float = 10.0,
    *,
    span_s: float | None = None,
    hit_share: float | None = None,
) -> list[DemandBin]:
    """Bins from time 0 to `span_s`, or to the last arrival. `hit_share` of each prompt is cached, by default what an
    infinite cache would have, by blocks.
    """
    raise NotImplementedError


def length_spread(requests: Sequence[TraceRequest], shares: int = 20) -> LengthSpread:
    """The lengths of `shares` equal parts of the requests, each the mean of its part."""
    raise NotImplementedError
