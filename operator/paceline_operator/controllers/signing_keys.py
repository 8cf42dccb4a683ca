"""Rotation of signing keys: reads the registry, takes the plan's step, writes private halves only into Secrets.

It writes Secrets but never reads them: after a restart the plan's rules replace what this process no longer holds. A
pair is made when it may be needed and forgotten once delivered. Private halves are in no log, no status, no error.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paceline_core.auth import JwkSet, new_signing_key, public_half
from paceline_core.clock import Clock
from paceline_core.errors import Conflict, NotFound
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.telemetry import get_logger
from paceline_operator.plans.key_rotation import REGISTRY, SIGNERS, plan_keys
from paceline_operator.plans.labels import MANAGED_BY
from paceline_operator.plans.types import KeysPlan, KeysView, SigningKey
from paceline_operator.state.workqueue import Priority
from paceline_operator.write.executor import KubeApi, PlanExecutor

STEPS = 4
CONFLICT_S = 1.0
DAY_S = 86400.0
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RotationConfig:
    """`changed` is called when the trusted keys change."""

    namespace: str
    days: float
    changed: Callable[[], None]


class KeyRotator:
    """The rotation of one installation. `trust`: the public keys that every namespace must know, None until known."""

    def __init__(self, api: KubeApi, executor: PlanExecutor, rotation: RotationConfig, clock: Clock) -> None:
        self._api = api
        self._executor = executor
        self._namespace = rotation.namespace
        self._every_s = rotation.days * DAY_S
        self._clock = clock
        self._changed = rotation.changed
        self._pairs = {signer: new_signing_key() for signer in SIGNERS}
        self._delivered: set[str] = set()
        self._memo: Mapping[str, float] = {}
        self.trust: JwkSet | None = None

    async def reconcile(self, priority: Priority) -> float | None:
        """Take the steps that are due; returns when the next one is."""
        again_s: float | None = None
        for _ in range(STEPS):
            plan = await self._plan()
            self._memo, again_s = plan.memo, plan.again_s
            try:
                if not await self._execute(plan, priority):
                    break
            except Conflict as error:
                _log.info("the registry of signing keys changed meanwhile", extra={"reason": str(error)})
                return CONFLICT_S
        return again_s

    async def _plan(self) -> KeysPlan:
        held = {signer: SigningKey(*public_half(private)) for signer, private in self._pairs.items()}
        try:
            registry = await self._api.get(RESOURCES["ConfigMap"], ObjectKey(self._namespace, REGISTRY))
        except NotFound:
            registry = None
        view = KeysView(
            registry=registry,
            held=held,
            delivered=frozenset(self._delivered),
            namespace=self._namespace,
            now=self._clock.monotonic(),
            wall=self._clock.utc().timestamp(),
            rotate_every_s=self._every_s,
            memo=self._memo,
        )
        return plan_keys(view)

    async def _execute(self, plan: KeysPlan, priority: Priority) -> bool:
        if plan.registry is not None:
            write = self._executor.write if plan.registry.force else self._executor.create
            await write(plan.registry.manifest(), priority)
        for delivery in plan.deliver:
            private = self._pairs[delivery.signer]
            name = f"paceline-signing-key-{delivery.signer}"
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": self._namespace, "labels": dict((MANAGED_BY,))},
                "type": "Opaque",
                "data": {"signing.key": base64.b64encode(private).decode()},
            }
            await self._executor.write(secret, priority)
            self._delivered.add(delivery.kid)
            self._pairs[delivery.signer] = new_signing_key()
            _log.info("a signing key was delivered", extra={"signer": delivery.signer, "kid": delivery.kid})
        if plan.trust != self.trust:
            self.trust = dict(plan.trust)
            self._changed()
        return plan.registry is not None or bool(plan.deliver)
