"""A rule made into a policy: learn, let the rule propose, wake or idle, then let the guards judge."""

from dataclasses import dataclass, replace

from paceline_autoscaler.appraisal import estimate
from paceline_autoscaler.memory import learn
from paceline_autoscaler.nouns import Decision, LearnedState, Observation
from paceline_autoscaler.picture import WorkEstimate
from paceline_autoscaler.policies.guards import constrain
from paceline_autoscaler.policies.proposal import Proposal, ScalingRule
from paceline_core.registry.enums import ScaleReason
from paceline_core.units import counted


@dataclass(frozen=True, slots=True)
class ConstrainedPolicy:
    """The policy around a rule."""

    rule: ScalingRule

    def decide(self, observation: Observation, state: LearnedState) -> tuple[Decision, LearnedState]:
        """What to do, and what to remember."""
        state = learn(observation, state)
        picture = estimate(observation, state)
        proposal, state = self.rule.propose(picture, state)
        return constrain(picture, _wake(picture, _idle(picture, proposal))), state


def _idle(picture: WorkEstimate, proposal: Proposal) -> Proposal:
    """Nobody has asked for as long as the user set: everything goes at once, for the last replica needs no rest."""
    after = picture.goal.idle_after_s
    if after is None or picture.idle_s < after or any(pool.min for pool in picture.goal.pools):
        return proposal
    body = f"nobody has asked for {picture.idle_s:.0f} s (scaleToZero.after is {after:.0f} s)"
    return replace(proposal, wishes=dict.fromkeys(proposal.wishes, 0), reason=ScaleReason.IDLE, body=body)


def _wake(picture: WorkEstimate, proposal: Proposal) -> Proposal:
    """From zero there is one way: a request wakes one replica of each role, or as many as the rule wants."""
    wishes = dict(proposal.wishes)
    asleep = [group for group in picture.groups if group.desired == 0]
    if not asleep or not _asked(picture):
        return proposal
    for group in asleep:
        first = group.columns[0].goal.name
        if not any(wishes[column.goal.name] for column in group.columns):
            wishes[first] = 1
    held = sum(max(cls.held, cls.queued) for cls in picture.observation.demand.classes)
    body = f"{counted(held, 'request')} waiting for the first replica" if held else "requests arrive, and nothing runs"
    return replace(proposal, wishes=wishes, reason=ScaleReason.WAKE, body=body)


def _asked(picture: WorkEstimate) -> bool:
    classes = picture.observation.demand.classes
    return any(cls.held or cls.queued or (cls.flows and cls.flows[0].arrivals > 0) for cls in classes)
