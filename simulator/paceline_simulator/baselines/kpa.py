"""Knative's pod autoscaler (KPA) on concurrency: a stable window, and a panic window that only scales up.

Source: knative/serving 98e5ef9, pkg/autoscaler/scaling/autoscaler.go (newAutoscaler, Scale),
pkg/autoscaler/aggregation/bucketing.go (TimedFloat64Buckets) and pkg/autoscaler/config/config.go (defaults). Knative
scrapes every second and decides every two; here a bucket holds one decision's observation, so `period_s` is both.
Left out: the activator and its burst capacity, which route requests, and scale to zero with its grace period; requests
that wait at the gateways count, as those at the activator do. RPS as the metric and weighted averages are not the
default.
"""

from dataclasses import dataclass, replace
from math import ceil, floor

from paceline_autoscaler.model.observation import only_pool
from paceline_autoscaler.model.series import Series, TimedValue, highest, newer_than
from paceline_autoscaler.types import Observation
from paceline_simulator.baselines.signals import gateways_silent, open_requests


@dataclass(frozen=True, slots=True)
class Buckets:
    """Values by bucket number, none older than the window; `first` is the bucket of the first value without a gap."""

    first: int = 0
    values: tuple[tuple[int, float], ...] = ()

    def record(self, bucket: int, value: float, size: int) -> "Buckets":
        """With a value in this bucket or a later one; a gap of the whole window starts anew."""
        if not self.values or bucket - self.values[-1][0] >= size:
            return Buckets(bucket, ((bucket, value),))
        kept = tuple((number, old) for number, old in self.values if number > bucket - size)
        return Buckets(self.first, (*kept, (bucket, value)))

    def average(self, bucket: int, size: int) -> float:
        """The mean over the buckets of the window that have been written, gaps as 0; 0 without a value in it."""
        if not self.values or bucket - self.values[-1][0] >= size:
            return 0.0
        last = self.values[-1][0]
        total = sum(value for number, value in self.values if number > bucket - size)
        return round(total / min(last - self.first + 1, size - max(bucket - last, 0)), 6)


@dataclass(frozen=True, slots=True)
class KpaState:
    """Both windows, since when it panics and the most it wanted since, and what it wanted within the delay.

    `started`: whether it has decided before; a new autoscaler that finds several replicas begins in panic.
    """

    stable: Buckets = Buckets()
    panic: Buckets = Buckets()
    panic_at: float | None = None
    panic_replicas: int = 0
    wanted: Series = ()
    started: bool = False


@dataclass(frozen=True, slots=True)
class Kpa:
    """`utilization` of `concurrency` requests a replica is the target. Rates are factors a decision."""

    concurrency: float = 100.0
    utilization: float = 0.7
    stable_window_s: float = 60.0
    panic_window_share: float = 0.1
    panic_threshold: float = 2.0
    max_scale_up_rate: float = 1000.0
    max_scale_down_rate: float = 2.0
    scale_down_delay_s: float = 0.0
    period_s: float = 2.0
    lag_s: float = 1.0

    def initial_state(self) -> KpaState:
        return KpaState()

    def decide(self, observation: Observation, own: KpaState) -> tuple[dict[str, int], KpaState]:
        pool, now = only_pool(observation), observation.now
        if not own.started:
            panic_at = now if pool.ready > 1 else None
            own = replace(own, started=True, panic_at=panic_at, panic_replicas=pool.ready)
        bucket = floor(now / self.period_s)
        stable_size = ceil(self.stable_window_s / self.period_s)
        panic_size = ceil(self.stable_window_s * self.panic_window_share / self.period_s)
        if not gateways_silent(observation):
            load = float(open_requests(observation))
            stable, panic = own.stable.record(bucket, load, stable_size), own.panic.record(bucket, load, panic_size)
            own = replace(own, stable=stable, panic=panic)
        elif not own.stable.values or bucket - own.stable.values[-1][0] > stable_size:
            return {pool.name: pool.desired}, own
        averages = own.stable.average(bucket, stable_size), own.panic.average(bucket, panic_size)
        wanted, own = self.scale(averages, pool.ready, now, own)
        return {pool.name: wanted}, own

    def scale(self, averages: tuple[float, float], ready: int, now: float, own: KpaState) -> tuple[int, KpaState]:
        """Replicas for the stable and the panic window's average, each a total over replicas."""
        counted = max(ready, 1)
        target = self.concurrency * self.utilization
        up, down = ceil(self.max_scale_up_rate * counted), floor(counted / self.max_scale_down_rate)
        stable, panic = (min(max(ceil(average / target), down), up) for average in averages)
        own = self._panicking(own, ceil(averages[1] / target) / counted >= self.panic_threshold, now)
        wanted = stable
        if own.panic_at is not None:
            wanted = max(stable, panic, own.panic_replicas)
            own = replace(own, panic_replicas=wanted)
        if self.scale_down_delay_s > 0:
            recent = (*newer_than(own.wanted, now, self.scale_down_delay_s), TimedValue(now, wanted))
            wanted, own = int(highest(recent)), replace(own, wanted=recent)
        return wanted, own

    def _panicking(self, own: KpaState, over: bool, now: float) -> KpaState:
        if over:
            return replace(own, panic_at=now)
        if own.panic_at is not None and own.panic_at + self.stable_window_s < now:
            return replace(own, panic_at=None, panic_replicas=0)
        return own
