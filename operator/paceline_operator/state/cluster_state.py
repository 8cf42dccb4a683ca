"""What this process knows, and which keys to reconcile when it changes: events in, keys into the queue.

It decides nothing. A service that is created or deleted affects its namespace (the shared objects), routes, tenants
and, as a route does, every object that claims the same name; a profile affects every service; a child its owner.

Events come from one list-and-watch for each kind, of objects and of children alike. It lists its kind, watches it, and
lists it again after every fault, so one list repairs whatever was missed. A list keeps only what the caches need of
each object: a thousand whole ones would double the process.
"""

from collections.abc import Coroutine
from typing import Any

from paceline_core.clock import Clock
from paceline_core.errors import PacelineError
from paceline_core.kube import Deleted, Listed, ObjectKey, Upserted, WatchLost
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.client.watch import WatchLiveness, WatchOptions, watch_all
from paceline_core.kube.cluster import Manifest, Namespaces, WatchEvent
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_ROUTE, INFERENCE_SERVICE, TENANT
from paceline_core.telemetry import get_logger
from paceline_operator.plans.key_rotation import REGISTRY
from paceline_operator.plans.labels import MANAGED_BY
from paceline_operator.plans.validation import ModelNameIndex
from paceline_operator.state.child_cache import CHILD_KINDS, NAMESPACE, ChildCache, Requeue, trimmed
from paceline_operator.state.object_cache import KINDS, Change, ObjectCache, trimmed_object
from paceline_operator.state.workqueue import Priority, ReconcileKey, WorkQueue
from paceline_operator.write.executor import PlanExecutor

SELECTOR = "=".join(MANAGED_BY)
FORBIDDEN = " is forbidden"
"""What every refusal for a missing right says, after the resource."""
_log = get_logger(__name__)


class ClusterState:
    """Objects, children, and the queue that receives their changes.

    `forbidden`: kinds that may not be watched, and why. `unreadable`: kinds that this install does without.
    """

    def __init__(self, queue: WorkQueue, keys_item: ReconcileKey) -> None:
        self.objects = ObjectCache()
        self.children = ChildCache()
        self.names = ModelNameIndex()
        self.keys_item = keys_item
        self.forbidden: dict[str, str] = {}
        self.unreadable: set[str] = set()
        self._queue = queue
        self._missing = {*KINDS, *CHILD_KINDS}

    @property
    def complete(self) -> bool:
        """Whether everything was listed once; nothing may be planned before."""
        return not self._missing

    @property
    def children_forbidden(self) -> str:
        return next((self.forbidden[kind] for kind in CHILD_KINDS if kind in self.forbidden), "")

    @property
    def missing(self) -> list[str]:
        return sorted(self._missing)

    def on_event(self, kind: str, event: WatchEvent[Manifest]) -> list[ObjectKey]:
        """Process one event of a watch; returns children to read, because a list cannot show whether they are gone."""
        match event:
            case Listed():
                self._missing.discard(kind)
                self.unreadable.discard(kind)
                if self.forbidden.pop(kind, None) and kind in CHILD_KINDS:
                    self._all(INFERENCE_SERVICE, Priority.EDIT)  # ends the pause that followed the refusals
            case WatchLost(reason) if FORBIDDEN in reason:
                self.forbidden[kind] = reason
                if kind in CHILD_KINDS:
                    self._all(INFERENCE_SERVICE, Priority.RESYNC)
        if kind in CHILD_KINDS:
            return self._on_child(kind, event)
        match event:
            case Listed(items):
                for change in self.objects.listed(kind, items):
                    self._spread(change)
            case Upserted(item):
                self._spread(self.objects.put(item))
            case Deleted(item):
                self._spread(self.objects.remove(item))
        return []

    def on_answer(self, manifest: Manifest) -> None:
        self._spread(self.objects.answered(manifest))

    def leave_unread(self, kind: str) -> None:
        """This install may not read a kind and does without it."""
        self.unreadable.add(kind)
        self._missing.discard(kind)

    def _on_child(self, kind: str, event: WatchEvent[Manifest]) -> list[ObjectKey]:
        match event:
            case Listed(items):
                wakes, doubtful = self.children.listed(kind, items)
                for wake in wakes:
                    self.wake(wake)
                return doubtful
            case Upserted(item) | Deleted(item):
                self.wake(self.children.put(item) if isinstance(event, Upserted) else self.children.remove(item))
                metadata = item["metadata"]
                place = (kind, metadata["name"], metadata.get("namespace"))
                if place == ("ConfigMap", REGISTRY, self.keys_item.key.namespace):
                    self._queue.put(self.keys_item, Priority.EDIT)
            case WatchLost():
                self.children.lose(kind)
        return []

    def everything(self) -> list[ReconcileKey]:
        """All keys: objects, and namespaces that have or need shared objects."""
        items = [ReconcileKey(kind, key) for kind in KINDS for key in self.objects.keys(kind)]
        namespaces = {key.namespace for key in self.objects.keys(INFERENCE_SERVICE)}
        shared = {item for item in self.children.groups() if item.kind == NAMESPACE}
        return [*sorted(shared | {ReconcileKey(NAMESPACE, ObjectKey("", name)) for name in namespaces}), *items]

    def wake(self, wake: Requeue | None) -> None:
        if wake is not None:
            self._queue.put(wake.item, wake.priority)

    def _spread(self, change: Change | None) -> None:
        if change is None:
            return
        item = change.item
        if item.kind in {INFERENCE_SERVICE, INFERENCE_ROUTE}:
            manifest, place = self.objects.get(item), (item.kind, item.key)
            for kind, key in self.names.remove(place) if manifest is None else self.names.put(manifest):
                self._queue.put(ReconcileKey(kind, key), Priority.STATUS)
        if item.kind == INFERENCE_SERVICE:
            if change.came or change.priority is Priority.DELETE:
                # the first one needs the shared objects, the last one needed them
                if self.objects.count(INFERENCE_SERVICE, item.key.namespace) <= 1:
                    self._queue.put(ReconcileKey(NAMESPACE, ObjectKey("", item.key.namespace)), Priority.EDIT)
                self._all(INFERENCE_ROUTE, Priority.RESYNC)
                self._all(TENANT, Priority.RESYNC)
        elif item.kind == ACCELERATOR_PROFILE:
            self._all(INFERENCE_SERVICE, Priority.STATUS)
        if not change.went:
            self._queue.put(item, change.priority)

    def _all(self, kind: str, priority: Priority) -> None:
        for key in self.objects.keys(kind):
            self._queue.put(ReconcileKey(kind, key), priority)


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
        """The liveness of every watch whose kind may be read."""
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
        # an install for some namespaces may lack the right to read the cluster's AcceleratorProfiles
        dispensable = kind == ACCELERATOR_PROFILE and bool(self._namespaces.watched)
        async for event in watch_all(self._api, options, self._liveness[kind]):
            if dispensable and isinstance(event, WatchLost) and FORBIDDEN in event.reason:
                _log.info("AcceleratorProfiles may not be read; built-in ones are used", extra={"reason": event.reason})
                self._state.leave_unread(kind)
            for key in self._state.on_event(kind, event):
                try:
                    self._state.wake(await self._executor.observe(kind, key))
                except PacelineError as error:
                    _log.warning("a doubtful child could not be read", extra={"kind": kind, "reason": str(error)})
