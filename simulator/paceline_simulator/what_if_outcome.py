"""What comes of one variant of a what-if question: in the fluid model, in the exact simulator, and in a form for both.

A run may stop early. Two runs are compared over the time that both have reached.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil, floor, fsum

from paceline_autoscaler.policies.fluid import HOUR_S
from paceline_autoscaler.policies.fluid_types import FluidHour, FluidResult
from paceline_core.objects.resolved import Target
from paceline_core.registry.enums import Outcome
from paceline_simulator.results import SimulationResult

EXACT_WARM_UP_S = 60.0
LEAST_REQUESTS = 20
"""Of fewer, a p95 says nothing."""
SETTLE_S = 60.0
"""Requests that arrive later than this before an early end may have had no time to be answered: they are not scored."""


@dataclass(frozen=True, slots=True)
class WhatIfOutcome:
    """What came of one variant over `seconds` that were scored.

    `targets`: the share of the offered requests that met each one. `replicas` are those that are paid, mean and most;
    `gpu_s`: their GPU time.
    """

    seconds: float
    offered: float
    targets: Mapping[str, float]
    replicas: float
    peak: int
    gpu_s: float

    def holds(self, promise: Sequence[Target]) -> bool:
        """Whether each target that was judged is met often enough."""
        return all(self.targets[target.name] >= target.objective for target in promise if target.name in self.targets)


@dataclass(frozen=True, slots=True)
class ReplicaMoment:
    """A pool at one time of a run: replicas that are ordered and paid, and requests that wait."""

    at: float
    desired: int
    paid: int
    queued: float


@dataclass(frozen=True, slots=True)
class FluidSpan:
    """What the fluid model has played: hours from `start_s` on, the last of which may be shorter if it is `whole`.

    `names`: the targets in the order of each hour's sums; those that are `judged` count.
    """

    start_s: float
    end_s: float
    whole: bool
    hours: tuple[FluidHour, ...]
    names: tuple[str, ...]
    judged: frozenset[str]
    moments: tuple[ReplicaMoment, ...]

    @classmethod
    def of(
        cls, result: FluidResult, score: tuple[float, float], names: Sequence[str], judged: frozenset[str]
    ) -> "FluidSpan":
        whole = result.end >= score[1]
        hours = result.hours if whole else result.hours[: max(floor((result.end - SETTLE_S - score[0]) / HOUR_S), 0)]
        moments = tuple(
            ReplicaMoment(one.at, one.desired, one.ready + one.starting + one.draining, one.queued)
            for one in result.timeline
        )
        end_s = score[1] if whole else score[0] + len(hours) * HOUR_S
        return cls(score[0], end_s, whole, hours, tuple(names), judged, moments)

    def outcome(self, end_s: float, gpus: int) -> WhatIfOutcome:
        """Of what came before `end_s`, which is the end of one of the hours."""
        seconds = end_s - self.start_s
        hours = list(islice(self.hours, ceil(seconds / HOUR_S - 1e-9)))
        offered, gpu_s = fsum(hour.offered for hour in hours), fsum(hour.gpu_s for hour in hours)
        met = {name: fsum(hour.met[place] for hour in hours) for place, name in enumerate(self.names)}
        shares = {name: _share(count, offered) for name, count in met.items() if name in self.judged}
        peak = max(moment.paid for moment in self.moments if self.start_s <= moment.at < end_s)
        return WhatIfOutcome(seconds, offered, shares, gpu_s / gpus / seconds, peak, gpu_s)


@dataclass(frozen=True, slots=True)
class ExactRun:
    """What was simulated of an hour, until `reached_s`; `whole`: all of it.

    `requests`: when each arrived, and the targets that it missed, None if it was not answered.
    """

    reached_s: float
    whole: bool
    requests: tuple[tuple[float, tuple[str, ...] | None], ...]
    moments: tuple[ReplicaMoment, ...]

    @classmethod
    def of(cls, result: SimulationResult, reached_s: float, *, whole: bool) -> "ExactRun":
        ended = [(one.at, one.missed if one.outcome is Outcome.OK else None) for one in result.requests]
        open_ = [(at, None) for at, _ in result.unfinished]
        moments = tuple(
            ReplicaMoment(one.at, one.desired, one.ready + one.starting + one.draining, float(one.queued))
            for one in result.timeline
        )
        return cls(reached_s, whole, (*ended, *open_), moments)

    @property
    def scored_s(self) -> float:
        """Until when arrivals may be scored."""
        return self.reached_s if self.whole else self.reached_s - SETTLE_S

    def offered(self, end_s: float) -> int:
        """Requests that came after the warm-up and before `end_s`."""
        return sum(EXACT_WARM_UP_S <= at < end_s for at, _ in self.requests)

    def outcome(self, end_s: float, promise: Sequence[Target], gpus: int) -> WhatIfOutcome:
        """Of what came after the warm-up and before `end_s`, which must be some requests."""
        scored = [missed for at, missed in self.requests if EXACT_WARM_UP_S <= at < end_s]
        paid = [moment.paid for moment in self.moments if EXACT_WARM_UP_S <= moment.at < end_s]
        seconds, replicas = end_s - EXACT_WARM_UP_S, sum(paid) / len(paid)
        shares = {
            target.name: _share(sum(missed is not None and target.name not in missed for missed in scored), len(scored))
            for target in promise
        }
        return WhatIfOutcome(seconds, len(scored), shares, replicas, max(paid), replicas * seconds * gpus)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 1.0
