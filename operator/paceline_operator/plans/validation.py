"""Whether a service can run at all: one verdict with the field and the fix, and the service if it could be read.

A contested model name does not stop a service: `namespace/name` always works, so it runs and its condition names the
winner. Only a lost served name or public name is reported, because clients use these; a service's own name is not.
Hole: a caller that may not use the winner still reaches the loser; the condition describes all other callers.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline_core.kube.cluster import Manifest, ObjectKey
from paceline_core.launch import invalid_filters, unsupported
from paceline_core.objects import FieldError, ManifestError, read, resolve
from paceline_core.objects.metadata import INFERENCE_ROUTE
from paceline_core.objects.model_names import LostName, NameClaim, claimed, loss, owner_of
from paceline_core.objects.resolved import ResolvedService
from paceline_core.objects.service import InferenceService
from paceline_core.objects.workload_status import VALID, ConditionValue, named
from paceline_operator.plans.pod import Profiles, find_device
from paceline_operator.plans.types import ObjectRef, Validation
from paceline_planner import coldstart
from paceline_planner.service_devices import budget_doubts, unknown_accelerators, unmanaged_accelerators

_MAX_NAMED: int = 5
"""The most faults that one message names."""

_NOT_JUDGED = ConditionValue("Unknown", "NotAccepted", "The object is not accepted, so nothing was computed.")
_UNSEEN = ConditionValue(
    "Unknown", "NotChecked", "The operator opens no weights; the worker checks at its start that they fit."
)


def validate(manifest: Manifest, loss: LostName | None, profiles: Profiles) -> Validation:
    """Read and resolve it, and check that this version supports it."""
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
        too_large = all(fault.field == "spec.engine.emulate" for fault in faults)
        fit = ConditionValue("False", "DoesNotFit", faults[0].message) if too_large else _NOT_JUDGED
        return Validation(refusal("InvalidEmulation", faults), fit, False, service, resolved)
    accepted = named(resolved.key, loss)
    if doubts := "; ".join(map(str, budget_doubts(resolved, find_device(profiles)))):
        reason = "BudgetNotEnforceable" if accepted == VALID else accepted.reason
        accepted = replace(accepted, reason=reason, message=f"{accepted.message} {doubts}.")
    return Validation(accepted, _fit(resolved), True, service, resolved)


def refusal(reason: str, problems: Sequence[FieldError]) -> ConditionValue:
    """Accepted=False with every fault, or the first few; whatever runs stays as it is."""
    more = f"; and {len(problems) - _MAX_NAMED} more" if len(problems) > _MAX_NAMED else ""
    text = "; ".join(str(problem) for problem in problems[:_MAX_NAMED])
    return ConditionValue("False", reason, f"{text}{more}."[:1024])


def _fit(service: ResolvedService) -> ConditionValue:
    if (emulated := service.engine.emulation) is None:
        return _UNSEEN
    fit = coldstart.emulated_fit(service, emulated)
    message = (
        f"{fit.weight_bytes / 1e9:.1f} GB of weights of {emulated.model} leave room for {fit.kv_tokens:,} KV tokens"
        f" on one {emulated.accelerator}."
    )
    return ConditionValue("True", "Fits", message)


@dataclass(frozen=True, slots=True)
class _Claims:
    claim: NameClaim
    reported: str
    names: frozenset[str]


class ModelNameIndex:
    """The claims of all services and routes. Each change returns those whose `loss` may have changed."""

    def __init__(self) -> None:
        self._claims: dict[ObjectRef, _Claims] = {}
        self._by_name: defaultdict[str, set[ObjectRef]] = defaultdict(set)
        self._by_prefix: defaultdict[str, set[ObjectRef]] = defaultdict(set)
        self._namespaces: Counter[str] = Counter()

    def put(self, manifest: Manifest) -> frozenset[ObjectRef]:
        place = (manifest["kind"], ObjectKey(manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]))
        claim, names = claimed(manifest)
        full = () if claim.kind == INFERENCE_ROUTE else (claim.key,)
        claims = _Claims(claim, names[0] if names else "", frozenset((*names, *full)))
        if self._claims.get(place) == claims:
            return frozenset()
        touched = self.remove(place)
        self._claims[place] = claims
        for name in claims.names:
            self._by_name[name].add(place)
            self._by_prefix[name.partition("/")[0]].add(place)
        return (touched | self._rivals(place, claims) | self._count(claims.claim.namespace, 1)) - {place}

    def remove(self, place: ObjectRef) -> frozenset[ObjectRef]:
        if (claims := self._claims.pop(place, None)) is None:
            return frozenset()
        rivals = self._rivals(place, claims)
        for name in claims.names:
            for index, key in ((self._by_name, name), (self._by_prefix, name.partition("/")[0])):
                index[key].discard(place)
                if not index[key]:
                    del index[key]
        return rivals | self._count(claims.claim.namespace, -1)

    def loss(self, place: ObjectRef) -> LostName | None:
        """The loss of the name that clients use for this object; None if the object answers itself."""
        if (claims := self._claims.get(place)) is None or not claims.reported:
            return None
        rivals = (self._claims[other].claim for other in self._by_name.get(claims.reported, ()))
        return loss(claims.reported, claims.claim, rivals, self._namespaces)

    def _rivals(self, place: ObjectRef, claims: _Claims) -> frozenset[ObjectRef]:
        return frozenset(other for name in claims.names for other in self._by_name.get(name, ()) if other != place)

    def _count(self, namespace: str, change: int) -> frozenset[ObjectRef]:
        """Count a namespace's objects: with the first and the last of them, the owner of `namespace/...` changes."""
        before = self._namespaces[namespace]
        self._namespaces[namespace] += change
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]
        if before and namespace in self._namespaces:
            return frozenset()
        others = (place for place in self._by_prefix.get(namespace, ()) if place[1].namespace != namespace)
        return frozenset(place for place in others if owner_of(self._claims[place].reported, {namespace}))
