"""The oracle: an autoscaler that knows all work in advance, and has to wait for its replicas like any other.

A replica is there exactly while the work needs it, and kept over holes that are shorter than a start: the least that
anyone can pay who orders `lead_s` ahead. What is needed is the work over a `usable` share of the capacity; how large a
share keeps the promise depends on the workload, so it is chosen by trial.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from paceline_autoscaler.policies.constant import ConstantState
from paceline_autoscaler.types import Observation


def needed_replicas(work: Sequence[float], usable: float, smooth: int = 1, least: int = 1) -> list[int]:
    """Replicas in each bin for its `work` in replica-seconds per second, the mean of `smooth` bins around it."""
    before, after = (smooth - 1) // 2, smooth // 2
    needs = []
    for place in range(len(work)):
        around = work[max(place - before, 0) : place + after + 1]
        needs.append(max(ceil(sum(around) / len(around) / usable - 1e-9), least))
    return needs


@dataclass(frozen=True, slots=True)
class Oracle:
    """`needs` replicas in each `bin_s` from `start` (as `now`) on, each ordered `lead_s` before; one pool."""

    needs: Sequence[int]
    start: float
    lead_s: float
    bin_s: float = 10.0
    period_s: float = 5.0
    lag_s: float = 0.0

    def initial_state(self) -> ConstantState:
        return ConstantState()

    def decide(self, observation: Observation, own: ConstantState) -> tuple[dict[str, int], ConstantState]:
        since = observation.now - self.start
        first, last = (min(max(int(at / self.bin_s), 0), len(self.needs) - 1) for at in (since, since + self.lead_s))
        return {pool.name: max(self.needs[first : last + 1]) for pool in observation.pools}, own
