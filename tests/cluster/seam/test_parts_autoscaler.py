"""The autoscaler's own process on a real API server: it wakes a service at zero, a restart of it moves nothing, and it
yields to whoever scales as well.
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from tests.autoscaler.conftest import until
from tests.autoscaler.test_autoscaler_process import loopback, serving
from tests.cluster.apiclients import DEPLOYMENT, SERVICE
from tests.cluster.harness.workbench import Workbench

from paceline_autoscaler.controller import LEASE
from paceline_core.auth import new_signing_key
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.naming import deployment_name, pod_labels, selector_labels
from paceline_core.wire import ClassDemand, DemandReport, ServiceDemand, encode

pytestmark = pytest.mark.real
NAME = "chat"


def workload(place: str, replicas: int) -> Manifest:
    """A pool's Deployment as the operator makes it, of pods that no node takes."""
    labels = pod_labels(NAME, "main", role="both", revision="r")
    container = {"name": "worker", "image": "localhost/none:1"}
    return {
        "apiVersion": DEPLOYMENT.api_version,
        "kind": "Deployment",
        "metadata": {"namespace": place, "name": deployment_name(NAME, "main")},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selector_labels(NAME, "main")},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def wish(place: str, least: int) -> Manifest:
    """An InferenceService whose pool may have up to four replicas; it sleeps where it may have none."""
    pools = [{"name": "main", "accelerator": "cpu", "replicas": {"min": least, "max": 4}}]
    scaling = {"scaleToZero": {"after": "10m"}} if least == 0 else {}
    return {
        "apiVersion": SERVICE.api_version,
        "kind": "InferenceService",
        "metadata": {"namespace": place, "name": NAME},
        "spec": {"model": {"source": "builtin://demo"}, "pools": pools, "scaling": scaling},
    }


@dataclass
class Autoscaler:
    """The process, a gateway for it that says `row`, and the API server beside both."""

    api: KubeClient
    place: str
    folder: Path
    kubeconfig: Path
    port: int = 0
    row: ClassDemand = field(default_factory=lambda: ClassDemand.model_validate({"name": "interactive"}))
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it is ready."""
        (self.folder / "signing.key").write_bytes(new_signing_key())
        config = {
            "cluster": {"kubeconfig": str(self.kubeconfig), "namespaces": [self.place]},
            "namespace": self.place,
            "signing_key": str(self.folder / "signing.key"),
            "gateways": [f"127.0.0.1:{self.port}"],
            "listen": {"host": "127.0.0.1", "port": 0},
            "interval_s": 0.5,
        }
        (self.folder / "autoscaler.yaml").write_text(yaml.safe_dump(config))
        environ = {**os.environ, "PACELINE_CONFIG": str(self.folder / "autoscaler.yaml")}
        with (self.folder / "log").open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "paceline_autoscaler.main", env=environ, stderr=log
            )
        await until(self._ready, bool)

    async def end(self, number: int) -> None:
        """Send it a signal and wait for its end."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)
            async with asyncio.timeout(30):
                await self.process.wait()

    async def decided(self) -> list[Any]:
        """What it has decided so far."""
        answer = await self._get("/debug/decisions")
        found: list[Any] = answer.json() if answer is not None else []
        return found

    async def deployment(self) -> Manifest:
        """The pool's Deployment now."""
        return await self.api.get(DEPLOYMENT, ObjectKey(self.place, deployment_name(NAME, "main")))

    async def replicas(self) -> int:
        """What is ordered."""
        return int((await self.deployment())["spec"]["replicas"])

    async def status(self) -> Manifest:
        """What the object says."""
        found: Manifest = (await self.api.get(SERVICE, ObjectKey(self.place, NAME))).get("status") or {}
        return found

    async def scaling_active(self) -> Manifest:
        """The condition ScalingActive; empty while there is none."""
        rows: list[Manifest] = (await self.status()).get("conditions", [])
        return next((row for row in rows if row["type"] == "ScalingActive"), {})

    def gateway(self) -> FastAPI:
        """An admin port that tells what clients want."""
        app = FastAPI()

        @app.get("/internal/demand")
        async def demand() -> StreamingResponse:
            return StreamingResponse(self._lines())

        return app

    async def _lines(self) -> AsyncIterator[bytes]:
        while True:
            service = ServiceDemand(service=f"{self.place}/{NAME}", classes=(self.row,))
            yield encode(DemandReport(gateway="g", started="a", services=(service,)))
            await asyncio.sleep(0.2)

    async def _ready(self) -> bool:
        answer = await self._get("/readyz")
        return answer is not None and answer.status_code == 200

    async def _get(self, path: str) -> httpx.Response | None:
        listening = re.search(r'"listening", "address": "([^"]+)"', (self.folder / "log").read_text())
        if listening is None:
            return None
        async with httpx.AsyncClient() as http:
            return await http.get(f"http://{listening[1]}{path}")


@pytest.fixture
async def autoscaler(api: KubeClient, place: str, bench: Workbench, tmp_path: Path) -> AsyncIterator[Autoscaler]:
    made = Autoscaler(api, place, tmp_path, bench.kubeconfig)
    listening = loopback()
    made.port = listening.getsockname()[1]
    async with serving(made.gateway(), listening):
        yield made
        await made.end(signal.SIGKILL)


async def test_a_held_request_wakes_a_service_at_zero(autoscaler: Autoscaler) -> None:
    place, api = autoscaler.place, autoscaler.api
    await api.apply(SERVICE, wish(place, 0), "kubectl")
    await api.apply(DEPLOYMENT, workload(place, 0), "paceline-operator")
    await autoscaler.start()
    await until(autoscaler.decided, bool)
    assert await autoscaler.replicas() == 0
    autoscaler.row = ClassDemand.model_validate({"name": "interactive", "arrivals": 1, "held": 1, "queued": 1})
    await until(autoscaler.replicas, lambda count: count == 1)
    status = await until(autoscaler.status, lambda status: status.get("scaling", {}).get("desired") == 1)
    assert {row["type"] for row in status["conditions"]} >= {"ScalingActive", "MetricsFresh", "CapacityBlocked"}
    owners = (await autoscaler.deployment())["metadata"]["managedFields"]
    assert "paceline-autoscaler" in {entry["manager"] for entry in owners}


async def test_however_it_ends_and_starts_again_nothing_is_moved(autoscaler: Autoscaler) -> None:
    place, api = autoscaler.place, autoscaler.api
    await api.apply(SERVICE, wish(place, 1), "kubectl")
    await api.apply(DEPLOYMENT, workload(place, 3), "paceline-operator")
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        await autoscaler.start()
        await until(autoscaler.decided, bool)
        await autoscaler.end(number)
    assert (await autoscaler.deployment())["metadata"]["generation"] == 1
    assert await autoscaler.replicas() == 3
    lease = await api.get(RESOURCES["Lease"], ObjectKey(place, LEASE))
    assert lease["spec"]["holderIdentity"]


async def test_it_yields_to_whoever_reverses_it_three_times_and_names_the_writer(
    autoscaler: Autoscaler, bench: Workbench
) -> None:
    place, api, kubectl = autoscaler.place, autoscaler.api, bench.kubectl.within(autoscaler.place)
    await api.apply(SERVICE, wish(place, 1), "kubectl")
    await api.apply(DEPLOYMENT, workload(place, 4), "paceline-operator")
    await autoscaler.start()
    await until(autoscaler.decided, bool)
    for _ in range(2):
        await asyncio.to_thread(kubectl, "scale", f"deployment/{deployment_name(NAME, 'main')}", "--replicas=6")
        await until(autoscaler.replicas, lambda count: count == 4)
    await asyncio.to_thread(kubectl, "scale", f"deployment/{deployment_name(NAME, 'main')}", "--replicas=6")
    found = await until(autoscaler.scaling_active, lambda row: row.get("reason") == "ScalerConflict")
    assert found["status"] == "False"
    assert found["message"] == "Pool main is scaled by kubectl too; stop it or set scaling.policy: external."
    assert await autoscaler.replicas() == 6
    events = await api.list(RESOURCES["Event"], place, fields="reason=ExternallyScaled")
    assert {event["message"] for event in events} == {"Pool main was scaled from 4 to 6 by kubectl."}
