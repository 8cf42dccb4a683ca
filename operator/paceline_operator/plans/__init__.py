"""What should exist and what to do about it: pure functions over what was observed."""

from paceline_operator.plans.children import differs
from paceline_operator.plans.inferenceservice import plan_service
from paceline_operator.plans.key_rotation import REGISTRY, SIGNERS, plan_keys
from paceline_operator.plans.namespace import plan_namespace
from paceline_operator.plans.observe import observe_child, pod_problem
from paceline_operator.plans.other_kinds import plan_profile, plan_route, plan_tenant
from paceline_operator.plans.status import status_due
from paceline_operator.plans.validation import ModelNameIndex

__all__ = [
    "REGISTRY",
    "SIGNERS",
    "ModelNameIndex",
    "differs",
    "observe_child",
    "plan_keys",
    "plan_namespace",
    "plan_profile",
    "plan_route",
    "plan_service",
    "plan_tenant",
    "pod_problem",
    "status_due",
]
