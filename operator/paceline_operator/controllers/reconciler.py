"""One pass over one key: the controller of its kind, and what a failed pass means for the key.

All outcomes: Done: the plan says when to look again. Not leading: the key waits for the next leader. The server did not
answer, or requested a pause: the key is retried after that. A fault or any exception concerns only that key: its status
reports it if it has one, a change is logged, and the key is retried after a pause.
"""

from dataclasses import dataclass

from paceline_core.clock import rfc3339
from paceline_core.errors import ApiError, PacelineError
from paceline_core.kube import ObjectKey
from paceline_core.kube.cluster import Manifest
from paceline_core.kube.leader_election import NotLeading
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_ROUTE, INFERENCE_SERVICE, TENANT
from paceline_core.telemetry import Metrics, get_logger
from paceline_operator.controllers.conditions import ConditionFault, fault_of, missing_right
from paceline_operator.controllers.inferenceservice import ROUNDS, ReconcileError, ReconcilerDeps, ServiceReconciler
from paceline_operator.controllers.signing_keys import KeyRotator
from paceline_operator.plans.namespace import plan_namespace
from paceline_operator.plans.other_kinds import plan_profile, plan_route, plan_tenant
from paceline_operator.plans.types import NamespaceView, ObservedChild
from paceline_operator.state.child_cache import NAMESPACE, SHARED
from paceline_operator.state.workqueue import Priority, ReconcileKey
from paceline_operator.write.executor import TERMINATING_S
from paceline_operator.write.throttle import QUIET_PERIOD_S

KEYS = "SigningKeys"
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """`failed`: the key is retried after a pause of at least `again_s`; else it is looked at again then, if set.

    `refused` is the missing right that caused the failure, see `missing_right`.
    """

    again_s: float | None = None
    failed: bool = False
    reason: str = ""
    refused: str = ""


class Reconciler:
    def __init__(self, deps: ReconcilerDeps, keys: KeyRotator, metrics: Metrics) -> None:
        self._deps = deps
        self._keys = keys
        self._metrics = metrics
        self._services = ServiceReconciler(deps)
        self._logged: dict[ReconcileKey, tuple[str, float]] = {}

    async def run(self, item: ReconcileKey, priority: Priority) -> Result:
        """One pass; raises only when the process ends."""
        began = self._deps.clock.monotonic()
        result = await self._attempt(item, priority)
        self._metrics.histogram("paceline_operator_reconcile_seconds", item.kind).observe(
            self._deps.clock.monotonic() - began
        )
        if result.failed and result.reason:
            self._metrics.counter("paceline_operator_reconcile_errors_total", item.kind, result.reason).inc()
        if not result.failed and began - self._logged.get(item, ("", began))[1] >= QUIET_PERIOD_S:
            del self._logged[item]
        return result

    async def _attempt(self, item: ReconcileKey, priority: Priority) -> Result:
        try:
            return Result(await self._pass(item, priority))
        except NotLeading:
            return Result(failed=True)
        except ReconcileError as error:
            self._log(item, error)
            await self._report_fault(item, error.fault, priority)
            return Result(failed=True, reason=error.fault.reason, refused=error.fault.missing)
        except PacelineError as error:
            self._log(item, error)
            after_s = error.retry_after if isinstance(error, ApiError) else None
            return Result(after_s, failed=True, reason=type(error).__name__, refused=missing_right(error))
        except Exception as error:  # noqa: BLE001 - one object's failure must not stop the others
            self._log(item, error)
            await self._report_fault(item, fault_of(error, f"reconcile {item.kind} {item.key}"), priority)
            return Result(failed=True, reason="Failed")

    async def _pass(self, item: ReconcileKey, priority: Priority) -> float | None:
        match item.kind:
            case kind if kind == INFERENCE_SERVICE:
                return await self._services.reconcile(item.key, priority)
            case kind if kind == NAMESPACE:
                return await self._namespace(item.key.name, priority)
            case kind if kind == KEYS:
                return await self._keys.reconcile(priority)
        manifest = self._deps.state.objects.get(item)
        if manifest is None:
            return None
        status = self._status(item, manifest)
        if status is not None:
            answer = await self._deps.executor.status(item.kind, manifest, status, priority)
            if answer is not None:
                self._deps.state.on_answer(answer)
        return None

    async def _namespace(self, namespace: str, priority: Priority) -> float | None:
        deps = self._deps
        for _ in range(ROUNDS):
            if deps.executor.terminates(namespace):
                return TERMINATING_S
            view = NamespaceView(
                namespace=namespace,
                services=deps.state.objects.count(INFERENCE_SERVICE, namespace),
                shared=await self._shared(namespace),
                settings=deps.settings,
                trust=self._keys.trust,
            )
            plan = plan_namespace(view)
            conflicts = self._services.conflicts
            actions, wait_s = conflicts.due(plan.actions)
            if not actions:
                places = [(kind, ObjectKey(namespace, name)) for kind, name in SHARED]
                contested = next((ConditionFault(one.reason, one.message) for one in conflicts.problems(places)), None)
                self._services.report_shared_fault(namespace, contested)
                waits = (plan.again_s, wait_s, conflicts.quiet_s(places))
                return min((wait for wait in waits if wait is not None), default=None)
            faults = await deps.executor.execute(actions, priority)
            if faults:
                raise ReconcileError(faults[0])
            if deps.executor.terminates(namespace):
                return TERMINATING_S
            conflicts.acted(actions, {live.place: live for live in view.shared.values()})
            # Deployments wait for their namespace's shared objects; only those looked at already do so
            for item in [item for item in self._services.waiting if item.key.namespace == namespace]:
                self._services.waiting.discard(item)
                deps.wake(item, Priority.STATUS)
        raise ReconcileError(
            ConditionFault("Failed", f"something undoes what the operator shares among the services of {namespace}")
        )

    async def _shared(self, namespace: str) -> dict[str, ObservedChild]:
        cache = self._deps.state.children
        for live in cache.shared(namespace).values():
            if not live.managed:
                await self._services.observe_unmanaged(live)  # no watch reports its deletion
        return cache.shared(namespace)

    def _status(self, item: ReconcileKey, manifest: Manifest) -> Manifest | None:
        deps = self._deps
        time = rfc3339(deps.clock.utc())
        services = frozenset(map(str, deps.state.objects.keys(INFERENCE_SERVICE)))
        match item.kind:
            case kind if kind == TENANT:
                return plan_tenant(manifest, services, deps.settings.namespace, time)
            case kind if kind == INFERENCE_ROUTE:
                loss = deps.state.names.loss((INFERENCE_ROUTE, item.key))
                return plan_route(manifest, services, loss, deps.settings.route_hosts, time)
            case kind if kind == ACCELERATOR_PROFILE:
                return plan_profile(manifest, time)
        raise ValueError(f"no plan for the kind {item.kind}")

    async def _report_fault(self, item: ReconcileKey, fault: ConditionFault, priority: Priority) -> None:
        """Report a service's and its namespace's faults in its status; writes only changes."""
        if item.kind == NAMESPACE:
            self._services.report_shared_fault(item.key.name, fault)
        manifest = self._deps.state.objects.get(item) if item.kind == INFERENCE_SERVICE else None
        if manifest is None:
            return
        try:
            await self._services.write_fault(manifest, None, fault, priority)
        except (PacelineError, NotLeading) as error:
            _log.info("a fault could not be written", extra={"service": str(item.key), "reason": str(error)})

    def _log(self, item: ReconcileKey, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        known, _ = self._logged.get(item, ("", 0.0))
        self._logged[item] = (text, self._deps.clock.monotonic())
        if known == text:
            return
        trace = None if isinstance(error, PacelineError) else (error.__cause__ or error)
        _log.warning("a pass failed", extra={"object": f"{item.kind} {item.key}", "reason": text}, exc_info=trace)
