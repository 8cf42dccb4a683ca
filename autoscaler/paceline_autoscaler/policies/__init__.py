"""Policies by name, the constraints over them, and the decision that comes of both. Pure."""

from paceline_autoscaler.policies.decision import POLICIES, ScalingPolicy, decide, recommend

__all__ = ["POLICIES", "ScalingPolicy", "decide", "recommend"]
