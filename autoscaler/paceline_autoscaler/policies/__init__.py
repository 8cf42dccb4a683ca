"""Policies by name; all share learning, waking, idling and the guards, and differ in their rule."""

from collections.abc import Mapping

from paceline_autoscaler.nouns import Decision, Observation, PolicyName, State
from paceline_autoscaler.policies.fixed import Fixed
from paceline_autoscaler.policies.guarded import Guarded
from paceline_autoscaler.policies.pace import Pace
from paceline_autoscaler.policies.proposal import Policy, Proposal, Rule
from paceline_autoscaler.policies.ratio import Ratio, kv_pages, open_requests, waiting

POLICIES: Mapping[PolicyName, Policy] = {
    "slo": Guarded(Pace()),
    "advise": Guarded(Pace()),
    "external": Guarded(Pace()),
    "queue": Guarded(Ratio("queue", waiting)),
    "concurrency": Guarded(Ratio("concurrency", open_requests)),
    "kv": Guarded(Ratio("kv", kv_pages)),
    "fixed": Guarded(Fixed()),
}


def decide(observation: Observation, state: State) -> tuple[Decision, State]:
    """The decision of the policy that the goal names. Pure: the same input gives the same output, bit for bit."""
    return POLICIES[observation.goal.policy].decide(observation, state)


__all__ = ["POLICIES", "Guarded", "Policy", "Proposal", "Rule", "decide"]
