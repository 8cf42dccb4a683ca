"""The cluster as its watches report it: services, accelerators, workers. Level-triggered: a list replaces everything.

A service that cannot be parsed keeps its last valid form: an object that only a newer paceline understands must not
make an older one forget that the service exists.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from paceline_autoscaler.model.observation import built_in, scaling_spec
from paceline_autoscaler.types import MissingSignal, ScalingSpec
from paceline_core.kube import Endpoint, Listed, ObjectKey, ServiceEndpoints, ServiceRef, WatchLost
from paceline_core.kube.cluster import Manifest, ResourceStore, WatchEvent, namespaced_key
from paceline_core.objects import AcceleratorProfile, InferenceService, ManifestError, read, resolve
from paceline_core.telemetry import get_logger
from paceline_planner.hardware import Accelerator, from_profile

T = TypeVar("T")
_UNLISTED = "not listed yet"
_log = get_logger(__name__)


@dataclass(slots=True)
class ClusterView:
    """The latest report of each watch; `lost`: broken watches with the cause; their data ages. `specs`: by service.

    `uids` has every existing service, including those that cannot be parsed.
    """

    services: ResourceStore[ObjectKey, InferenceService] = field(default_factory=ResourceStore)
    profiles: ResourceStore[str, Accelerator] = field(default_factory=ResourceStore)
    workers: ResourceStore[ObjectKey, ServiceEndpoints] = field(default_factory=ResourceStore)
    specs: dict[ObjectKey, ScalingSpec] = field(default_factory=dict)
    uids: ResourceStore[ObjectKey, str] = field(default_factory=ResourceStore)
    lost: dict[MissingSignal, str] = field(
        default_factory=lambda: {MissingSignal.OBJECTS: _UNLISTED, MissingSignal.ENDPOINTS: _UNLISTED}
    )
    unlisted: set[MissingSignal] = field(default_factory=lambda: {MissingSignal.OBJECTS, MissingSignal.ENDPOINTS})

    @property
    def known(self) -> bool:
        """Whether services and workers have been listed at least once."""
        return not self.unlisted

    @property
    def alive(self) -> frozenset[ServiceRef] | None:
        """All existing services; None while that is uncertain."""
        return (
            None
            if MissingSignal.OBJECTS in self.lost
            else frozenset(ServiceRef(key, uid) for key, uid in self.uids.items())
        )

    def endpoints(self, key: ObjectKey) -> tuple[Endpoint, ...]:
        found = self.workers.get(key)
        return () if found is None else found.endpoints

    def on_service(self, event: WatchEvent[Manifest]) -> None:
        self._note(MissingSignal.OBJECTS, event)
        self.uids.apply(event, namespaced_key, lambda manifest: str(manifest["metadata"].get("uid", "")))
        for change in self.services.apply(event, namespaced_key, self._service):
            self._update_spec(change.key)

    def on_profile(self, event: WatchEvent[Manifest]) -> None:
        if self.profiles.apply(event, _profile_name, self._profile):
            for key in self.services:
                self._update_spec(key)

    def on_workers(self, event: WatchEvent[ServiceEndpoints]) -> None:
        self._note(MissingSignal.ENDPOINTS, event)
        self.workers.apply(event, lambda item: item.service, lambda item: item)

    def _note(self, gap: MissingSignal, event: WatchEvent[T]) -> None:
        match event:
            case WatchLost(reason):
                self.lost[gap] = reason
            case Listed():
                self.lost.pop(gap, None)
                self.unlisted.discard(gap)

    def _update_spec(self, key: ObjectKey) -> None:
        if key in self.services:
            self.specs[key] = scaling_spec(
                resolve(self.services[key]), lambda name: self.profiles.get(name) or built_in(name)
            )
        else:
            self.specs.pop(key, None)

    def _service(self, manifest: Manifest) -> InferenceService | None:
        try:
            return read(InferenceService, manifest)
        except ManifestError as error:
            _log.warning(
                "a service is not understood", extra={"service": str(namespaced_key(manifest)), "reason": str(error)}
            )
            return self.services.get(namespaced_key(manifest))

    def _profile(self, manifest: Manifest) -> Accelerator | None:
        try:
            profile = read(AcceleratorProfile, manifest)
            return from_profile(profile.name, profile.spec)
        except ManifestError as error:
            _log.warning("an accelerator profile is not understood", extra={"reason": str(error)})
            return self.profiles.get(_profile_name(manifest))


async def follow(events: AsyncIterator[WatchEvent[T]], take: Callable[[WatchEvent[T]], None]) -> None:
    async for event in events:
        take(event)


def _profile_name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])
