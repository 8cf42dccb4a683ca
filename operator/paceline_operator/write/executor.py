"""Executes actions: each is one request, and its answer is in the cache before the next plan.

A child's Conflict is never a failure: the live object is read, the cache then shows it (ours after all, unmanaged, or a
younger object), and the next plan decides. What a person must repair is returned as faults and does not prevent the
other actions; what only time can repair (no answer, too many requests) is raised, and the pass ends.

Events count like every other write, but not against our budget: the recorder has one for each object.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from paceline_core.clock import Clock
from paceline_core.errors import ApiError, Conflict, NotFound
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES, Resource
from paceline_core.kube.cluster import Manifest
from paceline_core.kube.events import EventRecorder, UidOf
from paceline_core.kube.leader_election import LeaderElector
from paceline_core.telemetry import Metrics, get_logger
from paceline_operator.controllers.conditions import ConditionFault, fault_of
from paceline_operator.plans.types import MANAGER, REPLICAS_MANAGER, Action, Apply, Delete, HandOver
from paceline_operator.state.child_cache import ChildCache, Requeue
from paceline_operator.state.workqueue import Priority
from paceline_operator.write.throttle import WriteRateLimiter

T = TypeVar("T")
TOO_MANY = 429
RETRY_AFTER_S = 1.0
TERMINATING_S = 30.0
_REMEMBERED = 1024
_log = get_logger(__name__)


class KubeApi(Protocol):
    async def get(self, resource: Resource, key: ObjectKey, subresource: str = "") -> Manifest: ...

    async def list(
        self, resource: Resource, namespace: str = "", *, selector: str = "", fields: str = ""
    ) -> list[Manifest]: ...

    async def apply(
        self, resource: Resource, body: Manifest, manager: str, *, force: bool = True, subresource: str = ""
    ) -> Manifest: ...

    async def apply_new(self, resource: Resource, body: Manifest, manager: str) -> Manifest: ...

    async def delete(self, resource: Resource, key: ObjectKey, uid: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class WriteGate:
    """Every write passes it: may this process write, and is there budget for it."""

    leader_elector: LeaderElector
    budget: WriteRateLimiter
    metrics: Metrics

    async def passed(self, verb: str, kind: str, priority: Priority) -> None:
        """Return when the write may be sent. Raises NotLeading."""
        self.leader_elector.check()
        await self.budget.spend(priority)
        self.leader_elector.check()
        self.metrics.counter("paceline_operator_writes_total", verb, kind).inc()


class PlanExecutor:
    """The only writer of objects; passes `gates` before a write, updates the cache after."""

    def __init__(self, api: KubeApi, cache: ChildCache, gates: WriteGate, clock: Clock) -> None:
        self._api = api
        self._cache = cache
        self._gates = gates
        self._clock = clock
        self._terminating: OrderedDict[str, float] = OrderedDict()

    async def execute(self, actions: Iterable[Action], priority: Priority) -> list[ConditionFault]:
        """Execute them in order; returns the faults. Raises NotLeading, Unreachable, ApiError (too many requests)."""
        faults = []
        for action in actions:
            try:
                await self._act(action, priority)
            except (ApiError, NotFound) as error:
                if isinstance(error, ApiError) and error.status == TOO_MANY:
                    raise
                kind, key = _place(action)
                namespace, text = key.namespace, str(error)
                # this passes by itself; the namespace is left alone for a while (see `terminates`)
                if "is being terminated" in text or f'namespaces "{namespace}" not found' in text:
                    self._terminating[namespace] = self._clock.monotonic()
                    self._terminating.move_to_end(namespace)
                    if len(self._terminating) > _REMEMBERED:
                        self._terminating.popitem(last=False)
                    break
                verb = {Apply: "apply", HandOver: "hand replicas over of", Delete: "delete"}[type(action)]
                faults.append(fault_of(error, f"{verb} {kind} {key}"))
        return faults

    async def status(self, kind: str, manifest: Manifest, status: Manifest, priority: Priority) -> Manifest | None:
        """Apply the operator's share of a status to this exact object; returns the answer, or None if it is gone.

        Raises Conflict if another object has its name, or if the server gave up among too many writers.
        """
        resource, metadata = RESOURCES[kind], manifest["metadata"]
        identity = {name: metadata[name] for name in ("name", "namespace", "uid") if name in metadata}
        body = {"apiVersion": resource.api_version, "kind": kind, "metadata": identity, "status": status}
        try:
            return await self._sent(
                "status", kind, priority, lambda: self._api.apply(resource, body, MANAGER, subresource="status")
            )
        except NotFound:
            return None

    async def write(self, body: Manifest, priority: Priority) -> Manifest:
        """Apply with force. Raises Conflict if a uid or version in it no longer matches."""
        kind = body["kind"]
        return await self._sent("apply", kind, priority, lambda: self._api.apply(RESOURCES[kind], body, MANAGER))

    async def create(self, body: Manifest, priority: Priority) -> Manifest:
        """Apply an object that must not exist yet. Raises Conflict."""
        kind = body["kind"]
        return await self._sent("apply", kind, priority, lambda: self._api.apply_new(RESOURCES[kind], body, MANAGER))

    def terminates(self, namespace: str) -> bool:
        """Whether the API server has recently reported that this namespace is being deleted."""
        since = self._terminating.get(namespace)
        return since is not None and self._clock.monotonic() - since < TERMINATING_S

    async def observe(self, kind: str, key: ObjectKey) -> Requeue | None:
        """Read an object into the cache; returns the keys to requeue, except the caller's own."""
        try:
            return self._cache.put(await self._api.get(RESOURCES[kind], key), answer=True)
        except NotFound:
            return self._cache.absent(kind, key)

    async def _act(self, action: Action, priority: Priority) -> None:
        try:
            match action:
                case Apply():
                    send = self.write if action.force else self.create
                    self._cache.put(await send(action.manifest(), priority), answer=True)
                case HandOver():
                    body = action.manifest()
                    answer = await self._sent(
                        "apply",
                        "Deployment",
                        priority,
                        lambda: self._api.apply(RESOURCES["Deployment"], body, REPLICAS_MANAGER, force=False),
                    )
                    self._cache.put(answer, answer=True)
                case Delete(kind=kind, key=key, uid=uid):
                    await self._sent("delete", kind, priority, lambda: self._api.delete(RESOURCES[kind], key, uid))
                    self._cache.deleted(kind, key, uid)
        except Conflict as error:
            kind, key = _place(action)
            _log.info("a conflict is looked into", extra={"kind": kind, "object": str(key), "reason": str(error)})
            await self.observe(kind, key)

    async def _sent(self, verb: str, kind: str, priority: Priority, request: Callable[[], Awaitable[T]]) -> T:
        await self._gates.passed(verb, kind, priority)
        try:
            return await request()
        except ApiError as error:
            if error.status == TOO_MANY:
                self._gates.budget.stop(error.retry_after or RETRY_AFTER_S)
            raise


def _place(action: Action) -> tuple[str, ObjectKey]:
    match action:
        case Apply(child=child):
            return child.place
        case HandOver(key=key):
            return "Deployment", key
        case Delete(kind=kind, key=key):
            return kind, key


class _CountingApi:
    def __init__(self, api: KubeClient, metrics: Metrics) -> None:
        self._api = api
        self._metrics = metrics
        self.sparse = api.sparse

    async def get(self, resource: Resource, key: ObjectKey) -> Manifest:
        return await self._api.get(resource, key)

    async def create(self, resource: Resource, namespace: str, body: Manifest) -> Manifest:
        self._metrics.counter("paceline_operator_writes_total", "create", resource.kind).inc()
        return await self._api.create(resource, namespace, body)

    async def merge(self, resource: Resource, key: ObjectKey, patch: Manifest) -> Manifest:
        self._metrics.counter("paceline_operator_writes_total", "merge", resource.kind).inc()
        return await self._api.merge(resource, key, patch)


def event_recorder(api: KubeClient, clock: Clock, uid_of: UidOf, metrics: Metrics) -> EventRecorder:
    return EventRecorder(cast("KubeClient", _CountingApi(api, metrics)), "paceline-operator", clock, uid_of)
