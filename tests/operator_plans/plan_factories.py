"""Services and views for the tests of plans."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from tests.operator_plans.apiserver_model import ModelServer

from paceline_core.kube.cluster import ObjectKey
from paceline_core.objects.model_names import LostName, NameClaim
from paceline_operator.plans.inferenceservice import plan_service
from paceline_operator.plans.namespace import plan_namespace
from paceline_operator.plans.types import MANAGER, NamespaceView, ObservedChild, ReconcileInput, ReconcilePlan, Settings

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"
SETTINGS = Settings("paceline-system", "paceline/worker:1", "http://paceline-gateway.paceline-system/v1")
EMULATE = {"accelerator": "h100", "model": "llama-3.1-8b"}
POOL = {"name": "main", "accelerator": "cpu"}
LOST = LostName("chat", "other", NameClaim("InferenceService", "other", "chat"))


def service(name: str = "chat", *, generation: int = 1, uid: str = "u-1", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": uid,
            "generation": generation,
            "creationTimestamp": EARLY,
        },
        "spec": {"model": {"source": "builtin://demo"}, "pools": [POOL], **spec},
    }


class Operator:
    """What the shell does with plans: look, plan, carry out, write the status; one service, one namespace."""

    def __init__(self, server: ModelServer | None = None, settings: Settings = SETTINGS) -> None:
        self.server = server or ModelServer()
        self.settings = settings
        self.now = 0.0
        self.memo: Any = None
        self.remembers = True
        self.statuses = 0

    def restart(self) -> None:
        self.memo = None

    def view(
        self, manifest: Mapping[str, Any], children: Mapping[Any, ObservedChild] | None = None, **more: Any
    ) -> ReconcileInput:
        seen = self.server.seen()
        return ReconcileInput(
            service=deepcopy(dict(manifest)),
            children=children if children is not None else {p: live for p, live in seen.items() if _is_child(p)},
            shared={kind: live for (kind, key), live in seen.items() if not _is_child((kind, key))},
            settings=self.settings,
            now=self.now,
            time=EARLY,
            memo=self.memo if self.remembers else None,
            **more,
        )

    def namespace(self, services: int = 1) -> ReconcilePlan:
        plan = plan_namespace(
            NamespaceView("team", services, self.view(service()).shared, self.settings, {"k1": "AAAA"})
        )
        for action in plan.actions:
            self.server.carry_out(action)
        return plan

    def step(self, manifest: dict[str, Any], **more: Any) -> ReconcilePlan:
        """One reconcile; `manifest` gets the status written."""
        plan = plan_service(self.view(manifest, **more))
        self.memo = plan.memo
        for action in plan.actions:
            self.server.carry_out(action)
        if plan.status is not None:
            self.statuses += 1
            others = [c for c in manifest.get("status", {}).get("conditions", []) if c["type"] == "SLOMet"]
            kept = {k: v for k, v in manifest.get("status", {}).items() if k in ("scaling", "slo", "cost")}
            manifest["status"] = {**kept, **plan.status, "conditions": [*plan.status["conditions"], *others]}
        self.now += 5.0
        return plan

    def converge(self, manifest: dict[str, Any], passes: int = 12) -> None:
        """Until nothing is left to do or to say."""
        for _ in range(passes):
            shared = self.namespace()
            self.server.settle()
            plan = self.step(manifest)
            if not shared.actions and not plan.actions and plan.status is None:
                return
        raise AssertionError(f"does not settle: {plan}")


def _is_child(place: tuple[str, ObjectKey]) -> bool:
    return place[0] in ("Service", "PodDisruptionBudget", "Deployment")


def condition(status: Mapping[str, Any] | None, kind: str) -> dict[str, Any]:
    assert status is not None
    return next(dict(one) for one in status["conditions"] if one["type"] == kind)


def unmanaged(server: ModelServer, kind: str, name: str) -> None:
    """Somebody else's object in a child's place."""
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "team", "labels": {"a": "b"}}}
    pod = {"serviceAccountName": "other", "containers": [], "volumes": []}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod}
    spec = {"selector": {"a": "b"}, **({"template": template} if kind == "Deployment" else {})}
    server.apply({**body, "spec": spec}, "somebody", force=False)


__all__ = ["LOST", "MANAGER", "Operator", "condition", "service", "unmanaged"]
