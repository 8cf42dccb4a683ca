"""What manifests may say and probably do not mean: names that lead nowhere here, names that two share, idle fields.

Notes refuse nothing: what is not among these manifests may be on a cluster, or come later. Contests for model names are
decided as gateway and operator decide them.
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
from paceline_core.objects.model_names import LostName, NameClaim, loss
from paceline_core.objects.route import Backend
from paceline_core.objects.validate import without_unit
from paceline_local import LOCAL_TENANT, NAMESPACE
from paceline_local.preflight import accelerators, device_notes, profile_notes

Named = InferenceService | InferenceRoute


@dataclass(frozen=True, slots=True)
class ModelNameClaims:
    """Every claim on every name, and the namespaces that hold services or routes."""

    claims: Mapping[str, Sequence[NameClaim]]
    namespaces: frozenset[str]

    @classmethod
    def of(cls, here: Iterable[ParsedManifest]) -> "ModelNameClaims":
        """The claims of all services and routes among these."""
        claims: dict[str, list[NameClaim]] = {}
        named = [one.found for one in here if isinstance(one.found, Named)]
        for found in named:
            for name in (*names_of(found), found.key):
                claims.setdefault(name, []).append(claim_of(found))
        return cls(claims, frozenset(found.namespace for found in named))

    def loss(self, name: str, mine: NameClaim) -> LostName | None:
        """Return the claim that answers to `name` instead of `mine`; None if `mine` does."""
        return loss(name, mine, self.claims.get(name, ()), self.namespaces)


def names_of(found: Named) -> tuple[str, ...]:
    """Names that clients may use beside `namespace/name`, the preferred one first."""
    if isinstance(found, InferenceRoute):
        return (found.spec.model,)
    return tuple(dict.fromkeys((found.spec.model.served_name or found.name, found.name)))


def claim_of(found: Named) -> NameClaim:
    """The claim of a service or route on its names."""
    partial = isinstance(found, InferenceRoute) and bool(found.spec.matches)
    created = found.metadata.creation_timestamp or ""
    return NameClaim(found.kind, found.namespace, found.name, created, partial)


@dataclass(frozen=True, slots=True)
class _Names:
    """What there is to be named: services by key, models that clients may ask for, tenants that are honoured."""

    services: dict[str, ResolvedService]
    models: Collection[str]
    tenants: Collection[str]


def manifest_warnings(own: Sequence[ParsedManifest], here: Sequence[ParsedManifest]) -> Iterator[str]:
    """About `own`, which stand among all that are `here`."""
    names, known, contest = _names(here), accelerators(here), ModelNameClaims.of(here)
    for manifest in own:
        found = manifest.found
        yield from (f"{manifest.context}: {note}" for note in without_unit(type(found), manifest.document))
        if isinstance(found, InferenceService):
            service = resolve(found)
            yield from (f"{manifest.context}: {note}" for note in (*_service(service), *device_notes(service, known)))
        elif isinstance(found, Tenant):
            yield from (f"{manifest.context}: {note}" for note in _tenant(found, names))
        elif isinstance(found, AcceleratorProfile):
            yield from (f"{manifest.context}: {note}" for note in profile_notes(found))
        elif isinstance(found, InferenceRoute):
            yield from (f"{manifest.context}: {note}" for note in _route(found, names))
            yield from (f"{manifest.context}: {note}" for note in _unreached(found, contest))
    yield from _shared_names(own, contest)


def _names(here: Sequence[ParsedManifest]) -> _Names:
    services = {m.found.key: resolve(m.found) for m in here if isinstance(m.found, InferenceService)}
    models = {m.found.spec.model for m in here if isinstance(m.found, InferenceRoute)}
    for key, service in services.items():
        models |= {key, service.name, service.model.served_name}
    tenants = {m.found.name for m in here if isinstance(m.found, Tenant) and m.found.namespace == NAMESPACE}
    return _Names(services, models, tenants | {LOCAL_TENANT})


def _service(service: ResolvedService) -> Iterator[str]:
    scaling = service.scaling
    if scaling.policy == "slo" and scaling.scale_to_zero_after_s is None and not any(p.min for p in service.pools):
        yield "every replicas.min is 0, but the last replica never goes without spec.scaling.scaleToZero"


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
        yield from (f"spec.backends[{place}]{note}" for note in _backend(route, backend, names))
    yield from (f"{again}; keep one of them, with the sum of their weights" for again in repeated(route.spec))
    for model in route.spec.fallback:
        if model not in names.models:
            yield f"spec.fallback names {model}: no service or route of that name here"
    for place, match in enumerate(route.spec.matches):
        for tenant in match.tenants:
            if tenant not in names.tenants:
                yield f"spec.matches[{place}].tenants names {tenant}: no such Tenant in {NAMESPACE} here"


def _backend(route: InferenceRoute, backend: Backend, names: _Names) -> Iterator[str]:
    if backend.service is None:
        return
    service = names.services.get(key := f"{route.namespace}/{backend.service}")
    if service is None:
        yield f" is passed over: no InferenceService {key} here"
    elif backend.model is not None and backend.model not in {service.model.served_name, key}:
        yield f".model is {backend.model}, which {key} does not answer to; write {service.model.served_name}"


def _unreached(route: InferenceRoute, contest: ModelNameClaims) -> Iterator[str]:
    if lost := contest.loss(route.spec.model, claim_of(route)):
        yield f"{lost}; change spec.model{_of_one(lost)}"


def _shared_names(own: Sequence[ParsedManifest], contest: ModelNameClaims) -> Iterator[str]:
    """Services of one run are of one age, so that the first by name is the older."""
    for service in sorted((m.found for m in own if isinstance(m.found, InferenceService)), key=lambda one: one.key):
        for name in names_of(service):
            if lost := contest.loss(name, claim_of(service)):
                yield f"{service.key}: {lost}; change spec.model.servedName{_of_one(lost)}"


def _of_one(lost: LostName) -> str:
    return " of one" if lost.winner and lost.winner.key != lost.name else ""
