"""The fleet with real processes: a stand-in worker of a few lines that answers its probes and drains on SIGTERM."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.cli.waiting import until

from paceline_cli.supervisor.fleet import Fleet
from paceline_cli.supervisor.ports import PortPool
from paceline_cli.supervisor.probes import HttpProber
from paceline_cli.supervisor.rundir import run_dir
from paceline_cli.supervisor.site import HOST, Site
from paceline_cli.supervisor.store import ENDPOINTS, Store
from paceline_core.clock import SystemClock
from paceline_core.errors import Unreachable
from paceline_core.kube import Key, ScaleTarget, ServiceEndpoints
from paceline_core.kube.local import endpoints_from
from paceline_core.launch import Probe, Resources, WorkerLaunch
from paceline_core.objects import InferenceService, ResolvedService, resolve, validate

pytestmark = pytest.mark.real

CHAT = Key("default", "chat")
MAIN = ScaleTarget(CHAT, "main")
DOCUMENT = {
    "apiVersion": "paceline.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "chat", "namespace": "default"},
    "spec": {"model": {"source": "builtin://demo"}, "pools": [{"name": "main", "accelerator": "cpu"}]},
}
WORKER = """
import http.server, signal, sys

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""
FAILING = "raise SystemExit('no such model')"


def resolved() -> ResolvedService:
    found = validate(DOCUMENT)
    assert isinstance(found, InferenceService)
    return resolve(found)


class StandIns:
    """Launches of the stand-in worker."""

    def __init__(self, program: str = WORKER) -> None:
        self.ports: dict[str, int] = {}
        self._program = program
        self._pool = PortPool(HOST)

    def launch(self, target: ScaleTarget, name: str) -> WorkerLaunch:
        port = self.ports.get(name) or self._pool.take()
        self.ports[name] = port
        return WorkerLaunch(
            service=str(target.service),
            pool=target.pool,
            track=target.track,
            revision="abc",
            argv=(sys.executable, "-c", self._program, str(port)),
            env={},
            files=(),
            port=port,
            startup=Probe("/readyz", period_s=1, timeout_s=1, failures=30),
            liveness=Probe("/healthz", period_s=1, timeout_s=1, failures=10),
            readiness=Probe("/readyz", period_s=1, timeout_s=1, failures=2),
            resources=Resources(1.0, 1),
            grace_s=20.0,
            emulated=False,
        )

    def release(self, name: str) -> None:
        self.ports.pop(name, None)


class Running:
    """A fleet with what a test wants to know of it."""

    def __init__(self, site: Site, launches: StandIns) -> None:
        self.store = Store()
        self.store.objects.put(DOCUMENT)
        self.store.scales.create(MAIN, 1)
        self.launches = launches
        self.published: list[ServiceEndpoints] = []
        self.fleet = Fleet(site, self.store, {CHAT: resolved()}, launches, self._publish)

    def _publish(self, items: Iterable[ServiceEndpoints]) -> None:
        self.published = list(items)

    def scale(self, replicas: int) -> None:
        self.store.scales.set(MAIN, replicas, self.store.scales.get(MAIN).version)
        self.fleet.wake()

    @property
    def ready(self) -> list[str]:
        return [endpoint.name for item in self.endpoints for endpoint in item.endpoints if endpoint.ready]

    @property
    def endpoints(self) -> list[ServiceEndpoints]:
        return [endpoints_from(item) for item in self.store.watch(ENDPOINTS)[0]["items"]]

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.store.objects.get("InferenceService", CHAT)["status"]
        return status

    def condition(self, kind: str) -> str:
        return str(next(c["status"] for c in self.status["conditions"] if c["type"] == kind))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with httpx.AsyncClient() as http:
        with run_dir(tmp_path) as run:
            yield Site(run, PortPool(HOST), SystemClock(), HttpProber(http), "http://127.0.0.1:8000")


@pytest.fixture
async def running(site: Site) -> AsyncIterator[Running]:
    found = Running(site, StandIns())
    passes = asyncio.create_task(found.fleet.run())
    yield found
    passes.cancel()
    await found.fleet.stop()


def pid_on(port: int) -> int:
    return next(c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.pid)


async def test_a_service_gets_its_worker_and_says_so(running: Running) -> None:
    await running.fleet.wait_ready()
    await until(lambda: running.status["workload"]["summary"] == "1/1")
    assert running.ready == ["chat-main-1"]
    assert running.published == running.endpoints
    assert running.status["workload"]["pools"] == [{"name": "main", "ready": 1, "starting": 0, "draining": 0}]
    assert (running.condition("Ready"), running.condition("Progressing")) == ("True", "False")


async def test_more_replicas_are_started_and_fewer_are_drained_from_the_newest(running: Running) -> None:
    running.scale(3)
    await until(lambda: len(running.ready) == 3)
    running.scale(1)
    await until(lambda: running.ready == ["chat-main-1"])
    await until(lambda: [e.name for item in running.endpoints for e in item.endpoints] == ["chat-main-1"])
    assert list(running.launches.ports) == ["chat-main-1"]


async def test_zero_replicas_is_a_state_like_any_other(running: Running) -> None:
    await running.fleet.wait_ready()
    running.scale(0)
    await until(lambda: running.status["workload"]["summary"] == "0/0")
    assert running.condition("Degraded") == "False"
    running.scale(1)
    await until(lambda: running.ready == ["chat-main-2"])


async def test_a_killed_worker_leaves_the_endpoints_and_comes_back(running: Running) -> None:
    await running.fleet.wait_ready()
    os.kill(pid_on(running.launches.ports["chat-main-1"]), signal.SIGKILL)
    await until(lambda: running.ready == [])
    await until(lambda: running.ready == ["chat-main-1"])
    assert [event["reason"] for event in running.store.events] == ["BackOff"]


async def test_a_worker_that_keeps_ending_fails_the_start_with_the_end_of_its_log(site: Site) -> None:
    failing = Running(site, StandIns(FAILING))
    passes = asyncio.create_task(failing.fleet.run())
    try:
        with pytest.raises(Unreachable, match=r"(?s)chat-main-1 keeps ending.*no such model"):
            await failing.fleet.wait_ready()
        await until(lambda: failing.condition("Degraded") == "True")
    finally:
        passes.cancel()
        await failing.fleet.stop()


async def test_stopping_drains_everybody(site: Site) -> None:
    found = Running(site, StandIns())
    found.store.scales.set(MAIN, 2, "1")
    passes = asyncio.create_task(found.fleet.run())
    await until(lambda: len(found.ready) == 2)
    passes.cancel()
    await found.fleet.stop()
    assert found.launches.ports == {}
    assert found.published == [ServiceEndpoints(CHAT, ())]
