"""Requests as the demand of the fluid model: sums by bin, and how lengths spread."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil

from paceline_autoscaler.policies.fluid_types import DemandBin, LengthSpread
from paceline_simulator.traces import BLOCK, TraceRequest


def demand_bins(
    requests: Sequence[TraceRequest],
    bin_s: float = 1.0,
    *,
    span_s: float | None = None,
    hit_share: float | None = None,
) -> list[DemandBin]:
    """Bins from time 0 to `span_s`, by default to the last arrival's.

    Of each prompt `hit_share` is cached; by default the blocks that begin it and that an earlier request had, as an
    infinite cache would have it: an upper bound, since a real one evicts, and each replica has its own.
    """
    last = max((int(request.at / bin_s) for request in requests), default=0)
    bins = [[0.0] * 6 for _ in range(last + 1 if span_s is None else ceil(span_s / bin_s))]
    seen = set[int]()
    for request in requests:
        place = int(request.at / bin_s)
        if place >= len(bins):
            continue
        prompt, output = request.prompt_tokens, request.output_tokens
        cached = _known(request, seen) if hit_share is None else prompt * hit_share
        uncached = prompt - cached
        values = (1, prompt, output, cached, uncached * (prompt - uncached / 2), output * (prompt + output / 2))
        bins[place] = [total + value for total, value in zip(bins[place], values, strict=True)]
    return [DemandBin(*sums) for sums in bins]


def length_spread(requests: Sequence[TraceRequest], shares: int = 20) -> LengthSpread:
    """The lengths of `shares` equal parts of the requests, each the mean of its part."""
    return LengthSpread(
        _spread([request.prompt_tokens for request in requests], shares),
        _spread([request.output_tokens for request in requests], shares),
    )


def _known(request: TraceRequest, seen: set[int]) -> int:
    """Tokens of the blocks at the prompt's start that an earlier request had; the last token is always computed."""
    known = next((place for place, block in enumerate(request.blocks) if block not in seen), len(request.blocks))
    seen.update(request.blocks)
    return min(known * BLOCK, request.prompt_tokens - 1)


def _spread(lengths: list[int], shares: int) -> tuple[float, ...]:
    ordered, total = sorted(lengths), sum(lengths)
    if not total:
        return (1.0,)
    edges = [len(ordered) * place // shares for place in range(shares + 1)]
    parts = [ordered[start:end] for start, end in pairwise(edges) if end > start]
    return tuple(sum(part) / len(part) * len(ordered) / total for part in parts)
