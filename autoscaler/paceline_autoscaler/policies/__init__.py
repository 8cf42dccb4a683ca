"""Policies by name, the constraints over them, and the decision that comes of both. Pure."""

from paceline_autoscaler.policies.base import Recommendation, ScalingPolicy
from paceline_autoscaler.policies.decision import POLICIES, decide, recommend

__all__ = ["POLICIES", "Recommendation", "ScalingPolicy", "decide", "recommend"]
