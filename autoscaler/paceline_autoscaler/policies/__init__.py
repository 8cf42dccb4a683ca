"""Policies by name; all share learning, waking, idling and the guards, and differ in their rule."""

from collections.abc import Mapping

from paceline_autoscaler.policies.base import Proposal, ScalingPolicy, ScalingRule
from paceline_autoscaler.policies.constraints import ConstrainedPolicy
from paceline_autoscaler.policies.slo import SloPolicy
from paceline_autoscaler.policies.target_tracking import Fixed, TargetTracking, kv_pages, open_requests, waiting
from paceline_autoscaler.types import Decision, LearnedState, Observation, PolicyName

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
