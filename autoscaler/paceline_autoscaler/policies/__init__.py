"""Policies by name, the constraints on them, and the decision that results from both. Pure."""

from paceline_autoscaler.policies.codec import dump_state, load_state
from paceline_autoscaler.policies.decision import POLICIES, ScalingPolicy, decide, recommend

__all__ = ["POLICIES", "ScalingPolicy", "decide", "dump_state", "load_state", "recommend"]
