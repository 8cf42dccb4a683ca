"""Warnings about manifests: names without an object here or shared by two, fields without effect.

Warnings refuse nothing: an object that is not among these manifests may be on a cluster, or come later. Conflicts over
model names are decided as gateway and operator decide them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from paceline_core.launch import repeated, unused_fields
from paceline_core.manifests import ParsedManifest
from paceline_core.objects import (
    AcceleratorProfile,
    InferenceRoute,
    InferenceService,
    ResolvedService,
    Tenant,
    resolve,
    resolve_tenant,
)
from paceline_core.objects.model_names import NameClaim, loss
from paceline_core.objects.validate import without_unit
from paceline_local import LOCAL_TENANT, NAMESPACE
from paceline_local.preflight import accelerators, device_notes, profile_notes

Named = InferenceService | InferenceRoute


@dataclass(frozen=True, slots=True)
class _Names:
    """The existing names: services by key, models for clients, valid tenants.

    `claims`: every claim on every model name; `namespaces`: those with services or routes.
    """

    services: dict[str, ResolvedService]
    models: Collection[str]
    tenants: Collection[str]
    claims: Mapping[str, Sequence[NameClaim]]
    namespaces: frozenset[str]

    @classmethod
    def of(cls, here: Iterable[ParsedManifest]) -> "_Names":
        found = [manifest.found for manifest in here]
        services = {each.key: resolve(each) for each in found if isinstance(each, InferenceService)}
        models = {each.spec.model for each in found if isinstance(each, InferenceRoute)}
        for key, service in services.items():
            models |= {key, service.name, service.model.served_name}
        tenants = {each.name for each in found if isinstance(each, Tenant) and each.namespace == NAMESPACE}
        named = [each for each in found if isinstance(each, Named)]
        claims: dict[str, list[NameClaim]] = {}
        for each in named:
            for name in (*_names_of(each), each.key):
                claims.setdefault(name, []).append(_claim_of(each))
        namespaces = frozenset(each.namespace for each in named)
        return cls(services, models, tenants | {LOCAL_TENANT}, claims, namespaces)

    def lost(self, claimant: Named, field: str) -> Iterator[str]:
        """For each name of a service or route that another object answers: that object, and what to change."""
        for name in _names_of(claimant):
            if lost := loss(name, _claim_of(claimant), self.claims.get(name, ()), self.namespaces):
                of_one = " of one" if lost.winner and lost.winner.key != lost.name else ""
                yield f"{lost}; change {field}{of_one}"


def _names_of(found: Named) -> tuple[str, ...]:
    """Names that clients may use beside `namespace/name`, the preferred one first."""
    if isinstance(found, InferenceRoute):
        return (found.spec.model,)
    return tuple(dict.fromkeys((found.spec.model.served_name or found.name, found.name)))


def _claim_of(found: Named) -> NameClaim:
    partial = isinstance(found, InferenceRoute) and bool(found.spec.matches)
    created = found.metadata.creation_timestamp or ""
    return NameClaim(found.kind, found.namespace, found.name, created, partial)


def manifest_warnings(own: Sequence[ParsedManifest], here: Sequence[ParsedManifest]) -> Iterator[str]:
    """Warnings about `own`, which are among all the manifests `here`."""
    names, known = _Names.of(here), accelerators(here)
    for manifest in own:
        found = manifest.found
        notes = list(map(str, without_unit(type(found), manifest.document)))
        if isinstance(found, InferenceService):
            service = resolve(found)
            scaling, idle = service.scaling, not any(pool.min for pool in service.pools)
            if scaling.policy == "slo" and scaling.scale_to_zero_after_s is None and idle:
                notes += ["every replicas.min is 0, but the last replica never goes without spec.scaling.scaleToZero"]
            notes += device_notes(service, known)
        elif isinstance(found, Tenant):
            notes += _tenant(found, names)
        elif isinstance(found, AcceleratorProfile):
            notes += profile_notes(found)
        elif isinstance(found, InferenceRoute):
            notes += [*_route(found, names), *names.lost(found, "spec.model")]
        yield from (f"{manifest.context}: {note}" for note in notes)
    # services of one run have the same age, so the first by name counts as the older
    for each in sorted((m.found for m in own if isinstance(m.found, InferenceService)), key=lambda one: one.key):
        yield from (f"{each.key}: {note}" for note in names.lost(each, "spec.model.servedName"))


def _tenant(tenant: Tenant, names: _Names) -> Iterator[str]:
    if tenant.namespace != NAMESPACE:
        yield f"not honoured; a Tenant counts only in the namespace {NAMESPACE}"
        return
    for key in tenant.spec.services:
        if not key.endswith("*") and key not in names.services:
            yield f"spec.services names {key}: no such InferenceService here"
    barred = [key for key in names.services if not resolve_tenant(tenant).allows(key)]
    if tenant.name == LOCAL_TENANT and barred:
        yield f"the key that `paceline up` prints is this tenant's, which may not use {', '.join(barred)}"


def _route(route: InferenceRoute, names: _Names) -> Iterator[str]:
    yield from (f"{field} is not acted on by this version" for field in unused_fields(route.spec))
    for place, backend in enumerate(route.spec.backends):
        service = names.services.get(key := f"{route.namespace}/{backend.service}")
        if backend.service is not None and service is None:
            yield f"spec.backends[{place}] is passed over: no InferenceService {key} here"
        elif service and backend.model is not None and backend.model not in {service.model.served_name, key}:
            fix = f"which {key} does not answer to; write {service.model.served_name}"
            yield f"spec.backends[{place}].model is {backend.model}, {fix}"
    yield from (f"{again}; keep one of them, with the sum of their weights" for again in repeated(route.spec))
    others = [("spec.fallback", model) for model in route.spec.fallback]
    if route.spec.degrade and route.spec.degrade.model:
        others.append(("spec.degrade.model", route.spec.degrade.model))
    for field, model in others:
        if model not in names.models:
            yield f"{field} names {model}: no service or route of that name here"
    for place, match in enumerate(route.spec.matches):
        for tenant in match.tenants:
            if tenant not in names.tenants:
                yield f"spec.matches[{place}].tenants names {tenant}: no such Tenant in {NAMESPACE} here"
