"""`fixed`: every pool keeps its minimum."""

from paceline_autoscaler.nouns import LearnedState
from paceline_autoscaler.picture import WorkEstimate
from paceline_autoscaler.policies.proposal import Proposal
from paceline_core.registry.enums import ScaleReason


class Fixed:
    """The rule; it remembers nothing."""

    def propose(self, picture: WorkEstimate, state: LearnedState) -> tuple[Proposal, LearnedState]:
        """The minima."""
        wishes = {pool.name: pool.min for pool in picture.goal.pools}
        moved = any(view.desired != wishes[view.name] for view in picture.observation.pools)
        reason = ScaleReason.BOUNDS if moved else ScaleReason.STEADY
        return Proposal(wishes, reason, "policy fixed keeps each pool at its minimum"), state
