"""Whether a service can be carried out at all: one verdict with the field and the fix, and the service if it was read.

A contested name does not stop a service: `namespace/name` always works, so it runs and its condition says who answers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from paceline_core.kube.cluster import Manifest
from paceline_core.launch import invalid_filters, unsupported
from paceline_core.objects import FieldError, ManifestError, read, resolve
from paceline_core.objects.model_names import LostName
from paceline_core.objects.resolved import ResolvedService
from paceline_core.objects.service import InferenceService
from paceline_core.objects.workload_status import VALID, ConditionValue, named
from paceline_operator.plans.pod import Profiles, find_device
from paceline_operator.plans.types import Validation
from paceline_planner import coldstart
from paceline_planner.hardware import budget_doubts, unknown_accelerators, unmanaged_accelerators

_MAX_NAMED: int = 5
"""Faults that one message names."""

_NOT_JUDGED = ConditionValue("Unknown", "NotAccepted", "The object is not accepted, so nothing was computed.")
_UNSEEN = ConditionValue(
    "Unknown", "NotChecked", "The operator opens no weights; the worker checks at its start that they fit."
)


def validate(manifest: Manifest, loss: LostName | None, profiles: Profiles) -> Validation:
    """Read, resolve, and ask whether this version can do it."""
    try:
        service = read(InferenceService, manifest)
    except ManifestError as error:
        return Validation(refusal("Invalid", error.problems), _NOT_JUDGED, runs=False)
    resolved = resolve(service)
    if wrong := list(invalid_filters(resolved)):
        return Validation(refusal("Invalid", wrong), _NOT_JUDGED, False, service, resolved)
    if refused := [*unsupported(resolved), *unmanaged_accelerators(resolved, find_device(profiles))]:
        return Validation(refusal("Unsupported", refused), _NOT_JUDGED, False, service, resolved)
    if profiles is not None and (unknown := list(unknown_accelerators(resolved, profiles))):
        return Validation(refusal("UnknownAccelerator", unknown), _NOT_JUDGED, False, service, resolved)
    if faults := list(coldstart.refusals(resolved)):
        return Validation(refusal("InvalidEmulation", faults), _misfit(faults), False, service, resolved)
    accepted = _budgeted(named(resolved.key, loss), budget_doubts(resolved, find_device(profiles)))
    return Validation(accepted, _fit(resolved), True, service, resolved)


def _budgeted(accepted: ConditionValue, doubts: Iterable[FieldError]) -> ConditionValue:
    text = "; ".join(map(str, doubts))
    if not text:
        return accepted
    message = f"{accepted.message} {text}."
    return replace(accepted, reason="BudgetNotEnforceable" if accepted == VALID else accepted.reason, message=message)


def refusal(reason: str, problems: Sequence[FieldError]) -> ConditionValue:
    """Accepted=False with every fault, or the first few; whatever runs stays as it is."""
    more = f"; and {len(problems) - _MAX_NAMED} more" if len(problems) > _MAX_NAMED else ""
    text = "; ".join(str(problem) for problem in problems[:_MAX_NAMED])
    return ConditionValue("False", reason, f"{text}{more}."[:1024])


def _misfit(faults: Sequence[FieldError]) -> ConditionValue:
    if all(fault.field == "spec.engine.emulate" for fault in faults):
        return ConditionValue("False", "DoesNotFit", faults[0].message)
    return _NOT_JUDGED


def _fit(service: ResolvedService) -> ConditionValue:
    if (emulated := service.engine.emulation) is None:
        return _UNSEEN
    fit = coldstart.emulated_fit(service, emulated)
    message = (
        f"{fit.weight_bytes / 1e9:.1f} GB of weights of {emulated.model} leave room for {fit.kv_tokens:,} KV tokens"
        f" on one {emulated.accelerator}."
    )
    return ConditionValue("True", "Fits", message)
