"""The immutable picture of all objects that the gateway decides by; a new one is made whenever an object changes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from paceline_core.auth import KeyRecord
from paceline_core.objects.defaults import resolve, resolve_route, resolve_tenant
from paceline_core.objects.metadata import Object
from paceline_core.objects.resolved import ResolvedRoute, ResolvedService, ResolvedTenant
from paceline_core.objects.route import InferenceRoute
from paceline_core.objects.service import InferenceService
from paceline_core.objects.tenant import Tenant
from paceline_planner.hardware import CATALOGUE, Accelerator


@dataclass(frozen=True, slots=True)
class Directory:
    """`services` by `namespace/name`, oldest first; `names` and `routes` by what clients may write, oldest first.

    `accelerators` by name: the cluster's profiles, and the built-in ones that they do not replace.
    """

    services: Mapping[str, ResolvedService]
    created: Mapping[str, str]
    names: Mapping[str, tuple[ResolvedService, ...]]
    routes: Mapping[str, tuple[ResolvedRoute, ...]]
    tenants: Mapping[str, ResolvedTenant]
    keys: Mapping[str, KeyRecord]
    accelerators: Mapping[str, Accelerator] = field(default_factory=lambda: CATALOGUE)


T = TypeVar("T")
NOTHING = Directory({}, {}, {}, {}, {}, {})


def directory(  # noqa: PLR0913, PLR0917 - one argument a kind
    services: Iterable[InferenceService],
    routes: Iterable[InferenceRoute],
    tenants: Iterable[Tenant],
    keys: Iterable[KeyRecord],
    namespace: str,
    accelerators: Iterable[Accelerator] = (),
) -> Directory:
    """Index the objects. Tenants outside `namespace` are not honoured."""
    by_age = sorted(services, key=_age)
    resolved = {service.key: resolve(service) for service in by_age}
    return Directory(
        services=resolved,
        created={service.key: service.metadata.creation_timestamp or "" for service in by_age},
        names=_grouped((name, service) for service in resolved.values() for name in short_names(service)),
        routes=_grouped((route.spec.model, resolve_route(route)) for route in sorted(routes, key=_age)),
        tenants={tenant.name: resolve_tenant(tenant) for tenant in tenants if tenant.namespace == namespace},
        keys={key.key_id: key for key in keys},
        accelerators={**CATALOGUE, **{item.name: item for item in accelerators}},
    )


def short_names(service: ResolvedService) -> tuple[str, ...]:
    """What a service may be called beside `namespace/name`; the name that clients should use comes first."""
    return tuple(dict.fromkeys((service.model.served_name, service.name)))


def _age(item: Object) -> tuple[str, str]:
    # an object without a timestamp was never stored and counts as the youngest
    return (item.metadata.creation_timestamp or "~", item.key)


def _grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, tuple[T, ...]]:
    groups: dict[str, list[T]] = {}
    for name, item in pairs:
        groups.setdefault(name, []).append(item)
    return {name: tuple(items) for name, items in groups.items()}
