"""The bare client: it sends the same services and the same children in a loop, and decides nothing.

The bodies are those of the operator's own plan for one service, made once; names, namespaces and uids are then put into
their bytes. Each child goes by one forced server-side apply with the service as its owner.
"""

import json
from collections.abc import Iterable

from benchmarks.reconcile.population import service

from paceline_core.clock import SystemClock, rfc3339
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Manifest
from paceline_operator.plans.inferenceservice import plan_service
from paceline_operator.plans.namespace import plan_namespace
from paceline_operator.plans.observe import observe_child
from paceline_operator.plans.types import Apply, NamespaceView, ReconcileInput, Settings

NAME, NAMESPACE, UID = "bare-name", "bare-namespace", "00000000-0000-0000-0000-00000000f100"
SETTINGS = Settings("paceline-system", "localhost/paceline:bench", "http://paceline-gateway.paceline-system.svc/v1")


class BareClient:
    """Makes services with their children."""

    def __init__(self, api: KubeClient) -> None:
        self._api = api
        self._shared = [apply.manifest() for apply in _shared()]
        self._children = [json.dumps(apply.manifest()) for apply in _children(self._shared)]

    async def prepare(self, namespaces: Iterable[str]) -> None:
        """What the services of a namespace share."""
        for namespace in namespaces:
            for body in self._shared:
                await self._apply(json.dumps(body).replace(NAMESPACE, namespace))

    async def make(self, manifest: Manifest) -> None:
        """One service, then its children."""
        metadata = manifest["metadata"]
        made = await self._api.create(RESOURCES["InferenceService"], metadata["namespace"], manifest)
        words = {NAMESPACE: metadata["namespace"], NAME: metadata["name"], UID: made["metadata"]["uid"]}
        for body in self._children:
            for word, name in words.items():
                body = body.replace(word, name)  # noqa: PLW2901 - one text, three words
            await self._apply(body)

    async def _apply(self, body: str) -> None:
        manifest = json.loads(body)
        await self._api.apply(RESOURCES[manifest["kind"]], manifest, "bare")


def _shared() -> list[Apply]:
    plan = plan_namespace(NamespaceView(NAMESPACE, 1, {}, SETTINGS, {"key": "cHVibGlj"}))
    return [action for action in plan.actions if isinstance(action, Apply)]


def _children(shared: list[Manifest]) -> list[Apply]:
    clock = SystemClock()
    manifest = service(NAME, NAMESPACE)
    manifest["metadata"] |= {"uid": UID, "generation": 1, "creationTimestamp": rfc3339(clock.utc())}
    stand = {body["kind"]: observe_child({**body, "metadata": {**body["metadata"], "uid": "u"}}) for body in shared}
    view = ReconcileInput(manifest, {}, stand, SETTINGS, clock.monotonic(), rfc3339(clock.utc()))
    return [action for action in plan_service(view).actions if isinstance(action, Apply)]
