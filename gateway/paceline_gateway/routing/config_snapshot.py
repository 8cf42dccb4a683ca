"""The immutable snapshot of all objects that the gateway's decisions use; each change of an object makes a new one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from paceline_core.auth import ApiKeyRecord
from paceline_core.objects.defaults import resolve, resolve_route, resolve_tenant
from paceline_core.objects.model_names import NameClaim, age, owner_of
from paceline_core.objects.resolved import ResolvedRoute, ResolvedService, ResolvedTenant
from paceline_core.objects.route import InferenceRoute
from paceline_core.objects.service import InferenceService
from paceline_core.objects.tenant import Tenant
from paceline_planner.accelerators import CATALOGUE
from paceline_planner.hardware import Accelerator


@dataclass(frozen=True, slots=True)
class Unread:
    """A service or route that this version cannot parse: it serves no requests, but keeps its names."""

    claim: NameClaim
    names: tuple[str, ...]

    @property
    def namespace(self) -> str:
        return self.claim.namespace


Claimant = ResolvedService | ResolvedRoute | Unread
"""Objects that may have a name beside `namespace/name`."""
_Named = InferenceService | InferenceRoute | Unread


@dataclass(frozen=True, slots=True)
class ConfigSnapshot:
    """`services` by `namespace/name`, oldest first; `names` by the other names that clients may use, oldest first.

    Only objects of namespace `ns` can claim a name `ns/...`. `renamed`: services whose pods still have an earlier
    served name, by `namespace/name`; they keep that name unless another object claims it. `accelerators` by name: the
    cluster's profiles, and the built-in ones that they do not replace.
    """

    services: Mapping[str, ResolvedService]
    created: Mapping[str, str]
    names: Mapping[str, tuple[Claimant, ...]]
    tenants: Mapping[str, ResolvedTenant]
    keys: Mapping[str, ApiKeyRecord]
    accelerators: Mapping[str, Accelerator] = field(default_factory=lambda: CATALOGUE)
    renamed: Mapping[str, str] = field(default_factory=dict)


NOTHING = ConfigSnapshot({}, {}, {}, {}, {})


def directory(  # noqa: PLR0913, PLR0917 - one argument for each kind
    services: Iterable[InferenceService | Unread],
    routes: Iterable[InferenceRoute | Unread],
    tenants: Iterable[Tenant],
    keys: Iterable[ApiKeyRecord],
    namespace: str,
    accelerators: Iterable[Accelerator] = (),
) -> ConfigSnapshot:
    """Index the objects. Tenants outside `namespace` are ignored."""
    named: list[_Named] = sorted(
        (*services, *routes),
        key=lambda item: (
            item.claim.age if isinstance(item, Unread) else age(item.metadata.creation_timestamp, item.key)
        ),
    )
    by_age = [item for item in named if isinstance(item, InferenceService)]
    resolved = {service.key: resolve(service) for service in by_age}
    renamed = {  # the served name of the old pods while a rollout changes it
        item.key: old
        for item in by_age
        if (old := item.status.workload.served_name) and old != resolved[item.key].model.served_name
    }
    return ConfigSnapshot(
        services=resolved,
        created={service.key: service.metadata.creation_timestamp or "" for service in by_age},
        names=_claimed(named, resolved, renamed),
        tenants={tenant.name: resolve_tenant(tenant) for tenant in tenants if tenant.namespace == namespace},
        keys={key.key_id: key for key in keys},
        accelerators={**CATALOGUE, **{item.name: item for item in accelerators}},
        renamed=renamed,
    )


def short_names(service: ResolvedService) -> tuple[str, ...]:
    """The names of a service beside `namespace/name`; the name that clients should use comes first."""
    return tuple(dict.fromkeys((service.model.served_name, service.name)))


def _claimed(
    items: Sequence[_Named], services: Mapping[str, ResolvedService], renamed: Mapping[str, str]
) -> dict[str, tuple[Claimant, ...]]:
    """The claimants of each name, in the order of the items."""
    namespaces = {item.namespace for item in items}
    groups: dict[str, list[Claimant]] = {}
    for item in items:
        claimant, names = _claim(item, services)
        for name in names:
            if owner_of(name, namespaces) in {"", item.namespace}:
                groups.setdefault(name, []).append(claimant)
    for key, name in renamed.items():
        if owner_of(name, namespaces) in {"", services[key].namespace}:
            groups.setdefault(name, [services[key]])
    return {name: tuple(claimants) for name, claimants in groups.items()}


def _claim(item: _Named, services: Mapping[str, ResolvedService]) -> tuple[Claimant, tuple[str, ...]]:
    match item:
        case Unread():
            return item, () if item.claim.partial else item.names
        case InferenceRoute():
            return resolve_route(item), (item.spec.model,)
    return services[item.key], short_names(services[item.key])
