"""What manifests may say and probably do not mean: names that lead nowhere here, names that two share, idle fields.

Notes refuse nothing: what is not among these manifests may be on a cluster, or come later.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from paceline_cli.supervisor.accelerators import accelerators, device_notes
from paceline_cli.supervisor.keys import LOCAL_TENANT
from paceline_cli.supervisor.site import NAMESPACE
from paceline_core.launch import idle
from paceline_core.manifests import Manifest
from paceline_core.objects import InferenceRoute, InferenceService, ResolvedService, Tenant, resolve, resolve_tenant
from paceline_core.objects.metadata import Object
from paceline_core.objects.route import Backend


@dataclass(frozen=True, slots=True)
class _Names:
    """What there is to be named: services by key, models that clients may ask for, tenants that are honoured."""

    services: dict[str, ResolvedService]
    models: Collection[str]
    tenants: Collection[str]


def notes(own: Sequence[Manifest], here: Sequence[Manifest]) -> Iterator[str]:
    """About `own`, which stand among all that are `here`."""
    names, known = _names(here), accelerators(here)
    for manifest in own:
        found = manifest.found
        if isinstance(found, InferenceService):
            service = resolve(found)
            yield from (f"{manifest.context}: {note}" for note in (*_service(service), *device_notes(service, known)))
        elif isinstance(found, Tenant):
            yield from (f"{manifest.context}: {note}" for note in _tenant(found, names))
        elif isinstance(found, InferenceRoute):
            yield from (f"{manifest.context}: {note}" for note in _route(found, names))
            yield from (f"{manifest.context}: {note}" for note in _unreached(found, here))
    yield from _shared_names(own, names)


def _names(here: Sequence[Manifest]) -> _Names:
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
    yield from (f"{field} is not acted on by this version" for field in idle(route.spec))
    for place, backend in enumerate(route.spec.backends):
        yield from (f"spec.backends[{place}]{note}" for note in _backend(route, backend, names))
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


def _unreached(route: InferenceRoute, here: Sequence[Manifest]) -> Iterator[str]:
    """As the gateway and the operator take routes of one model: the older first, of one age the first by name."""
    rivals = [m.found for m in here if isinstance(m.found, InferenceRoute) and m.found.spec.model == route.spec.model]
    older = [rival for rival in rivals if not rival.spec.matches and _age(rival) < _age(route)]
    if older:
        first = min(older, key=_age)
        yield f"the older route {first.key} answers every request for {route.spec.model!r}; change spec.model of one"


def _age(item: Object) -> tuple[str, str]:
    return (item.metadata.creation_timestamp or "~", item.key)


def _shared_names(own: Sequence[Manifest], names: _Names) -> Iterator[str]:
    """Services of one run are of one age, so that the gateway takes the first by name."""
    mine = {manifest.found.key for manifest in own if isinstance(manifest.found, InferenceService)}
    answering: dict[str, str] = {}
    for key, service in sorted(names.services.items()):
        for name in dict.fromkeys((service.model.served_name, service.name)):
            older = answering.setdefault(name, key)
            if older != key and key in mine:
                yield f"{key}: the older, {older}, answers to {name!r}; change spec.model.servedName of one"
