"""Faults of executing a plan, as conditions in the status of its service.

A fault is added to the planned status as `Degraded`; the next plan that executes completely removes it. Only what a
person can repair is a fault: a missing right, a refused object, a bug. An unreachable API server is not, because no
status could be written either. Invariant: an unchanged fault writes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline_core.errors import ApiError, Forbidden, Unauthorized
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.workload_status import ConditionValue, summary, summary_reason
from paceline_core.units import one_line

DEGRADED = "Degraded"
CONDITIONS = ("Accepted", "Ready", "Progressing", "ModelFits", DEGRADED)
_MESSAGE_LIMIT = 1024
_FORBIDDEN = " is forbidden: "


@dataclass(frozen=True, slots=True)
class ConditionFault:
    """`reason` is one CamelCase word: Forbidden, Invalid or Failed; the message names object and cause.

    `missing` is the same for all objects that lack one right: see `missing_right`.
    """

    reason: str
    message: str
    missing: str = field(default="", compare=False)


def fault_of(error: Exception, doing: str) -> ConditionFault:
    """The fault behind an error; `doing` is the attempted action, like `apply Deployment default/chat-main`."""
    if isinstance(error, Forbidden):
        message = f"{error.message} (the operator's role lacks this right; tried: {doing})"
        return ConditionFault("Forbidden", one_line(message, _MESSAGE_LIMIT), missing_right(error))
    if isinstance(error, ApiError):
        message = f"the API server refused to {doing}: {error.message}"
        return ConditionFault("Invalid", one_line(message, _MESSAGE_LIMIT))
    return ConditionFault("Failed", one_line(f"cannot {doing}: {type(error).__name__}: {error}", _MESSAGE_LIMIT))


def missing_right(error: Exception) -> str:
    """The missing right, regardless of the object: user, verb, resource and namespace; "" if none is missing."""
    if isinstance(error, Unauthorized):
        return "credentials"
    return error.message.partition(_FORBIDDEN)[2] or error.message if isinstance(error, Forbidden) else ""


def degraded(
    live: Mapping[str, Any], planned: Manifest | None, fault: ConditionFault, time: str, generation: int
) -> Manifest:
    """The operator's whole share of a status, with the fault in it; `live` is the present status."""
    status = planned if planned is not None else operators_share(live)
    conditions = {found["type"]: found for found in status.get("conditions") or ()}
    conditions[DEGRADED] = _condition(live, fault, time, generation)
    share = {**status, "conditions": list(conditions.values())}
    if "workload" not in status:
        return share
    counts, *words = status["workload"]["summary"].split()
    verdicts = {kind: ConditionValue(one["status"], one["reason"], "") for kind, one in conditions.items()}
    short = summary(counts, summary_reason(verdicts), emulated="emulated" in words)
    return {**share, "workload": {**status["workload"], "summary": short}}


def same_conditions(live: Mapping[str, Any], status: Manifest) -> bool:
    """Whether writing this status would change only times."""
    return timeless(operators_share(live)) == timeless(status)


def operators_share(live: Mapping[str, Any]) -> Manifest:
    share = {name: live[name] for name in ("observedGeneration", "workload") if name in live}
    return {**share, "conditions": [found for found in live.get("conditions") or () if found["type"] in CONDITIONS]}


def _condition(live: Mapping[str, Any], fault: ConditionFault, time: str, generation: int) -> Manifest:
    conditions: dict[str, Manifest] = {found["type"]: found for found in live.get("conditions") or ()}
    before = conditions.get(DEGRADED, {})
    since = before.get("lastTransitionTime", time) if before.get("status") == "True" else time
    return {
        "type": DEGRADED,
        "status": "True",
        "reason": fault.reason,
        "message": fault.message,
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }


def timeless(status: Mapping[str, Any]) -> Manifest:
    conditions = {
        found["type"]: {name: value for name, value in found.items() if name != "lastTransitionTime"}
        for found in status.get("conditions") or ()
    }
    return {**status, "conditions": conditions}
