"""The status of tenants, routes and accelerator profiles: whether each is in effect, and what it is missing.

Pure and level-triggered: the result depends on what exists now, so an object may be created before those it refers to.
Each function returns the operator's share of the status, or None if the status is already so.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from paceline_core.errors import InvalidInput
from paceline_core.kube.cluster import Manifest
from paceline_core.launch import repeated, unused_fields
from paceline_core.objects import AcceleratorProfile, InferenceRoute, ManifestError, Tenant, read
from paceline_core.objects.model_names import LostName
from paceline_core.objects.workload_status import ConditionValue, Status, conditions, sentence
from paceline_operator.plans.validation import refusal
from paceline_planner import accelerators, hardware

_MAX_NAMED: Final = 5


def plan_tenant(manifest: Manifest, services: Collection[str], namespace: str, time: str) -> Status | None:
    """`services` are the keys of all InferenceServices, `namespace` is paceline's own."""
    return _answer(manifest, _tenant(manifest, services, namespace), time)


def plan_route(
    manifest: Manifest, services: Collection[str], loss: LostName | None, hosts: Collection[str], time: str
) -> Status | None:
    """`loss`: the object that wins its name, if there is one; `hosts`: the outside hosts that the install allows."""
    return _answer(manifest, _route(manifest, services, loss, hosts), time)


def plan_profile(manifest: Manifest, time: str) -> Status | None:
    """Whether the planner can compute with the profile's numbers."""
    return _answer(manifest, _profile(manifest), time)


def _answer(manifest: Manifest, verdict: ConditionValue, time: str) -> Status | None:
    before = manifest.get("status") or {}
    known = [one for one in before.get("conditions") or () if one["type"] == "Accepted"]
    generation = manifest["metadata"].get("generation", 0)
    (accepted,) = conditions({"Accepted": verdict}, known, time)
    after = {"observedGeneration": generation, "conditions": [{**accepted, "observedGeneration": generation}]}
    same = before.get("observedGeneration") == generation and known == after["conditions"]
    return None if same or manifest["metadata"].get("deletionTimestamp") else after


def _tenant(manifest: Manifest, services: Collection[str], namespace: str) -> ConditionValue:
    if manifest["metadata"].get("namespace", "") != namespace:
        message = f"A Tenant counts only in the namespace {namespace}; create it there."
        return ConditionValue("False", "NotHonoured", message)
    try:
        tenant = read(Tenant, manifest)
    except ManifestError as error:
        return refusal("Invalid", error.problems)
    # a wildcard allows future services; only a named service can be missing
    unknown = [entry for entry in tenant.spec.services if not entry.endswith("*") and entry not in services]
    if unknown:
        message = f"Honoured; {_listed(unknown)} of spec.services does not exist yet."
        return ConditionValue("True", "ServiceMissing", message)
    return ConditionValue("True", "Valid", "The tenant is honoured.")


def _route(
    manifest: Manifest, services: Collection[str], loss: LostName | None, hosts: Collection[str]
) -> ConditionValue:
    try:
        route = read(InferenceRoute, manifest)
    except ManifestError as error:
        return refusal("Invalid", error.problems)
    if loss is not None and not loss.partial:
        return ConditionValue("False", "NameTaken", f"{sentence(str(loss))} Change spec.model.")
    outside = [urlsplit(one.url).hostname or one.url for one in route.spec.backends if one.url is not None]
    if banned := [host for host in outside if host not in hosts]:
        message = f"{_listed(banned)} of spec.backends is not among the outside hosts that this install allows."
        return ConditionValue("False", "HostNotAllowed", message)
    verdict = _backed(route, services)
    return verdict if loss is None else replace(verdict, message=f"{verdict.message} {sentence(str(loss))}")


def _backed(route: InferenceRoute, services: Collection[str]) -> ConditionValue:
    named = [backend.service for backend in route.spec.backends if backend.service is not None]
    absent = [f"{route.namespace}/{name}" for name in named if f"{route.namespace}/{name}" not in services]
    if not any(backend.service is not None and backend.weight != 0 for backend in route.spec.backends):
        message = "Every backend that takes traffic is a url, and this version does not forward to outside endpoints."
        return _without(route, "Unsupported", message)
    if len(absent) == len(named):
        return _without(route, "BackendMissing", f"No backend exists: create {_listed(absent)}.")
    if absent:
        return ConditionValue("True", "BackendMissing", f"Served by the others; {_listed(absent)} does not exist.")
    if again := list(repeated(route.spec)):
        message = f"Served; {_listed(again)}: keep one of them, with the sum of their weights."
        return ConditionValue("True", "BackendTwice", message)
    if unused := list(unused_fields(route.spec)):
        return ConditionValue("True", "PartlySupported", f"Served; this version does not act on {_listed(unused)}.")
    return ConditionValue("True", "Valid", "The route is used.")


def _without(route: InferenceRoute, reason: str, message: str) -> ConditionValue:
    """No backend can answer, which is the case that fallbacks are for."""
    if route.spec.fallback:
        return ConditionValue("True", reason, f"Served by spec.fallback alone. {message}")
    return ConditionValue("False", reason, message)


def _profile(manifest: Manifest) -> ConditionValue:
    try:
        profile = read(AcceleratorProfile, manifest)
        device = hardware.from_profile(profile.name, profile.spec)
    except ManifestError as error:
        return refusal("Invalid", error.problems)
    except (InvalidInput, ValueError) as error:
        return ConditionValue("False", "Invalid", f"{error}.")
    if device.memory <= 0 or device.bandwidth <= 0:
        return ConditionValue("False", "Invalid", "spec.memory and spec.bandwidth must be above zero.")
    if not device.flops:
        message = "spec.teraflops: none of the types given is one that paceline plans with; add bf16 or fp16."
        return ConditionValue("False", "Invalid", message)
    message = f"{device.memory / 1e9:.0f} GB at {device.bandwidth / 1e9:,.0f} GB/s; "
    used = "replaces all of the built-in one" if (profile.name in accelerators.CATALOGUE) else "is used"
    priced = "." if device.price is not None else "; without dollarsPerHour it counts as free in costs and budgets."
    return ConditionValue("True", "Valid", f"{message}{used}{priced}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more
