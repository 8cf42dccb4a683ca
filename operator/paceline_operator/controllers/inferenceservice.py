"""One pass over one service: view, plan, carry out, say; again while there is more to do.

A plan sees what the last one's requests were answered, so a first creation is two rounds in one pass: children, then
the hand-over of replicas. `ROUNDS` bounds a pass; somebody who undoes what we write gets pauses (see
`ConflictBackoff`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from paceline_core.clock import Clock, rfc3339
from paceline_core.errors import Forbidden
from paceline_core.kube import Event, ObjectKey
from paceline_core.kube.client.client import key_of
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_SERVICE
from paceline_core.objects.naming import deployment_name, workers_service_name
from paceline_core.telemetry import get_logger
from paceline_operator.controllers.conditions import ConditionFault, degraded, fault_of, says_already, timeless
from paceline_operator.controllers.pod_diagnostics import PodDiagnostics
from paceline_operator.plans.inferenceservice import plan_service
from paceline_operator.plans.namespace import missing
from paceline_operator.plans.status import CREATED, OF_ACTIONS, REPAIRED
from paceline_operator.plans.types import (
    Memo,
    ObjectRef,
    ObservedChild,
    PodProblem,
    ReconcileInput,
    ReconcilePlan,
    Settings,
)
from paceline_operator.state.cluster_state import ClusterState
from paceline_operator.state.object_cache import CacheView
from paceline_operator.state.workqueue import Priority, ReconcileKey
from paceline_operator.write.conflict_backoff import ConflictBackoff
from paceline_operator.write.executor import TERMINATING_S, PlanExecutor

ROUNDS = 4
CROWD = 12
"""So many services that start at once are one crowd, until all but as many have been told of."""
STRANGER_S = 15.0
_log = get_logger(__name__)


class ReconcileError(Exception):
    """A pass met something that a person must mend; the service's status says it."""

    def __init__(self, fault: ConditionFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class ReconcilerDeps:
    """What every pass uses."""

    world: ClusterState
    hands: PlanExecutor
    lookout: PodDiagnostics
    settings: Settings
    clock: Clock
    record: Callable[[Event], None]
    wake: Callable[[ReconcileKey, Priority], None]


class ServiceReconciler:
    """Passes over services. Keeps each service's memo, and what is wrong with what each namespace's services share."""

    def __init__(self, tools: ReconcilerDeps) -> None:
        self._tools = tools
        self._memos: dict[ObjectKey, tuple[str, Memo]] = {}
        self._shared: dict[str, PodProblem] = {}
        self._starting: set[ObjectKey] = set()
        self._crowd = 0
        self.waiting: set[ReconcileKey] = set()
        self.quarrels = ConflictBackoff(tools.clock)

    def share(self, namespace: str, fault: ConditionFault | None) -> None:
        """What keeps the things that a namespace's services share from being as wished: each of them says it."""
        trouble = PodProblem(fault.reason, fault.message) if fault else None
        if self._shared.get(namespace) == trouble:
            return
        self._shared.pop(namespace, None)
        if trouble is not None:
            self._shared[namespace] = trouble
        for key in self._tools.world.objects.keys(INFERENCE_SERVICE):
            if key.namespace == namespace:
                self._tools.wake(ReconcileKey(INFERENCE_SERVICE, key), Priority.STATUS)

    async def look(self, live: ObservedChild) -> None:
        """Ask for an object of somebody else, of which no watch tells. Raises Faulty when it may not be read."""
        try:
            await self._tools.hands.observe(live.kind, live.key)
        except Forbidden as error:
            raise ReconcileError(fault_of(error, f"read {live.kind} {live.key}")) from error

    async def reconcile(self, key: ObjectKey, urgency: Priority) -> float | None:
        """One pass; when to look again. Raises Faulty, NotLeading, Unreachable or Refused."""
        for _ in range(ROUNDS):
            manifest = self._tools.world.objects.get(ReconcileKey(INFERENCE_SERVICE, key))
            if manifest is None:
                self._forget(key)
                return None
            if self._tools.hands.terminates(key.namespace):
                return TERMINATING_S
            if forbidden := self._tools.world.children_forbidden:
                message = f"{forbidden} (the operator's role lacks this right; nothing is changed)"
                raise ReconcileError(ConditionFault("Forbidden", message, forbidden))
            view = await self._view(key, manifest)
            plan = await self._round(view, urgency)
            if not plan.actions:
                calm_s = self.quarrels.calm_s(_places(key, manifest))
                waits = (plan.again_s, self._tools.lookout.again_s(key), _stranger_s(view), calm_s)
                return min((wait for wait in waits if wait is not None), default=None)
        raise ReconcileError(
            ConditionFault(
                "Failed", f"something undoes what the operator writes for {key}; see the children's managers"
            )
        )

    async def _round(self, view: ReconcileInput, urgency: Priority) -> ReconcilePlan:
        manifest = view.service
        key = key_of(manifest)
        plan = self._unquarrelled(view, self._planned(view))
        faults = await self._tools.hands.carry(plan.actions, urgency)
        if faults:
            await self.say(manifest, plan.status, faults[0], urgency)
            raise ReconcileError(faults[0])
        if self._tools.hands.terminates(key.namespace):
            return plan
        self.quarrels.acted(plan.actions, view.children)
        self._tell(event for event in plan.events if event.reason in OF_ACTIONS)
        if plan.status is not None:
            await self._write(manifest, plan.status, urgency)
            self.quarrels.wrote(*_said(manifest, plan.status))
        self._tell(event for event in plan.events if event.reason not in OF_ACTIONS)
        self._count(key, told=plan.status is not None or "observedGeneration" in (manifest.get("status") or {}))
        if plan.memo is not None:
            self._memos[key] = (manifest["metadata"]["uid"], plan.memo)
        return plan

    def _tell(self, events: Iterable[Event]) -> None:
        for event in events:
            self._tools.record(event)

    def _unquarrelled(self, view: ReconcileInput, plan: ReconcilePlan) -> ReconcilePlan:
        """The plan without what must wait because somebody undoes it."""
        actions, wait_s = self.quarrels.due(plan.actions)
        said_s = self.quarrels.wait_s(*_said(view.service, plan.status)) if plan.status is not None else 0.0
        waits = [wait for wait in (plan.again_s, wait_s, said_s or None) if wait is not None]
        if wait_s is not None:
            plan = replace(plan, events=tuple(one for one in plan.events if one.reason not in (CREATED, REPAIRED)))
        if said_s:
            plan = replace(plan, status=None, events=(), memo=view.memo)
        return replace(plan, actions=tuple(actions), again_s=min(waits, default=None))

    async def say(self, manifest: Manifest, planned: Manifest | None, fault: ConditionFault, urgency: Priority) -> None:
        """Let the service's status say a fault."""
        live = manifest.get("status") or {}
        generation = manifest["metadata"].get("generation", 0)
        status = degraded(live, planned, fault, rfc3339(self._tools.clock.utc()), generation)
        if not says_already(live, status):
            await self._write(manifest, status, urgency)
            self.quarrels.wrote(*_said(manifest, status))

    def _planned(self, view: ReconcileInput) -> ReconcilePlan:
        try:
            return plan_service(view)
        except Exception as error:
            raise ReconcileError(fault_of(error, "plan this service")) from error

    async def _write(self, manifest: Manifest, status: Manifest, urgency: Priority) -> None:
        answer = await self._tools.hands.status(INFERENCE_SERVICE, manifest, status, urgency)
        if answer is not None:
            self._tools.world.on_answer(answer)

    async def _view(self, key: ObjectKey, manifest: Manifest) -> ReconcileInput:
        tools, now = self._tools, self._tools.clock.monotonic()
        children = self._children(key, manifest)
        for live in children.values():
            if not live.managed:
                await self.look(live)
                children = self._children(key, manifest)
        shared = tools.world.children.shared(key.namespace)
        if missing(shared, tools.settings):
            self.waiting.add(ReconcileKey(INFERENCE_SERVICE, key))
        uid, memo = self._memos.get(key, ("", None))
        return ReconcileInput(
            service=manifest,
            children=children,
            shared=shared,
            settings=tools.settings,
            now=now,
            time=rfc3339(tools.clock.utc()),
            profiles=None
            if ACCELERATOR_PROFILE in tools.world.unreadable
            else CacheView(tools.world.objects, ACCELERATOR_PROFILE),
            troubles=(
                *await self._troubles(key, children),
                *self._shared_troubles(key.namespace),
                *self.quarrels.troubles(_places(key, manifest)),
            ),
            loss=tools.world.names.loss((INFERENCE_SERVICE, key)),
            crowd=self._crowd,
            memo=memo if uid == manifest["metadata"]["uid"] else None,
        )

    def _children(self, key: ObjectKey, manifest: Manifest) -> dict[ObjectRef, ObservedChild]:
        cache = self._tools.world.children
        children = cache.group(ReconcileKey(INFERENCE_SERVICE, key))
        for place in _children_places(key, manifest):
            if place not in children and (live := cache.get(*place)) is not None:
                children[place] = live
        return children

    def _shared_troubles(self, namespace: str) -> tuple[PodProblem, ...]:
        trouble = self._shared.get(namespace)
        return (trouble,) if trouble else ()

    async def _troubles(self, key: ObjectKey, children: dict[ObjectRef, ObservedChild]) -> tuple[PodProblem, ...]:
        counts = [live.replicas for live in children.values() if live.replicas is not None]
        if all(count.settled for count in counts):
            self._tools.lookout.forget(key)
            return ()
        return await self._tools.lookout.troubles(key, crowded=self._crowd > 0)

    def _count(self, key: ObjectKey, *, told: bool) -> None:
        """A crowd is as large as it ever was, until it is none: who comes last has waited for all the others."""
        (self._starting.discard if told else self._starting.add)(key)
        starting = len(self._starting)
        self._crowd = max(self._crowd, starting) if starting >= CROWD else 0

    def _forget(self, key: ObjectKey) -> None:
        self._memos.pop(key, None)
        self._count(key, told=True)
        self.waiting.discard(ReconcileKey(INFERENCE_SERVICE, key))
        self._tools.lookout.forget(key)


def _said(manifest: Manifest, status: Manifest) -> tuple[ObjectRef, Manifest]:
    """Where a status is written, and what it says of which object."""
    return (INFERENCE_SERVICE, key_of(manifest)), {**timeless(status), "uid": manifest["metadata"]["uid"]}


def _stranger_s(view: ReconcileInput) -> float | None:
    """No watch tells when an object that does not carry our label goes."""
    return STRANGER_S if any(not live.managed for live in view.children.values()) else None


def _places(key: ObjectKey, manifest: Manifest) -> list[ObjectRef]:
    """Where a quarrel about this service may be."""
    return [(INFERENCE_SERVICE, key), *_children_places(key, manifest)]


def _children_places(key: ObjectKey, manifest: Manifest) -> list[ObjectRef]:
    """Where the service's children belong, whoever stands there."""
    workers = ObjectKey(key.namespace, workers_service_name(key.name))
    pools = (manifest.get("spec") or {}).get("pools") or ()
    names = [pool["name"] for pool in pools if isinstance(pool, dict) and isinstance(pool.get("name"), str)]
    deployments = [("Deployment", ObjectKey(key.namespace, deployment_name(key.name, name))) for name in names]
    return [("Service", workers), ("PodDisruptionBudget", workers), *deployments]
