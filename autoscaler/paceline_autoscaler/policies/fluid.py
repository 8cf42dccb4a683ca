"""A fluid run of one service with one pool: demand in bins, a deadline queue, and the policies of the simulator."""

from paceline_autoscaler.policies.fluid_types import FluidPlan, FluidResult
from paceline_autoscaler.policies.replica_policy import ReplicaPolicy


def run(plan: FluidPlan, policy: ReplicaPolicy) -> FluidResult:
    """The policy on the plan's demand: same inputs, same result. The policy keeps its state, so pass a fresh one."""
    raise NotImplementedError
