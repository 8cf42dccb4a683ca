"""The autoscaler on the virtual clock: signals as its streams and its metrics source bring them, and a policy.

Demand comes from the gateways' reports through the production `DemandMeter`, load from the workers' reports, and
attainment from counters that are scraped every `scrape_s`, with a lag and gaps. Each policy has a period of its own, so
that others than ours can be compared under the same signals.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from paceline_autoscaler.model.observation import SignalSnapshot, observe
from paceline_autoscaler.policies import decide
from paceline_autoscaler.signals.attainment import WINDOW_S
from paceline_autoscaler.signals.live import DemandMeter, load_of
from paceline_autoscaler.state import Knowledge, State
from paceline_autoscaler.types import (
    Attainment,
    Decision,
    Observation,
    ScalingSpec,
    SloCounts,
    WorkerLoad,
)
from paceline_core.errors import InvalidInput
from paceline_core.kube import Endpoint, Scale
from paceline_core.registry.enums import QueryResult, RequestClass, Verdict
from paceline_core.wire import DemandReport, LoadReport
from paceline_gateway.request.slo import AVAILABILITY, Verdicts

_ROUNDS = 3
"""A scrape older than so many periods is stale."""


class ReplicaPolicy(Protocol):
    """Decides one service's replicas by pool, every `period_s`."""

    @property
    def period_s(self) -> float: ...

    def replicas(self, observation: Observation) -> Mapping[str, int]: ...


@dataclass(slots=True)
class ProductionPolicy:
    """The policy of the service's spec, with its learning and its constraints. `decisions` keeps the changes."""

    period_s: float = 5.0
    state: State = field(default_factory=State)
    knowledge: Knowledge = field(default_factory=Knowledge)
    decisions: list[tuple[float, Decision]] = field(default_factory=list)

    def replicas(self, observation: Observation) -> Mapping[str, int]:
        decision, self.state = decide(observation, self.state, self.knowledge)
        if any(pool.replicas != pool.current for pool in decision.pools):
            self.decisions.append((observation.now, decision))
        return {pool.name: pool.replicas for pool in decision.pools}


@dataclass(frozen=True, slots=True)
class StaticPolicy:
    """So many replicas in the first pool, and what is there in others."""

    count: int
    period_s: float = 60.0

    def replicas(self, observation: Observation) -> Mapping[str, int]:
        first, *_ = observation.pools
        return {first.name: self.count}


def policy_of(text: str) -> ReplicaPolicy:
    """`slo` or `static:N`. Raises InvalidInput for another name or a number that is none."""
    name, _, number = text.partition(":")
    if name == "static" and number.isascii() and number.isdigit():
        return StaticPolicy(int(number))
    if text == "slo":
        return ProductionPolicy()
    raise InvalidInput("policy", f"is {text!r}; use slo, or static:N such as static:4")


@dataclass(frozen=True, slots=True)
class MetricsSpec:
    """The metrics source: scraped every `scrape_s`, seen `lag_s` later; nothing is scraped within the `gaps`."""

    scrape_s: float = 15.0
    lag_s: float = 0.0
    gaps: tuple[tuple[float, float], ...] = ()

    def scrapes(self, now: float) -> bool:
        return not any(start <= now < end for start, end in self.gaps)


class ScrapedVerdicts:
    """One service's verdicts as counters in a metrics source. Pure."""

    def __init__(self, spec: MetricsSpec) -> None:
        self._spec = spec
        self._counts: dict[tuple[RequestClass, str], list[float]] = {}
        self._times: list[float] = []
        self._samples: list[dict[tuple[RequestClass, str], tuple[float, float]]] = []

    def count(self, request_class: RequestClass, verdicts: Verdicts) -> None:
        for slo, verdict in verdicts:
            if slo != AVAILABILITY:
                self._counts.setdefault((request_class, slo), [0.0, 0.0])[verdict is not Verdict.GOOD] += 1

    def scrape(self, now: float) -> None:
        if not self._spec.scrapes(now):
            return
        self._times.append(now)
        self._samples.append({key: (good, bad) for key, (good, bad) in self._counts.items()})

    def attainment(self, now: float) -> Attainment | None:
        """Counts of the window before the last visible scrape; None before there are two."""
        last = bisect_right(self._times, now - self._spec.lag_s) - 1
        if last < 1:
            return None
        if now - self._times[last] > _ROUNDS * self._spec.scrape_s + self._spec.lag_s:
            return Attainment(QueryResult.STALE, WINDOW_S, (), "simulation", "nothing was scraped lately")
        first = max(bisect_right(self._times, self._times[last] - WINDOW_S) - 1, 0)
        before, after = self._samples[first], self._samples[last]
        rows = []
        for (cls, slo), (good, bad) in sorted(after.items()):
            old_good, old_bad = before.get((cls, slo), (0.0, 0.0))
            rows.append(SloCounts(cls, slo, good - old_good, bad - old_bad))
        return Attainment(QueryResult.VALUE, WINDOW_S, tuple(rows), "simulation")


@dataclass(slots=True)
class SimulatedScaler:
    """One service's signals and policy. `now` counts Unix seconds, as the autoscaler's own clock does."""

    spec: ScalingSpec
    policy: ReplicaPolicy
    metrics: ScrapedVerdicts
    meter: DemandMeter
    gateways: int
    _loads: dict[str, WorkerLoad] = field(default_factory=dict)

    def on_load(self, report: LoadReport) -> None:
        load = load_of(report.worker, report)
        if load is None:
            self._loads.pop(report.worker, None)
        else:
            self._loads[report.worker] = load

    def replicas(
        self, now: float, since: float, desired: Mapping[str, int], endpoints: Iterable[Endpoint]
    ) -> tuple[Observation, Mapping[str, int]]:
        """What the policy sees `since` seconds after the start, and the replicas that it decides."""
        signals = SignalSnapshot(
            demand=self.meter.of(self.spec.service, now, self.gateways, self.gateways),
            scales={pool: Scale(count, "") for pool, count in desired.items()},
            endpoints=endpoints,
            endpoints_lost=False,
            objects_lost=False,
            loads=self._loads,
            attainment=self.metrics.attainment(since),
        )
        observation = observe(now, self.spec, signals)
        return observation, self.policy.replicas(observation)

    def on_demand(self, report: DemandReport, now: float) -> None:
        self.meter.on(report, now)
