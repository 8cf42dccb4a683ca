"""The work of the past from gateways' counters, by the formula and in the bins of the recorder of the present. Pure.

What a gateway counted between two scrapes arrived evenly between them. It is put into slots as passes would have seen
it, and each slot is priced as a pass prices it: with the replicas' speeds of now, and the lengths of the requests that
were completed in the minutes before it. A slot is known if every gateway that had begun and not ended was scraped; two
scrapes further apart than MAX_SPAN_S say nothing of the time between them.
Known hole: how demand varies within a bin is seen only where scrapes are at most ten seconds apart.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import exp, floor, fsum

from paceline_autoscaler.model.estimate import work_rates
from paceline_autoscaler.model.history import LENGTHS_S
from paceline_autoscaler.model.work_history import WorkHistory, WorkMeter
from paceline_autoscaler.state import LearnedState
from paceline_autoscaler.types import (
    DEMAND_WINDOWS_S,
    ClassSignals,
    CompletedRequests,
    Demand,
    Observation,
    RateWindow,
    Role,
    ScalingSpec,
)
from paceline_core.registry.enums import RequestClass
from paceline_core.registry.metrics import DEMAND_SERIES

MAX_SPAN_S = 90.0
ENOUGH_COMPLETED = 8
"""Fewer answers of the last minute say less of their length than all earlier ones."""
_PLACE = {name: number for number, name in enumerate(DEMAND_SERIES)}
_LENGTHS = ("completed", "completed_prompt_tokens", "cached_tokens", "output_tokens", "attended_pairs", "kv_reads")
"""The counts of `CompletedRequests`, in its order."""

Counts = tuple[float, ...]
"""The cumulative counts of a class, in the order of DEMAND_SERIES."""
NO_COUNTS: Counts = (0.0,) * len(DEMAND_SERIES)
Growth = Mapping[RequestClass, Counts]
"""By how much the counts of each class grew."""


@dataclass(frozen=True, slots=True)
class DemandScrape:
    """What one gateway had counted at one time, in Unix seconds."""

    at: float
    classes: Mapping[RequestClass, Counts]


@dataclass(slots=True)
class _Part:
    """What one gateway counted in a slot, in so many seconds of it."""

    seconds: float = 0.0
    growth: dict[RequestClass, Counts] = field(default_factory=dict)

    def add(self, seconds: float, growth: Growth, share: float) -> None:
        self.seconds += seconds
        for cls, counts in growth.items():
            self.growth[cls] = _plus(self.growth.get(cls, NO_COUNTS), counts, share)


def slots_of(gateways: Iterable[Sequence[DemandScrape]], slot_s: float) -> dict[int, Growth]:
    """By the number of each known slot of `slot_s` seconds since 1970: what all gateways counted in it."""
    parts = [found for scrapes in gateways if (found := _parts(scrapes, slot_s))]
    alive = [(min(found), max(found)) for found in parts]
    known: dict[int, Growth] = {}
    for slot in range(min((first for first, _ in alive), default=0), max((last for _, last in alive), default=-1) + 1):
        there = [found.get(slot) for found, (first, last) in zip(parts, alive, strict=True) if first <= slot <= last]
        whole = [part for part in there if part is not None]
        if there and len(whole) == len(there):
            known[slot] = _together(whole, slot_s)
    return known


def work_histories(
    spec: ScalingSpec, learned: LearnedState, slots: Mapping[int, Growth], slot_s: float
) -> tuple[tuple[Role, WorkHistory], ...]:
    """The work of slots of so many seconds by role; none without a known speed."""
    meters: dict[Role, WorkMeter] = {}
    for end, rates in _rates(spec, learned, slot_s, slots):
        for role, rate in rates.items():
            meters.setdefault(role, WorkMeter()).add(end, rate, slot_s)
    return tuple((role, meter.history) for role, meter in meters.items())


def _rates(
    spec: ScalingSpec, learned: LearnedState, slot_s: float, slots: Mapping[int, Growth]
) -> Iterator[tuple[float, dict[Role, float]]]:
    """The end of each slot, and its work rate by role."""
    minute: deque[tuple[int, Growth]] = deque()
    total: dict[RequestClass, Counts] = {}
    lengths = NO_COUNTS
    for slot, growth in sorted(slots.items()):
        minute.append((slot, growth))
        while minute[0][0] <= slot - round(DEMAND_WINDOWS_S[-1] / slot_s):
            minute.popleft()
        fading = exp(-slot_s / LENGTHS_S)
        lengths = tuple(fading * count for count in lengths)
        for cls, counts in growth.items():
            total[cls] = _plus(total.get(cls, NO_COUNTS), counts)
            lengths = _plus(lengths, counts)
        seen = tuple(_signals(cls, slot_s, [of.get(cls, NO_COUNTS) for _, of in minute], total[cls]) for cls in total)
        known = replace(learned, completed=_completed(lengths) or learned.completed)
        observed = Observation((slot + 1) * slot_s, spec, Demand(1, 1, seen), (), None)
        yield observed.now, {role: rate for role, (rate, _) in work_rates(observed, known, slot_s).items()}


def _signals(cls: RequestClass, slot_s: float, minute: Sequence[Counts], total: Counts) -> ClassSignals:
    """A class as a pass at the end of the last slot would have seen it."""
    long = _sum(minute)
    answers = long if long[_PLACE["completed"]] >= ENOUGH_COMPLETED else total
    completed, output = answers[_PLACE["completed"]], answers[_PLACE["output_tokens"]]
    flows = (
        RateWindow(slot_s, minute[-1][_PLACE["arrivals"]], minute[-1][_PLACE["prompt_tokens"]]),
        RateWindow(slot_s * len(minute), long[_PLACE["arrivals"]], long[_PLACE["prompt_tokens"]]),
    )
    return ClassSignals(cls, flows, output / completed if completed >= 1 else None)


def _completed(counts: Counts) -> CompletedRequests | None:
    found = CompletedRequests(*(counts[_PLACE[name]] for name in _LENGTHS))
    return found if found.requests > 0 and found.prompt_tokens > 0 else None


def _parts(scrapes: Sequence[DemandScrape], slot_s: float) -> dict[int, _Part]:
    """What one gateway counted, by slot; a span of scrapes is where the middles of its parts are."""
    found: dict[int, _Part] = {}
    for before, after in pairwise(scrapes):
        seconds = after.at - before.at
        if not 0 < seconds <= MAX_SPAN_S:
            continue
        growth, count = _growth(before, after), max(round(seconds / slot_s), 1)
        for number in range(count):
            slot = floor((before.at + (number + 0.5) * seconds / count) / slot_s)
            found.setdefault(slot, _Part()).add(seconds / count, growth, 1 / count)
    return found


def _growth(before: DemandScrape, after: DemandScrape) -> Growth:
    """By class; if a count fell, the gateway has started anew and all of the later one is new."""
    found: dict[RequestClass, Counts] = {}
    for cls, counts in after.classes.items():
        old = before.classes.get(cls, NO_COUNTS)
        fell = any(new < earlier for earlier, new in zip(old, counts, strict=True))
        found[cls] = counts if fell else _plus(counts, old, -1.0)
    return found


def _together(parts: Sequence[_Part], slot_s: float) -> Growth:
    """All gateways' growth, each as if its seconds were the whole slot."""
    classes = dict.fromkeys(cls for part in parts for cls in part.growth)
    scaled = [(part.growth, slot_s / part.seconds) for part in parts]
    return {cls: _sum([_plus(NO_COUNTS, growth.get(cls, NO_COUNTS), by) for growth, by in scaled]) for cls in classes}


def _plus(counts: Counts, more: Counts, share: float = 1.0) -> Counts:
    return tuple(count + share * other for count, other in zip(counts, more, strict=True))


def _sum(rows: Sequence[Counts]) -> Counts:
    return tuple(map(fsum, zip(*rows, strict=True)))
