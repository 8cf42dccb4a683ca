"""The autoscaler on the virtual clock: signals as its streams and its metrics source bring them, and a policy.

Demand comes from the gateways' reports through the production `DemandMeter`, load from the workers' reports, and
attainment and latencies from a metrics source that is scraped with a period, a lag and gaps. A policy decides from
signals of some time ago and from the replicas of now; period and lag are its own, so that others can be compared.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil

from paceline_autoscaler.model.observation import SignalSnapshot, observe
from paceline_autoscaler.policies.replica_policy import PastSignals, ReplicaPolicy
from paceline_autoscaler.signals.live import DemandMeter, load_of
from paceline_autoscaler.types import (
    ATTAINMENT_WINDOW_S,
    Attainment,
    MeasuredLatency,
    Observation,
    ScalingSpec,
    SloCounts,
    SloTarget,
    WorkerLoad,
)
from paceline_core.kube import Endpoint, Scale
from paceline_core.registry.enums import Outcome, QueryResult, RequestClass, Verdict
from paceline_core.wire import DemandReport, LoadReport
from paceline_gateway.request.slo import AVAILABILITY, Verdicts
from paceline_gateway.request.types import RequestRecord

_ROUNDS = 3
"""A scrape older than so many periods is stale."""


@dataclass(frozen=True, slots=True)
class MetricsSpec:
    """The metrics source: scraped every `scrape_s`, seen `lag_s` later; nothing is scraped within the `gaps`."""

    scrape_s: float = 15.0
    lag_s: float = 0.0
    gaps: tuple[tuple[float, float], ...] = ()

    def scrapes(self, now: float) -> bool:
        return not any(start <= now < end for start, end in self.gaps)


@dataclass(frozen=True, slots=True)
class _Scrape:
    """The verdicts counted until then, and the latencies of the window that ended then."""

    at: float
    counts: Mapping[tuple[RequestClass, str], tuple[float, float]]
    latencies: tuple[MeasuredLatency, ...]


class ScrapedMetrics:
    """A service's verdicts and latencies in a metrics source. Pure.

    Quantiles are exact: a source that interpolates within the buckets of a histogram knows them less well.
    """

    def __init__(self, spec: MetricsSpec, targets: Iterable[SloTarget] = ()) -> None:
        self._spec = spec
        self._targets = tuple(targets)
        self._counts: dict[tuple[RequestClass, str], list[float]] = {}
        self._latencies: dict[tuple[RequestClass, str], deque[tuple[float, float]]] = {
            (target.cls, target.metric): deque() for target in self._targets
        }
        self._scrapes: list[_Scrape] = []

    def count(self, request_class: RequestClass, verdicts: Verdicts, record: RequestRecord) -> None:
        """A request that has ended."""
        for slo, verdict in verdicts:
            if slo != AVAILABILITY:
                self._counts.setdefault((request_class, slo), [0.0, 0.0])[verdict is not Verdict.GOOD] += 1
        for (cls, metric), samples in self._latencies.items():
            seconds: float | None = getattr(record, metric)
            if cls is request_class and seconds is not None and record.outcome is Outcome.OK:
                samples.append((record.ended, seconds))

    def scrape(self, now: float) -> None:
        if self._spec.scrapes(now):
            counts = {key: (good, bad) for key, (good, bad) in self._counts.items()}
            self._scrapes.append(_Scrape(now, counts, self._quantiles(now)))

    def attainment(self, now: float) -> Attainment | None:
        """Counts of the window before the last visible scrape; None before there are two."""
        last = self._last(now)
        if last < 1:
            return None
        found = self._scrapes[last]
        if now - found.at > _ROUNDS * self._spec.scrape_s + self._spec.lag_s:
            return Attainment(QueryResult.STALE, ATTAINMENT_WINDOW_S, (), "simulation", "nothing was scraped lately")
        first = max(bisect_right(self._scrapes, found.at - ATTAINMENT_WINDOW_S, key=lambda scrape: scrape.at) - 1, 0)
        before = self._scrapes[first].counts
        rows = []
        for (cls, slo), (good, bad) in sorted(found.counts.items()):
            old_good, old_bad = before.get((cls, slo), (0.0, 0.0))
            rows.append(SloCounts(cls, slo, good - old_good, bad - old_bad))
        return Attainment(QueryResult.VALUE, ATTAINMENT_WINDOW_S, tuple(rows), "simulation")

    def latencies(self, now: float) -> tuple[MeasuredLatency, ...]:
        """Of the window before the last visible scrape."""
        last = self._last(now)
        return () if last < 0 else self._scrapes[last].latencies

    def age_s(self, now: float) -> float | None:
        """Seconds since the last visible scrape."""
        last = self._last(now)
        return None if last < 0 else now - self._scrapes[last].at

    def _last(self, now: float) -> int:
        return bisect_right(self._scrapes, now - self._spec.lag_s, key=lambda scrape: scrape.at) - 1

    def _quantiles(self, now: float) -> tuple[MeasuredLatency, ...]:
        ordered = {}
        for key, samples in self._latencies.items():
            while samples and samples[0][0] <= now - ATTAINMENT_WINDOW_S:
                samples.popleft()
            ordered[key] = sorted(seconds for _, seconds in samples)
        return tuple(
            MeasuredLatency(target.cls, target.metric, target.quantile, _quantile(found, target.quantile))
            for target in self._targets
            if (found := ordered[target.cls, target.metric])
        )


def _quantile(ordered: list[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed."""
    return ordered[max(ceil(share * len(ordered) - 1e-9), 1) - 1]


@dataclass(slots=True)
class SimulatedScaler:
    """A service's signals and policy. `now` counts Unix seconds, as the autoscaler's own clock does."""

    spec: ScalingSpec
    policy: ReplicaPolicy
    metrics: ScrapedMetrics
    meter: DemandMeter
    gateways: int
    _loads: dict[str, WorkerLoad] = field(default_factory=dict)

    def on_load(self, report: LoadReport) -> None:
        load = load_of(report.worker, report)
        if load is None:
            self._loads.pop(report.worker, None)
        else:
            self._loads[report.worker] = load

    def on_demand(self, report: DemandReport, now: float) -> None:
        self.meter.on(report, now)

    def signals(self, now: float, since: float) -> PastSignals:
        """The signals `since` seconds after the start."""
        return PastSignals(
            demand=self.meter.of(self.spec.service, now, self.gateways, self.gateways),
            loads=dict(self._loads),
            attainment=self.metrics.attainment(since),
            latencies=self.metrics.latencies(since),
            attainment_age_s=self.metrics.age_s(since),
        )

    def observe(
        self, now: float, signals: PastSignals, desired: Mapping[str, int], endpoints: Iterable[Endpoint]
    ) -> Observation:
        """The policy's view: signals of `lag_s` ago, and the replicas of now."""
        return observe(
            now,
            self.spec,
            SignalSnapshot(
                demand=signals.demand,
                scales={pool: Scale(count, "") for pool, count in desired.items()},
                endpoints=endpoints,
                endpoints_lost=False,
                objects_lost=False,
                loads=signals.loads,
                attainment=signals.attainment,
                latencies=signals.latencies,
                demand_age_s=self.policy.lag_s,
                attainment_age_s=signals.attainment_age_later_s(self.policy.lag_s),
            ),
        )
