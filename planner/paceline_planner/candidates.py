"""A replica that could serve a load: how many of it carry the rate, how late they answer, what they cost. Pure."""

from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from math import ceil

from paceline_planner import memory
from paceline_planner.goodput import LatencyPromise, PlannedSpeed, PoolModel
from paceline_planner.hardware import Accelerator, replica_price
from paceline_planner.lengths import LengthDistribution
from paceline_planner.memory import Fit
from paceline_planner.shapes import ModelShape
from paceline_planner.splits import DeviceSplit
from paceline_planner.steptime import Caps, prior_within


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """What is asked of a service: requests a second, their lengths, and the promise."""

    rate: float
    lengths: LengthDistribution
    promise: LatencyPromise

    @property
    def context(self) -> int:
        """Tokens of a mean request, which every replica must be able to hold."""
        return ceil(self.lengths.prompt + self.lengths.output)

    @property
    def tokens_per_s(self) -> float:
        """Prompt and output tokens."""
        return self.rate * (self.lengths.prompt + self.lengths.output)


@dataclass(frozen=True, slots=True)
class PlannedReplica:
    """A model on one accelerator, split over its devices."""

    shape: ModelShape
    accelerator: Accelerator
    split: DeviceSplit
    caps: Caps

    @property
    def name(self) -> str:
        """`4 h100 (tensor 4)`."""
        split = f" ({self.split})" if self.split.devices > 1 else ""
        return f"{self.split.devices} {self.accelerator.name}{split}"

    def fit(self, context: int) -> Fit:
        """Raises InvalidInput if the model cannot be split so."""
        return memory.fits(self.shape, self.accelerator, context=context, caps=self.caps, split=self.split)

    def pool(self, load: PlannedLoad) -> PoolModel:
        """A pool of it under a load. Raises InvalidInput if the device cannot compute in the model's types."""
        lanes, tpot_s = self.split.pipeline, load.promise.tpot_s
        step = prior_within(self.shape, self.accelerator, tpot_s, caps=self.caps, split=self.split)
        tokens = memory.kv_tokens(self.shape, self.accelerator, caps=self.caps, split=self.split)
        speed = PlannedSpeed(step, max(self.caps.sequences // lanes, 1), tokens // lanes)
        return PoolModel(speed, self.caps.step_tokens, load.lengths, load.promise, 1, lanes)


@dataclass(frozen=True)
class PlannedPool:
    """The fewest replicas that carry a load within its promise."""

    replica: PlannedReplica
    pool: PoolModel
    load: PlannedLoad

    @property
    def replicas(self) -> int:
        return self.pool.replicas

    @property
    def devices(self) -> int:
        return self.replicas * self.replica.split.devices

    @cached_property
    def ttft_s(self) -> float:
        """The promised quantile at the asked rate."""
        return self.pool.ttft_s(self.load.rate)

    @cached_property
    def tpot_s(self) -> float:
        """The promised quantile at the asked rate."""
        return self.pool.tpot_s(self.load.rate)

    @cached_property
    def goodput(self) -> float:
        """Requests a second that all replicas answer in time."""
        return self.pool.goodput()

    @property
    def dollars_per_hour(self) -> Decimal | None:
        """None if the price of the accelerator is unknown."""
        return replica_price(self.replica.accelerator, self.devices)

    @property
    def dollars_per_million_tokens(self) -> float | None:
        """Of prompt and output, at the asked rate."""
        price = self.dollars_per_hour
        return None if price is None else float(price) / (self.load.tokens_per_s * 3600) * 1e6

    @property
    def tokens_per_s_per_watt(self) -> float | None:
        """At the asked rate, by the power limits of all devices."""
        watts = self.replica.accelerator.watts
        return None if watts is None else self.load.tokens_per_s / (watts * self.devices)
