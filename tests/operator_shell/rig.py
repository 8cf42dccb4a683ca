"""The operator's parts around a fake API server, driven by hand on a clock that only the test moves."""

from typing import Any

from tests.operator_shell.fake_api import FakeApi

from paceline_core.auth import jwk, jwk_set
from paceline_core.clock import ManualClock
from paceline_core.kube import Event, Listed, ObjectKey
from paceline_core.kube.cluster import Manifest
from paceline_core.kube.leader_election import LeaderElector
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_core.telemetry import Metrics
from paceline_operator.controllers.inferenceservice import ReconcilerDeps
from paceline_operator.controllers.pod_diagnostics import PodDiagnostics
from paceline_operator.controllers.reconciler import KEYS, Reconciler, Result
from paceline_operator.controllers.signing_keys import KeyRotator, RotationConfig
from paceline_operator.plans.types import Settings
from paceline_operator.state.child_cache import CHILD_KINDS, NAMESPACE, trimmed
from paceline_operator.state.cluster_state import ClusterState
from paceline_operator.state.object_cache import KINDS, trimmed_object
from paceline_operator.state.workqueue import Priority, ReconcileKey, WorkQueue
from paceline_operator.write.executor import PlanExecutor, WriteGate
from paceline_operator.write.throttle import WriteRateLimiter

HOME = "paceline-system"
SETTINGS = Settings(namespace=HOME, image="example/worker:1", endpoint="http://gateway.example")


class FreeLeases:
    """Everybody leads, until `held` says no."""

    def __init__(self) -> None:
        self.held = True

    async def acquire(self, name: str, holder: str, ttl_s: float) -> bool:
        return self.held

    async def holder(self, name: str) -> str:
        return ""

    async def release(self, name: str, holder: str) -> None:
        self.held = True


class Rig:
    """One operator process; two of them around one FakeApi are two operators, or one before and after a crash."""

    def __init__(
        self, api: FakeApi, clock: ManualClock | None = None, *, rate: float = 1e6, settings: Settings = SETTINGS
    ) -> None:
        self.api = api
        self.clock = clock or ManualClock()
        self.metrics = Metrics("operator")
        self.queue = WorkQueue(self.clock)
        self.state = ClusterState(self.queue, ReconcileKey(KEYS, ObjectKey(HOME, KEYS)))
        self.leases = FreeLeases()
        self.leader_elector = LeaderElector(self.leases, "operator", "rig", 15.0, self.clock)
        self.budget = WriteRateLimiter(self.clock, rate, 1e6)
        self.executor = PlanExecutor(
            api, self.state.children, WriteGate(self.leader_elector, self.budget, self.metrics), self.clock
        )
        self.told: list[Event] = []
        keys = KeyRotator(api, self.executor, RotationConfig(HOME, 30.0, lambda: None), self.clock)
        keys.trust = jwk_set([jwk("kid", "public", "gateway")])
        diagnostics = PodDiagnostics(api, self.clock)
        deps = ReconcilerDeps(
            self.state, self.executor, diagnostics, settings, self.clock, self.told.append, self.queue.put
        )
        self.reconciler = Reconciler(deps, keys, self.metrics)
        self._read = 0

    async def start(self) -> "Rig":
        """Lead, and list everything, as after a start."""
        await self.lead()
        for kind in KINDS:
            found = [trimmed_object(found) for (place, _), found in self.api.objects.items() if place == kind]
            self.state.on_event(kind, Listed(tuple(found)))
        for kind in CHILD_KINDS:
            await self.relist(kind)
        self._read = len(self.api.events)
        for item in self.state.everything():
            self.queue.put(item, Priority.CREATE)
        return self

    async def lead(self) -> None:
        """Take or renew the lease once."""
        await self.leader_elector.renew()

    async def relist(self, kind: str) -> None:
        """What a watch's list does."""
        found = [trimmed(found) for (place, _), found in self.api.objects.items() if place == kind and _managed(found)]
        for key in self.state.on_event(kind, Listed(tuple(found))):
            self.state.wake(await self.executor.observe(kind, key))

    def hear(self, limit: int | None = None) -> None:
        """Deliver the watch events of what happened since; `limit` of them."""
        until = len(self.api.events) if limit is None else self._read + limit
        for event in self.api.events[self._read : until]:
            manifest: Manifest = event.item  # type: ignore[union-attr]
            if manifest["kind"] in KINDS or (manifest["kind"] in CHILD_KINDS and _managed(manifest)):
                self.state.on_event(manifest["kind"], event)
        self._read = until

    def skip(self) -> None:
        """Lose the watch events of what happened since."""
        self._read = len(self.api.events)

    async def step(self) -> tuple[ReconcileKey, Result] | None:
        """One pass, if a key waits."""
        item = self.queue.backlog.take(self.clock.monotonic())
        if item is None:
            return None
        await self.lead()
        result = await self.reconciler.run(item, self.queue.backlog.priority(item))
        if result.failed:
            self.queue.failed(item, result.again_s, result.refused)
        else:
            self.queue.done(item, result.again_s)
        return item, result

    async def settle(self, within_s: float = 10.0, passes: int = 500) -> list[tuple[ReconcileKey, Result]]:
        """Pass after pass, hearing the watches, until nothing waits for the next `within_s`."""
        done: list[tuple[ReconcileKey, Result]] = []
        end = self.clock.monotonic() + within_s
        while len(done) < passes:
            self.hear()
            made = await self.step()
            if made is not None:
                done.append(made)
                continue
            due = self.queue.backlog.due()
            if due is None or due > end:
                return done
            self.clock.advance(max(due - self.clock.monotonic(), 0.0))
        raise AssertionError(f"still busy after {passes} passes: {self.api.writes[-10:]}")


def _managed(manifest: Manifest) -> bool:
    labels = manifest["metadata"].get("labels") or {}
    return bool(labels.get("app.kubernetes.io/managed-by") == "paceline")


def service(name: str = "chat", namespace: str = "default", **spec: Any) -> Manifest:
    """An InferenceService as the API server keeps it."""
    base = {
        "model": {"source": "builtin://demo", "servedName": name},
        "pools": [{"name": "main", "accelerator": "cpu", "gpusPerReplica": 0, "replicas": {"min": 2, "max": 4}}],
    }
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": INFERENCE_SERVICE,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**base, **spec},
    }


def pool(name: str, least: int = 2) -> dict[str, Any]:
    """One pool of a spec."""
    return {"name": name, "accelerator": "cpu", "gpusPerReplica": 0, "replicas": {"min": least, "max": 4}}


def shared_item(namespace: str = "default") -> ReconcileKey:
    """The key of what a namespace's services share."""
    return ReconcileKey(NAMESPACE, ObjectKey("", namespace))
