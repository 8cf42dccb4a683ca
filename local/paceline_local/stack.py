"""All parts of one run, started together and stopped in an order that loses nothing.

The autoscaler stops first, so that nothing is scaled any more; then the gateway, which finishes its streams; then the
workers, which have no work left; Prometheus last. `kill` skips all of it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from paceline_core.clock import rfc3339
from paceline_core.errors import Unreachable
from paceline_core.kube.cluster import ObjectKey, ScaleTarget, ServiceEndpoints
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_local import HOST, NAMESPACE, component_configs, status
from paceline_local.apiserver import ObjectStore
from paceline_local.apiserver.api import NO_CONTENT, make_app, serving
from paceline_local.context import RunContext
from paceline_local.keys import KeyFile, publish_key_secrets
from paceline_local.manifests import LocalManifests
from paceline_local.process import Component
from paceline_local.replica_manager import ReplicaManager
from paceline_local.rundir import RunRecord
from paceline_local.worker_process import Launcher

EVENTS_SHOWN = 32


class LocalStack:
    def __init__(
        self, site: RunContext, manifests: LocalManifests, keys: KeyFile, ports: component_configs.Ports
    ) -> None:
        self.store = ObjectStore()
        for document in manifests.documents:
            self.store.objects.put(document)
        for key, service in manifests.services.items():
            for pool in service.pools:
                self.store.scales.create(ScaleTarget(key, pool.name), max(pool.min, 1))
        accepted = status.write(self.store, rfc3339(site.clock.utc()))
        self._site = site
        self._keys = keys
        self._ports = ports
        launcher = Launcher(site, manifests.services, site.run.trust_bundle)
        self._fleet = ReplicaManager(site, self.store, manifests.services, launcher, self._publish, accepted=accepted)
        specs = component_configs.components(site, ports)
        self._parts = {spec.name: Component(spec, site, self._on_end) for spec in specs}
        self._born = site.clock.monotonic()
        self._passes: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self) -> None:
        publish_key_secrets(self._keys, self.store)
        self._fleet.reconcile()
        self._passes = asyncio.create_task(self._fleet.run(), name="fleet")
        for part in self._parts.values():
            part.start()

    async def wait_ready(self) -> dict[ObjectKey, Unreachable]:
        """Return when every part is ready: the services given up, with the reasons. Raises Unreachable for a part."""
        fleet = asyncio.create_task(self._fleet.wait_ready())
        tasks = [fleet, *(asyncio.create_task(part.wait_ready()) for part in self._parts.values())]
        try:
            await asyncio.gather(*tasks)
            return fleet.result()
        finally:
            for task in tasks:
                task.cancel()

    def raise_if_broken(self) -> None:
        """Raise the error that ended the loop of the workers, if any."""
        if self._passes and self._passes.done():
            self._passes.result()

    async def stop(self) -> None:
        self._stopping = True
        for name in (component_configs.AUTOSCALER, component_configs.GATEWAY):
            await self._parts[name].stop(self._parts[name].spec.grace_s)
        if self._passes:
            self._passes.cancel()
        await self._fleet.stop()
        if scraper := self._parts.get(component_configs.PROMETHEUS):
            await scraper.stop(scraper.spec.grace_s)
        self.store.topics.close()

    def kill(self) -> None:
        self._fleet.kill()
        for part in self._parts.values():
            part.kill()

    def snapshot(self) -> dict[str, Any]:
        return {
            "endpoint": f"{self._site.endpoint}/v1",
            "uptime_s": round(self._site.clock.monotonic() - self._born, 1),
            "stopping": self._stopping,
            "source": "prometheus" if self._ports.prometheus else "embedded",
            "parts": {name: part.state for name, part in self._parts.items()},
            "metrics": {name: f"http://{HOST}:{part.spec.port}/metrics" for name, part in self._parts.items()},
            "logs": str(self._site.run.logs),
            "tenants": [tenant["metadata"]["name"] for tenant in self._tenants()],
            "services": self.store.objects.list(INFERENCE_SERVICE),
            "workers": self._fleet.workers,
            "watches_cut": self.store.topics.closed,
            "events": list(self.store.events)[-EVENTS_SHOWN:],
        }

    def record(self, pid: int) -> RunRecord:
        return RunRecord(
            pid=pid,
            socket=str(self._site.run.socket),
            endpoint=self._site.endpoint,
            gateway=f"http://{HOST}:{self._ports.gateway}",
            autoscaler=f"http://{HOST}:{self._ports.autoscaler}",
        )

    def app(self) -> FastAPI:
        app = make_app(self.store, self._site.clock, self._fleet.wake)

        @app.get("/run")
        async def run() -> dict[str, Any]:
            return self.snapshot()

        @app.get("/tenants")
        async def tenants() -> list[dict[str, Any]]:
            return self._tenants()

        @app.post("/keys/refresh", status_code=NO_CONTENT)
        async def refresh() -> None:
            publish_key_secrets(self._keys, self.store)

        return app

    def log(self, name: str) -> Path:
        return self._parts[name].log

    def _tenants(self) -> list[dict[str, Any]]:
        return [item for item in self.store.objects.list("Tenant") if item["metadata"]["namespace"] == NAMESPACE]

    def _on_end(self, name: str, sentence: str) -> None:
        event = {"kind": "Process", "key": name, "type": "Warning", "reason": "BackOff", "message": sentence}
        self.store.add_event(event, self._site.clock.utc())

    def _publish(self, services: Iterable[ServiceEndpoints]) -> None:
        if self._ports.prometheus:
            component_configs.write_scrape_targets(self._site, services)


@contextlib.asynccontextmanager
async def running(stack: LocalStack, site: RunContext) -> AsyncIterator[None]:
    """Run the stack during the block, and stop it in order afterwards."""
    async with serving(stack.app(), site.run.socket):
        stack.start()
        try:
            yield
        finally:
            await stack.stop()
