"""One pass over one service: observe, plan, execute, report; repeated while there is more to do.

A plan sees the answers to the previous plan's requests, so a first creation takes two rounds in one pass: children,
then the hand-over of replicas. `ROUNDS` bounds a pass; a controller that reverts our writes causes pauses (see
`ConflictBackoff`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from paceline_core.clock import Clock, rfc3339
from paceline_core.errors import Forbidden
from paceline_core.kube import Event, ObjectKey
from paceline_core.kube.client.client import key_of
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_SERVICE
from paceline_core.objects.naming import deployment_name, workers_service_name
from paceline_core.telemetry import get_logger
from paceline_operator.controllers.conditions import ConditionFault, degraded, fault_of, same_conditions, timeless
from paceline_operator.controllers.pod_diagnostics import PodDiagnostics
from paceline_operator.plans.events import CREATED, OF_ACTIONS, REPAIRED
from paceline_operator.plans.inferenceservice import plan_service
from paceline_operator.plans.namespace import missing
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
from paceline_operator.write.executor import TERMINATING_S, PlanExecutor
from paceline_operator.write.throttle import ConflictBackoff

ROUNDS = 4
BULK_STARTS = 12
"""If this many services start at once, statuses and events are written later and fewer."""
UNMANAGED_POLL_S = 15.0
_log = get_logger(__name__)


class ReconcileError(Exception):
    """A pass found a fault that a person must repair; the service's status reports it."""

    def __init__(self, fault: ConditionFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class ReconcilerDeps:
    state: ClusterState
    executor: PlanExecutor
    diagnostics: PodDiagnostics
    settings: Settings
    clock: Clock
    record: Callable[[Event], None]
    wake: Callable[[ReconcileKey, Priority], None]


class ServiceReconciler:
    """Passes over services. Keeps each service's memo, and the faults of each namespace's shared objects."""

    def __init__(self, deps: ReconcilerDeps) -> None:
        self._deps = deps
        self._memos: dict[ObjectKey, tuple[str, Memo]] = {}
        self._shared: dict[str, PodProblem] = {}
        self._starting: set[ObjectKey] = set()
        self._bulk_starts = 0
        self.waiting: set[ReconcileKey] = set()
        self.conflicts = ConflictBackoff(deps.clock)

    def report_shared_fault(self, namespace: str, fault: ConditionFault | None) -> None:
        """Set or clear the fault of a namespace's shared objects; each of its services reports it."""
        problem = PodProblem(fault.reason, fault.message) if fault else None
        if self._shared.get(namespace) == problem:
            return
        self._shared.pop(namespace, None)
        if problem is not None:
            self._shared[namespace] = problem
        for key in self._deps.state.objects.keys(INFERENCE_SERVICE):
            if key.namespace == namespace:
                self._deps.wake(ReconcileKey(INFERENCE_SERVICE, key), Priority.STATUS)

    async def observe_unmanaged(self, live: ObservedChild) -> None:
        """Read an unmanaged object, which no watch covers. Raises ReconcileError if it may not be read."""
        try:
            await self._deps.executor.observe(live.kind, live.key)
        except Forbidden as error:
            raise ReconcileError(fault_of(error, f"read {live.kind} {live.key}")) from error

    async def reconcile(self, key: ObjectKey, priority: Priority) -> float | None:
        """One pass; returns when to look again. Raises ReconcileError, NotLeading or PacelineError."""
        for _ in range(ROUNDS):
            manifest = self._deps.state.objects.get(ReconcileKey(INFERENCE_SERVICE, key))
            if manifest is None:
                self._memos.pop(key, None)
                self._count_bulk_start(key, reported=True)
                self.waiting.discard(ReconcileKey(INFERENCE_SERVICE, key))
                self._deps.diagnostics.forget(key)
                return None
            if self._deps.executor.terminates(key.namespace):
                return TERMINATING_S
            if forbidden := self._deps.state.children_forbidden:
                message = f"{forbidden} (the operator's role lacks this right; nothing is changed)"
                raise ReconcileError(ConditionFault("Forbidden", message, forbidden))
            view = await self._view(key, manifest)
            plan = await self._round(view, priority)
            if not plan.actions:
                quiet_s = self.conflicts.quiet_s(_places(key, manifest))
                # no watch reports the deletion of an object without our label
                poll_s = UNMANAGED_POLL_S if any(not live.managed for live in view.children.values()) else None
                waits = (plan.again_s, self._deps.diagnostics.again_s(key), poll_s, quiet_s)
                return min((wait for wait in waits if wait is not None), default=None)
        raise ReconcileError(
            ConditionFault(
                "Failed", f"something undoes what the operator writes for {key}; see the children's managers"
            )
        )

    async def _round(self, view: ReconcileInput, priority: Priority) -> ReconcilePlan:
        manifest = view.service
        key = key_of(manifest)
        try:
            planned = plan_service(view)
        except Exception as error:
            raise ReconcileError(fault_of(error, "plan this service")) from error
        plan = self._without_conflicting(view, planned)
        faults = await self._deps.executor.execute(plan.actions, priority)
        if faults:
            await self.write_fault(manifest, plan.status, faults[0], priority)
            raise ReconcileError(faults[0])
        if self._deps.executor.terminates(key.namespace):
            return plan
        self.conflicts.acted(plan.actions, view.children)
        for event in plan.events:
            if event.reason in OF_ACTIONS:
                self._deps.record(event)
        if plan.status is not None:
            await self._write(manifest, plan.status, priority)
            self.conflicts.wrote(*_status_content(manifest, plan.status))
        for event in plan.events:
            if event.reason not in OF_ACTIONS:
                self._deps.record(event)
        self._count_bulk_start(
            key, reported=plan.status is not None or "observedGeneration" in (manifest.get("status") or {})
        )
        if plan.memo is not None:
            self._memos[key] = (manifest["metadata"]["uid"], plan.memo)
        return plan

    def _without_conflicting(self, view: ReconcileInput, plan: ReconcilePlan) -> ReconcilePlan:
        actions, wait_s = self.conflicts.due(plan.actions)
        status_s = (
            self.conflicts.wait_s(*_status_content(view.service, plan.status)) if plan.status is not None else 0.0
        )
        waits = [wait for wait in (plan.again_s, wait_s, status_s or None) if wait is not None]
        if wait_s is not None:
            plan = replace(plan, events=tuple(one for one in plan.events if one.reason not in (CREATED, REPAIRED)))
        if status_s:
            plan = replace(plan, status=None, events=(), memo=view.memo)
        return replace(plan, actions=tuple(actions), again_s=min(waits, default=None))

    async def write_fault(
        self, manifest: Manifest, planned: Manifest | None, fault: ConditionFault, priority: Priority
    ) -> None:
        live = manifest.get("status") or {}
        generation = manifest["metadata"].get("generation", 0)
        status = degraded(live, planned, fault, rfc3339(self._deps.clock.utc()), generation)
        if not same_conditions(live, status):
            await self._write(manifest, status, priority)
            self.conflicts.wrote(*_status_content(manifest, status))

    async def _write(self, manifest: Manifest, status: Manifest, priority: Priority) -> None:
        answer = await self._deps.executor.status(INFERENCE_SERVICE, manifest, status, priority)
        if answer is not None:
            self._deps.state.on_answer(answer)

    async def _view(self, key: ObjectKey, manifest: Manifest) -> ReconcileInput:
        deps, now, time = self._deps, self._deps.clock.monotonic(), rfc3339(self._deps.clock.utc())
        children = self._children(key, manifest)
        for live in children.values():
            if not live.managed:
                await self.observe_unmanaged(live)
                children = self._children(key, manifest)
        shared = deps.state.children.shared(key.namespace)
        if missing(shared, deps.settings):
            self.waiting.add(ReconcileKey(INFERENCE_SERVICE, key))
        uid, memo = self._memos.get(key, ("", None))
        problems: tuple[PodProblem, ...] = ()
        if all(live.replicas.settled for live in children.values() if live.replicas is not None):
            deps.diagnostics.forget(key)
        else:
            problems = await deps.diagnostics.problems(key, bulk=self._bulk_starts > 0)
        shared_problem = self._shared.get(key.namespace)
        return ReconcileInput(
            service=manifest,
            children=children,
            shared=shared,
            settings=deps.settings,
            now=now,
            time=time,
            profiles=None
            if ACCELERATOR_PROFILE in deps.state.unreadable
            else CacheView(deps.state.objects, ACCELERATOR_PROFILE),
            problems=(
                *problems,
                *((shared_problem,) if shared_problem else ()),
                *self.conflicts.problems(_places(key, manifest)),
            ),
            loss=deps.state.names.loss((INFERENCE_SERVICE, key)),
            bulk_starts=self._bulk_starts,
            memo=memo if uid == manifest["metadata"]["uid"] else None,
        )

    def _children(self, key: ObjectKey, manifest: Manifest) -> dict[ObjectRef, ObservedChild]:
        cache = self._deps.state.children
        children = cache.group(ReconcileKey(INFERENCE_SERVICE, key))
        for place in _places(key, manifest)[1:]:
            if place not in children and (live := cache.get(*place)) is not None:
                children[place] = live
        return children

    def _count_bulk_start(self, key: ObjectKey, *, reported: bool) -> None:
        """A bulk start keeps its largest size until it ends: the last service has waited for all the others."""
        (self._starting.discard if reported else self._starting.add)(key)
        starting = len(self._starting)
        self._bulk_starts = max(self._bulk_starts, starting) if starting >= BULK_STARTS else 0


def _status_content(manifest: Manifest, status: Manifest) -> tuple[ObjectRef, Manifest]:
    return (INFERENCE_SERVICE, key_of(manifest)), {**timeless(status), "uid": manifest["metadata"]["uid"]}


def _places(key: ObjectKey, manifest: Manifest) -> list[ObjectRef]:
    """References to the service first, then to its children."""
    workers = ObjectKey(key.namespace, workers_service_name(key.name))
    pools = (manifest.get("spec") or {}).get("pools") or ()
    names = [pool["name"] for pool in pools if isinstance(pool, dict) and isinstance(pool.get("name"), str)]
    deployments = [("Deployment", ObjectKey(key.namespace, deployment_name(key.name, name))) for name in names]
    return [(INFERENCE_SERVICE, key), ("Service", workers), ("PodDisruptionBudget", workers), *deployments]
