"""The well-known laws on one signal: replicas = ceil(total / target), as the HorizontalPodAutoscaler does.

Within a tenth of the target nothing moves; up at once; down to the highest wish of five minutes. `queue` counts waiting
requests, `concurrency` open ones, `kv` the used share of the KV pages. Known weakness, kept because it is
theirs: a queue is an integral, so while replicas start it goes on growing and more are ordered than are needed.

`fixed`: every pool keeps its minimum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from paceline_autoscaler.model.estimate import RoleEstimate, WorkEstimate
from paceline_autoscaler.model.history import DemandSample, covered_s, memory_of, peak, record_demand, with_memory
from paceline_autoscaler.policies.base import Proposal, RankedProposal, join
from paceline_autoscaler.types import LearnedState, MissingSignal, WorkerLoad
from paceline_core.registry.enums import ScaleReason

WINDOW_S = 300.0
TOLERANCE = 0.1
WAITING_PER_REPLICA = 5.0
OPEN_SHARE = 0.7
KV_SHARE = 0.7

Signal = Callable[[RoleEstimate, WorkEstimate], float]


@dataclass(frozen=True, slots=True)
class TargetTracking:
    """One such law. `signal` gives the replicas that would be just at the target; `name` is the policy's."""

    name: str
    signal: Signal

    def propose(self, picture: WorkEstimate, state: LearnedState) -> tuple[Proposal, LearnedState]:
        """Each role's pools by themselves, then joined."""
        drafts = []
        for group in picture.groups:
            need = self.signal(group, picture)
            moment = DemandSample(
                picture.observation.now, need, group.ready, MissingSignal.GATEWAYS not in picture.gaps
            )
            memory = record_demand(memory_of(state, group.role), moment, WINDOW_S)
            state = with_memory(state, memory)
            settled = covered_s(memory, moment.now) >= WINDOW_S
            drafts.append(self._draft(group, need, peak(memory) if settled else None))
        return join(drafts), state

    def _draft(self, group: RoleEstimate, need: float, highest: float | None) -> RankedProposal:
        told = f"{self.name} needs {need:.2f} replicas at the target"
        if need > group.desired * (1 + TOLERANCE):
            return RankedProposal(Proposal(spread(group, ceil(need)), ScaleReason.DEMAND, told), 3)
        if highest is not None and 0 < ceil(highest) < group.desired and need < group.desired * (1 - TOLERANCE):
            body = f"{told}, and {highest:.2f} at most in the last {WINDOW_S:.0f} s"
            return RankedProposal(Proposal(spread(group, ceil(highest)), ScaleReason.CONSOLIDATE, body), 2)
        return RankedProposal(Proposal(group.counts(), ScaleReason.STEADY, told))


def spread(group: RoleEstimate, total: int) -> dict[str, int]:
    """Counts that sum to `total`: more go to the cheapest pool with room, fewer come from the dearest."""
    counts = group.counts()
    surplus = total - sum(counts.values())
    for column in group.columns:
        if surplus > 0:
            taken = min(surplus, max(column.goal.max - counts[column.goal.name], 0))
            counts[column.goal.name] += taken
            surplus -= taken
    for column in reversed(group.columns):
        if surplus < 0:
            given = min(-surplus, max(counts[column.goal.name] - column.goal.min, 0))
            counts[column.goal.name] -= given
            surplus += given
    counts[group.columns[-1].goal.name] += max(surplus, 0)
    return counts


def waiting(group: RoleEstimate, picture: WorkEstimate) -> float:
    """Requests waiting anywhere, over five a replica."""
    queued = sum(max(cls.queued, cls.held) for cls in picture.observation.demand.classes)
    return (queued + sum(load.waiting for load in _loads(group))) / WAITING_PER_REPLICA


def open_requests(group: RoleEstimate, picture: WorkEstimate) -> float:
    """Requests open at the gateways, over 70 % of a replica's slots."""
    slots = max((load.slots for load in _loads(group)), default=0)
    opened = sum(cls.in_flight for cls in picture.observation.demand.classes)
    return opened / (OPEN_SHARE * slots) if slots else 0.0


def kv_pages(group: RoleEstimate, picture: WorkEstimate) -> float:
    """The used share of KV pages, summed over replicas, over 70 %."""
    del picture
    return sum(load.kv_used for load in _loads(group)) / KV_SHARE


def _loads(group: RoleEstimate) -> list[WorkerLoad]:
    return [load for column in group.columns for load in column.view.loads]


class Fixed:
    """The rule; it remembers nothing."""

    def propose(self, picture: WorkEstimate, state: LearnedState) -> tuple[Proposal, LearnedState]:
        """The minima."""
        wishes = {pool.name: pool.min for pool in picture.goal.pools}
        moved = any(view.desired != wishes[view.name] for view in picture.observation.pools)
        reason = ScaleReason.BOUNDS if moved else ScaleReason.STEADY
        return Proposal(wishes, reason, "policy fixed keeps each pool at its minimum"), state
