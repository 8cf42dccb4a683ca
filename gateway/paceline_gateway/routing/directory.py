"""The immutable picture of all objects that the gateway decides by; a new one is made whenever an object changes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from paceline_core.auth import KeyRecord
from paceline_core.objects.defaults import resolve, resolve_route, resolve_tenant
from paceline_core.objects.metadata import Object
from paceline_core.objects.model_names import age, owner_of
from paceline_core.objects.resolved import ResolvedRoute, ResolvedService, ResolvedTenant
from paceline_core.objects.route import InferenceRoute
from paceline_core.objects.service import InferenceService
from paceline_core.objects.tenant import Tenant
from paceline_planner.hardware import CATALOGUE, Accelerator

Claimant = ResolvedService | ResolvedRoute
"""What may answer to a name beside `namespace/name`."""


@dataclass(frozen=True, slots=True)
class Directory:
    """`services` by `namespace/name`, oldest first; `names` by what clients may write beside that, oldest first.

    A name `ns/...` that belongs to a namespace is claimed by its own objects alone.
    `accelerators` by name: the cluster's profiles, and the built-in ones that they do not replace.
    """

    services: Mapping[str, ResolvedService]
    created: Mapping[str, str]
    names: Mapping[str, tuple[Claimant, ...]]
    tenants: Mapping[str, ResolvedTenant]
    keys: Mapping[str, KeyRecord]
    accelerators: Mapping[str, Accelerator] = field(default_factory=lambda: CATALOGUE)


NOTHING = Directory({}, {}, {}, {}, {})


def directory(  # noqa: PLR0913, PLR0917 - one argument a kind
    services: Iterable[InferenceService],
    routes: Iterable[InferenceRoute],
    tenants: Iterable[Tenant],
    keys: Iterable[KeyRecord],
    namespace: str,
    accelerators: Iterable[Accelerator] = (),
) -> Directory:
    """Index the objects. Tenants outside `namespace` are not honoured."""
    routes = list(routes)
    by_age = sorted(services, key=_age)
    resolved = {service.key: resolve(service) for service in by_age}
    claimants: list[InferenceService | InferenceRoute] = [*by_age, *routes]
    return Directory(
        services=resolved,
        created={service.key: service.metadata.creation_timestamp or "" for service in by_age},
        names=_claimed(sorted(claimants, key=_age), resolved),
        tenants={tenant.name: resolve_tenant(tenant) for tenant in tenants if tenant.namespace == namespace},
        keys={key.key_id: key for key in keys},
        accelerators={**CATALOGUE, **{item.name: item for item in accelerators}},
    )


def short_names(service: ResolvedService) -> tuple[str, ...]:
    """What a service may be called beside `namespace/name`; the name that clients should use comes first."""
    return tuple(dict.fromkeys((service.model.served_name, service.name)))


def _age(item: Object) -> tuple[str, str]:
    return age(item.metadata.creation_timestamp, item.key)


def _claimed(
    items: Sequence[InferenceService | InferenceRoute], services: Mapping[str, ResolvedService]
) -> dict[str, tuple[Claimant, ...]]:
    """Who claims each name, in the order of the items."""
    namespaces = {item.namespace for item in items}
    groups: dict[str, list[Claimant]] = {}
    for item in items:
        claimant = resolve_route(item) if isinstance(item, InferenceRoute) else services[item.key]
        for name in (claimant.model,) if isinstance(claimant, ResolvedRoute) else short_names(claimant):
            if owner_of(name, namespaces) in {"", item.namespace}:
                groups.setdefault(name, []).append(claimant)
    return {name: tuple(claimants) for name, claimants in groups.items()}
