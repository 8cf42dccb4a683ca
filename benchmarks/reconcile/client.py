"""The client inside the cluster's network: makes services (or, as the bare client, their children too) and watches.

`python -m benchmarks.reconcile.client KUBECONFIG PHASE COUNT` prints one JSON object. It runs as a process of its own,
so that what it costs is counted apart. The bare client sends the very bodies that the operator's plans give, sixteen at
a time, and nothing else: no hand-over, no status, no event.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import uvloop
from benchmarks.reconcile.bare_client import BareClient
from benchmarks.reconcile.population import LABEL, REPLICAS, namespaces, services

from paceline_core.clock import SystemClock
from paceline_core.errors import Conflict
from paceline_core.kube import Listed, ObjectKey, Upserted
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.credentials import Access
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.client.watch import WatchOptions, watch_all
from paceline_core.kube.cluster import Manifest, WatchEvent

AT_ONCE = 16
LIMIT_S = 600.0
STORM_PER_S = 150.0
EDITS, EDITS_PER_S = 200, 5.0
DEPLOYMENT, SERVICE = RESOURCES["Deployment"], RESOURCES["InferenceService"]
_clock = SystemClock()

Report = dict[str, Any]


async def bare(api: KubeClient, count: int) -> Report:
    """Make services and their children with this client alone; until every replica is ready."""
    client = BareClient(api)
    await client.prepare(namespaces())
    return await _until_ready(api, count, client.make)


async def create(api: KubeClient, count: int) -> Report:
    """Make the services and leave the rest to the operator; until every replica is ready."""
    return await _until_ready(api, count, lambda manifest: _create(api, manifest))


async def create_half(api: KubeClient, count: int) -> Report:
    """Make the services; until half of the Deployments exist."""
    watching = asyncio.create_task(
        _seen(watch_all(api, WatchOptions(DEPLOYMENT, selector=LABEL)), lambda _: True, count // 2)
    )
    await _all(lambda manifest: _create(api, manifest), services(count))
    await watching
    return {}


async def finish(api: KubeClient, count: int) -> Report:
    """Make nothing; until every replica is ready."""
    began = _clock.monotonic()
    await _seen(watch_all(api, WatchOptions(DEPLOYMENT, selector=LABEL)), ready, count)
    return {"ready_s": _clock.monotonic() - began}


async def storm(api: KubeClient, count: int) -> Report:
    """With the controller-manager stopped: each Deployment loses a ready replica; until every status says so."""
    items = (await api.list(DEPLOYMENT, selector=LABEL))[:count]
    watching = asyncio.create_task(_seen(watch_all(api, WatchOptions(SERVICE)), lose, len(items)))
    await asyncio.sleep(2)
    began = _clock.monotonic()
    for number, item in enumerate(items):
        await _at(began + number / STORM_PER_S)
        await _lose_one(api, item)
    injected = _clock.monotonic()
    await watching
    return {"injected_s": injected - began, "after_last_s": _clock.monotonic() - injected}


async def edits(api: KubeClient, count: int) -> Report:
    """Five edits a second; for each the time until the Deployment's spec has changed."""
    chosen = list(services(count))[: min(EDITS, count)]
    changes = Changes(api)
    watching = asyncio.create_task(changes.watch())
    await changes.listed.wait()
    began, sent = _clock.monotonic(), {}
    for number, manifest in enumerate(chosen):
        await _at(began + number / EDITS_PER_S)
        key = ObjectKey(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        sent[str(key)] = _clock.monotonic()
        await api.merge(SERVICE, key, {"spec": {"engine": {"maxSeqs": 32}}})
    async with asyncio.timeout(LIMIT_S):
        await changes.of(sent)
    watching.cancel()
    delays = sorted(changes.at[name] - at for name, at in sent.items())
    return {"edits": len(delays), "delays_s": delays}


class Changes:
    """When each service's Deployment changed its pod template."""

    def __init__(self, api: KubeClient) -> None:
        self._api = api
        self._before: dict[str, Any] = {}
        self.at: dict[str, float] = {}
        self.listed = asyncio.Event()
        self._more = asyncio.Condition()

    async def of(self, names: Iterable[str]) -> None:
        """Wait until all of these have changed."""
        wanted = set(names)
        async with self._more:
            await self._more.wait_for(lambda: wanted <= self.at.keys())

    async def watch(self) -> None:
        """Follow the Deployments until cancelled."""
        async with aclosing(watch_all(self._api, WatchOptions(DEPLOYMENT, selector=LABEL))) as events:
            async for event in events:
                for item in _items(event):
                    self._take(item)
                self.listed.set()
                async with self._more:
                    self._more.notify_all()

    def _take(self, item: Manifest) -> None:
        name = f"{item['metadata']['namespace']}/{item['metadata']['labels']['paceline.dev/service']}"
        template = item["spec"]["template"]
        if self._before.setdefault(name, template) != template:
            self.at.setdefault(name, _clock.monotonic())


async def _create(api: KubeClient, manifest: Manifest) -> None:
    await api.create(SERVICE, manifest["metadata"]["namespace"], manifest)


async def _until_ready(api: KubeClient, count: int, make: Callable[[Manifest], Awaitable[None]]) -> Report:
    began = _clock.monotonic()
    watching = asyncio.create_task(_seen(watch_all(api, WatchOptions(DEPLOYMENT, selector=LABEL)), ready, count))
    await _all(make, services(count))
    created = _clock.monotonic()
    await watching
    return {"created_s": created - began, "ready_s": _clock.monotonic() - began}


async def _all(make: Callable[[Manifest], Awaitable[None]], manifests: Iterable[Manifest]) -> None:
    waiting = iter(manifests)

    async def work() -> None:
        for manifest in waiting:
            await make(manifest)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def _seen(events: AsyncIterator[WatchEvent[Manifest]], holds: Callable[[Manifest], bool], count: int) -> None:
    """Until so many objects hold it at once."""
    held: set[str] = set()
    async with asyncio.timeout(LIMIT_S), aclosing(events):  # type: ignore[type-var]
        async for event in events:
            for item in _items(event):
                (held.add if holds(item) else held.discard)(item["metadata"]["uid"])
            if len(held) >= count:
                return


def _items(event: WatchEvent[Manifest]) -> tuple[Manifest, ...]:
    match event:
        case Listed(items):
            return items
        case Upserted(item):
            return (item,)
    return ()


def ready(deployment: Manifest) -> bool:
    """Whether a Deployment has what it wishes."""
    status = deployment.get("status", {})
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas")]
    return status.get("observedGeneration") == deployment["metadata"]["generation"] and counts == [REPLICAS] * 3


def lose(service: Manifest) -> bool:
    """Whether a service's status says that one replica is missing."""
    summary: str = service.get("status", {}).get("workload", {}).get("summary", "")
    return summary.startswith(f"{REPLICAS - 1}/{REPLICAS}")


async def _lose_one(api: KubeClient, deployment: Manifest) -> None:
    metadata = deployment["metadata"]
    fewer = REPLICAS - 1
    status = {"readyReplicas": fewer, "availableReplicas": fewer, "unavailableReplicas": 1}
    await api.merge(DEPLOYMENT, ObjectKey(metadata["namespace"], metadata["name"]), {"status": status}, "status")


async def _at(moment: float) -> None:
    await asyncio.sleep(max(moment - _clock.monotonic(), 0))


async def prepare(api: KubeClient, count: int) -> Report:
    """The namespaces."""
    del count
    for name in namespaces():
        path = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        try:
            await api.create(RESOURCES["Namespace"], "", path)
        except Conflict:
            continue
    return {}


PHASES = {run.__name__: run for run in (prepare, bare, create, create_half, finish, storm, edits)}


async def main() -> None:
    """Carry out one phase."""
    kubeconfig, phase, count = sys.argv[1:]
    api = await KubeClient.connect(Access(Path(kubeconfig)))
    try:
        report = await PHASES[phase](api, int(count))
    finally:
        await api.close()
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    uvloop.run(main())
