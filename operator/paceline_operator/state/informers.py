"""Where the cluster state's events come from: one list-and-watch for each kind, of objects and of children alike.

Each watch lists its kind, follows it, and lists it anew after every fault, so one relist repairs whatever was missed.
A list keeps only what the caches need of each object: a thousand whole ones would double the process.
"""

from collections.abc import Coroutine
from typing import Any

from paceline_core.clock import Clock
from paceline_core.errors import PacelineError
from paceline_core.kube import ObjectKey, WatchLost
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.client.watch import WatchLiveness, WatchOptions, watch_all
from paceline_core.kube.cluster import Manifest, Namespaces, WatchEvent
from paceline_core.objects.metadata import ACCELERATOR_PROFILE
from paceline_core.telemetry import get_logger
from paceline_operator.plans.labels import MANAGED_BY
from paceline_operator.state.child_cache import CHILD_KINDS, trimmed
from paceline_operator.state.cluster_state import FORBIDDEN, ClusterState
from paceline_operator.state.object_cache import KINDS, trimmed_object
from paceline_operator.write.executor import PlanExecutor

SELECTOR = "=".join(MANAGED_BY)
_log = get_logger(__name__)


class Informers:
    """`watches` run until cancelled. Children are also watched in paceline's own namespace."""

    def __init__(
        self, api: KubeClient, state: ClusterState, executor: PlanExecutor, clock: Clock, namespaces: Namespaces
    ) -> None:
        self._api = api
        self._state = state
        self._executor = executor
        self._namespaces = namespaces
        self._liveness = {kind: WatchLiveness(kind, clock) for kind in (*KINDS, *CHILD_KINDS)}

    @property
    def liveness(self) -> list[WatchLiveness]:
        """That of every watch whose kind may be read."""
        return [one for kind, one in self._liveness.items() if kind not in self._state.unreadable]

    def watches(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {kind: self._watch(self._options(kind)) for kind in self._liveness}

    def _options(self, kind: str) -> WatchOptions:
        resource, watched = RESOURCES[kind], self._namespaces.watched
        if kind in CHILD_KINDS:
            places = tuple(dict.fromkeys((*watched, self._namespaces.own))) if watched else ()
            return WatchOptions(resource, places, SELECTOR, trimmed)
        return WatchOptions(resource, watched if resource.namespaced else (), trim=trimmed_object)

    async def _watch(self, options: WatchOptions) -> None:
        kind = options.resource.kind
        async for event in watch_all(self._api, options, self._liveness[kind]):
            self._leave_unread(kind, event)
            for key in self._state.on_event(kind, event):
                await self._observe(kind, key)

    def _leave_unread(self, kind: str, event: WatchEvent[Manifest]) -> None:
        """An install for some namespaces may lack the right to read the cluster's AcceleratorProfiles."""
        if kind != ACCELERATOR_PROFILE or not self._namespaces.watched:
            return
        if isinstance(event, WatchLost) and FORBIDDEN in event.reason:
            _log.info("AcceleratorProfiles may not be read; built-in ones are used", extra={"reason": event.reason})
            self._state.leave_unread(kind)

    async def _observe(self, kind: str, key: ObjectKey) -> None:
        try:
            self._state.wake(await self._executor.observe(kind, key))
        except PacelineError as error:
            _log.warning("a doubtful child could not be read", extra={"kind": kind, "reason": str(error)})
