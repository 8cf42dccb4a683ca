"""What a policy says before the guards have their word."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from paceline_autoscaler.model.estimate import WorkEstimate
from paceline_autoscaler.types import Decision, LearnedState, Observation
from paceline_core.registry.enums import ScaleReason


@dataclass(frozen=True, slots=True)
class Proposal:
    """Replicas wished per pool, bounds aside, and why. `body` is the sentence without the `2→4:` in front."""

    wishes: Mapping[str, int]
    reason: ScaleReason
    body: str
    rejected: tuple[str, ...] = ()
    capacity: float = 0.0


class ScalingPolicy(Protocol):
    """The seam: what the loop, the ledger's replay and the simulator call. Pure."""

    def decide(self, observation: Observation, state: LearnedState) -> tuple[Decision, LearnedState]:
        """What to do, and what to remember."""
        ...


class ScalingRule(Protocol):
    """A policy's own part, without what all policies share: learning, waking, idling, guards."""

    def propose(self, picture: WorkEstimate, state: LearnedState) -> tuple[Proposal, LearnedState]:
        """What this rule alone would do."""
        ...


@dataclass(frozen=True, slots=True)
class RankedProposal:
    """A proposal of one role's pools, ranked: a change goes before a hold when several are joined."""

    proposal: Proposal
    rank: int = field(default=0)


def join(drafts: list[RankedProposal]) -> Proposal:
    """All roles' wishes; the words of the highest rank."""
    first = max(drafts, key=lambda draft: draft.rank).proposal
    wishes = {name: count for draft in drafts for name, count in draft.proposal.wishes.items()}
    return replace(first, wishes=wishes, capacity=min(draft.proposal.capacity for draft in drafts))
