"""Past demand of each role: recent peaks, when supply last changed, and how far the model overrates replicas. Pure."""

from dataclasses import dataclass, replace
from math import exp, floor
from typing import Self

from paceline_autoscaler.model.late_work import BUSY_S
from paceline_autoscaler.types import Role

DERATE_RECOVERY_S = 2 * 3600.0
MIN_DERATE = 0.5
MEASURE_S = 60.0
"""As long as the window of demand."""
FEEDBACK = 0.25
"""The part of the way to what one measurement shows: a minute's prompts are longer or shorter than usual."""
AS_MODELLED = 0.95
"""Replicas that do so much of what the model says do as it says."""
_DERATE_NEWS = 0.01
_MAX_PEAKS = 32


@dataclass(frozen=True, slots=True)
class DemandPeak:
    """The highest rate of a span that ended at `at`."""

    at: float
    rate: float


@dataclass(frozen=True, slots=True)
class DemandSample:
    """Sample that a pass adds: `demand`, and `rate`, the capacity that it needs once replicas have started.

    `surge`: how many times as much that is if shorter windows than that of demand are right; `complete`: every gateway
    has reported; `behind`: work or a start is pending.
    """

    now: float
    demand: float
    rate: float
    ready: int
    complete: bool
    backlog: float = 0.0
    behind: bool = False
    surge: float = 1.0


@dataclass(frozen=True, slots=True)
class BusySample:
    """While work waits: the work that arrives, what waits, and what the ready replicas could do by the model."""

    demand: float
    backlog: float
    capacity: float


@dataclass(frozen=True, slots=True)
class DemandHistory:
    """Past demand of the pools of one role, in the units of its cheapest pool.

    `complete_since`: since when every gateway has reported; `supply_since`: since when `ready` is unchanged; `backlog`:
    replica-seconds that waited then; `caught_up_at`: when no backlog was left for the first time after it; `derate`
    (0 to 1]: how much of the usable capacity has been shown to be real; `busy_since`: since when work has waited, or
    was last measured meanwhile; `busy_backlog`: what waited then; `latest`: the last rate; `mean`: that of demand over
    about BUSY_S until `mean_at`.
    """

    role: Role
    peaks: tuple[DemandPeak, ...] = ()
    complete_since: float | None = None
    ready: int = 0
    supply_since: float = 0.0
    backlog: float = 0.0
    caught_up_at: float | None = None
    derate: float = 1.0
    derate_at: float = 0.0
    latest: float | None = None
    busy_since: float | None = None
    busy_backlog: float = 0.0
    mean: float = 0.0
    mean_at: float | None = None

    @property
    def peak(self) -> float:
        """The highest rate of the window."""
        return max((peak.rate for peak in self.peaks), default=0.0)

    def covered_s(self, now: float) -> float:
        """For how long every gateway has reported."""
        return 0.0 if self.complete_since is None else now - self.complete_since

    def recovered(self, now: float) -> float:
        """The derate at `now`: what attainment has shown fades over hours."""
        return 1 - (1 - self.derate) * exp(-max(now - self.derate_at, 0.0) / DERATE_RECOVERY_S)

    def with_sample(self, sample: DemandSample, window_s: float) -> "DemandHistory":
        """Updates the window's peak, since when data are complete, and since when supply is unchanged."""
        now, history = sample.now, self
        if self.ready != sample.ready:
            history = replace(self, ready=sample.ready, supply_since=now, backlog=sample.backlog, caught_up_at=None)
        if history.caught_up_at is None and sample.complete and not sample.behind:
            history = replace(history, caught_up_at=now)
        since = now if self.complete_since is None else self.complete_since
        return replace(
            history,
            peaks=_peaks(self.peaks, now, sample.surge * sample.rate, window_s),
            complete_since=since if sample.complete else None,
            derate=self.recovered(now),
            derate_at=now,
            latest=sample.rate,
            mean=self.mean_with(now, sample.demand),
            mean_at=now,
        )

    def mean_with(self, now: float, demand: float) -> float:
        """The mean if demand has been like this since the last sample."""
        if self.mean_at is None:
            return demand
        return demand + (self.mean - demand) * exp(-max(now - self.mean_at, 0.0) / BUSY_S)

    def with_busy(self, now: float, busy: BusySample | None) -> "DemandHistory":
        """Learn what the replicas do while work waits for MEASURE_S without a break; None: none waits."""
        if busy is None:
            return replace(self, busy_since=None)
        if self.busy_since is None or self.supply_since > self.busy_since:
            return replace(self, busy_since=now, busy_backlog=busy.backlog)
        if now - self.busy_since < MEASURE_S:
            return self
        done = busy.demand - (busy.backlog - self.busy_backlog) / (now - self.busy_since)
        shown = max(done / busy.capacity, MIN_DERATE)
        derate = self.derate + FEEDBACK * ((shown if shown < AS_MODELLED else 1.0) - self.derate)
        return replace(self, derate=derate, derate_at=now, busy_since=now, busy_backlog=busy.backlog)

    def with_peak(self, now: float, rate: float, window_s: float) -> "DemandHistory":
        """Keep what has been ordered for a backlog like what demand needed."""
        return replace(self, peaks=_peaks(self.peaks, now, max(rate, self.peak), window_s))


@dataclass(frozen=True, slots=True)
class DemandHistories:
    """The history of each role: what policies that follow demand remember."""

    roles: tuple[DemandHistory, ...] = ()

    def of(self, role: Role) -> DemandHistory:
        return next((history for history in self.roles if history.role == role), DemandHistory(role))

    def having(self, history: DemandHistory) -> "DemandHistories":
        others = tuple(other for other in self.roles if other.role != history.role)
        return DemandHistories((*others, history))

    def interrupted(self) -> "DemandHistories":
        """A peak may have been missed."""
        return DemandHistories(tuple(replace(history, complete_since=None) for history in self.roles))

    def merged(self, recent: Self) -> "DemandHistories":
        """Keeps the earlier, higher peaks and the lower derate."""
        old = {history.role: history for history in self.roles}
        return DemandHistories(tuple(_merged(old.get(new.role, new), new) for new in recent.roles))

    def worth_storing(self, stored: Self) -> bool:
        """If supply changed or a derate did. A crash discards peaks and `complete_since` in any case.

        A missing `caught_up_at` is found again later than it was, so that less is learned from attainment, not more.
        """
        if _supply(stored.roles) != _supply(self.roles):
            return True
        known = {history.role: history for history in stored.roles}
        return any(
            abs(history.derate - known[history.role].recovered(history.derate_at)) > _DERATE_NEWS
            for history in self.roles
        )


def _supply(roles: tuple[DemandHistory, ...]) -> list[tuple[Role, int, float]]:
    return sorted((history.role, history.ready, history.supply_since) for history in roles)


def _merged(old: DemandHistory, new: DemandHistory) -> DemandHistory:
    newest = new.peaks[:1]
    before = tuple(peak for peak in old.peaks if all(peak.at < one.at and peak.rate > one.rate for one in newest))
    return replace(new, peaks=(*before, *new.peaks), derate=min(new.derate, old.recovered(new.derate_at)))


def _peaks(peaks: tuple[DemandPeak, ...], now: float, rate: float, window_s: float) -> tuple[DemandPeak, ...]:
    """A sliding maximum: keeps only peaks that may still become the maximum, at most one for each bin, newest last."""
    width = max(window_s / _MAX_PEAKS, 1e-3)
    at = (floor(now / width) + 1) * width
    live = [peak for peak in peaks if now - window_s <= peak.at <= at and peak.rate > rate]
    if live and live[-1].at == at:
        return tuple(live)
    return (*live, DemandPeak(at, rate))
