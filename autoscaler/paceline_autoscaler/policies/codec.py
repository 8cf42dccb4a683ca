"""States as JSON: in a ConfigMap from one process to the next, in a ledger to compute a decision again. Pure.

A policy's own state is read and written by the dataclass that the policy names.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from paceline_autoscaler.policies.decision import POLICIES
from paceline_autoscaler.state import LearnedState, State

_LEARNED = TypeAdapter(LearnedState)
_OWN: Mapping[str, TypeAdapter[Any]] = {name: TypeAdapter(policy.state_type) for name, policy in POLICIES.items()}


def dump_state(state: State) -> dict[str, Any]:
    """JSON without what has its default."""
    learned = _LEARNED.dump_python(state.learned, mode="json", exclude_defaults=True)
    if state.policy is None:
        return {"learned": learned}
    document = {"policy": state.policy, "learned": learned}
    if state.own is not None:
        document["own"] = _OWN[state.policy].dump_python(state.own, mode="json", exclude_defaults=True)
    return document


def load_state(document: Mapping[str, Any]) -> State:
    """The inverse of `dump_state`. Raises ValueError; for a policy that is not known, nothing of its own is read."""
    learned = _LEARNED.validate_python(document.get("learned", {}))
    policy = document.get("policy")
    if policy is None or policy not in POLICIES:
        return State(learned=learned)
    own = document.get("own")
    return State(policy, learned, None if own is None else _OWN[policy].validate_python(own))
