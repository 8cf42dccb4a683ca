"""Policies by name; all share learning, waking, idling and the guards, and differ in their rule."""

from collections.abc import Mapping

from paceline_autoscaler.nouns import Decision, LearnedState, Observation, PolicyName
from paceline_autoscaler.policies.fixed import Fixed
from paceline_autoscaler.policies.guarded import ConstrainedPolicy
from paceline_autoscaler.policies.pace import SloPolicy
from paceline_autoscaler.policies.proposal import Proposal, ScalingPolicy, ScalingRule
from paceline_autoscaler.policies.ratio import TargetTracking, kv_pages, open_requests, waiting

POLICIES: Mapping[PolicyName, ScalingPolicy] = {
    "slo": ConstrainedPolicy(SloPolicy()),
    "advise": ConstrainedPolicy(SloPolicy()),
    "external": ConstrainedPolicy(SloPolicy()),
    "queue": ConstrainedPolicy(TargetTracking("queue", waiting)),
    "concurrency": ConstrainedPolicy(TargetTracking("concurrency", open_requests)),
    "kv": ConstrainedPolicy(TargetTracking("kv", kv_pages)),
    "fixed": ConstrainedPolicy(Fixed()),
}


def decide(observation: Observation, state: LearnedState) -> tuple[Decision, LearnedState]:
    """The decision of the policy that the goal names. Pure: the same input gives the same output, bit for bit."""
    return POLICIES[observation.goal.policy].decide(observation, state)


__all__ = ["POLICIES", "ConstrainedPolicy", "Proposal", "ScalingPolicy", "ScalingRule", "decide"]
