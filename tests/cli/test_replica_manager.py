"""The fleet with real processes: a stand-in worker of a few lines that answers its probes and drains on SIGTERM."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.cli.waiting import until

from paceline_core.clock import SystemClock
from paceline_core.kube import ObjectKey, ScaleTarget, ServiceEndpoints
from paceline_core.kube.local import endpoints_from
from paceline_core.launch import LaunchFile, Probe, Resources, WorkerLaunch
from paceline_core.objects import InferenceService, ResolvedService, resolve, validate
from paceline_local import HOST
from paceline_local.apiserver import ENDPOINTS, ObjectStore
from paceline_local.context import HttpProber, PortPool, RunContext
from paceline_local.replica_manager import LEFT_LOGS, ReplicaManager
from paceline_local.rundir import run_dir

pytestmark = pytest.mark.real

CHAT, CODE = ObjectKey("default", "chat"), ObjectKey("default", "code")
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
WRONG = "import sys; sys.exit(2)"


def resolved() -> ResolvedService:
    found = validate(DOCUMENT)
    assert isinstance(found, InferenceService)
    return resolve(found)


class StandIns:
    """Launches of the stand-in worker."""

    def __init__(self, programs: Mapping[ObjectKey, str] | None = None) -> None:
        self.ports: dict[str, int] = {}
        self.more: dict[str, Any] = {}
        self._programs = programs or {}
        self._pool = PortPool(HOST)

    def launch(self, target: ScaleTarget, name: str) -> WorkerLaunch:
        port = self.ports.get(name) or self._pool.take()
        self.ports[name] = port
        launch = WorkerLaunch(
            service=str(target.service),
            pool=target.pool,
            track=target.track,
            revision="abc",
            argv=(sys.executable, "-c", self._programs.get(target.service, WORKER), str(port)),
            env={},
            files=(),
            port=port,
            metrics_port=port,
            startup=Probe("/readyz", period_s=1, timeout_s=1, failures=30),
            liveness=Probe("/healthz", period_s=1, timeout_s=1, failures=10),
            readiness=Probe("/readyz", period_s=1, timeout_s=1, failures=2),
            resources=Resources(1.0, 1),
            grace_s=20.0,
            emulated=False,
        )
        return replace(launch, **self.more)

    def release(self, name: str) -> None:
        self.ports.pop(name, None)


class Running:
    """A fleet with what a test wants to know of it."""

    def __init__(self, site: RunContext, launches: StandIns, *keys: ObjectKey, left_logs: int = LEFT_LOGS) -> None:
        self.store = ObjectStore()
        for key in keys or (CHAT,):
            self.store.objects.put({**DOCUMENT, "metadata": {"name": key.name, "namespace": key.namespace}})
            self.store.scales.create(ScaleTarget(key, "main"), 1)
        self.launches = launches
        self.published: list[ServiceEndpoints] = []
        services = dict.fromkeys(keys or (CHAT,), resolved())
        self.fleet = ReplicaManager(site, self.store, services, launches, self._publish, left_logs)

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

    @property
    def trouble(self) -> str:
        return str(next(c["message"] for c in self.status["conditions"] if c["type"] == "Degraded"))

    def condition(self, kind: str) -> str:
        return str(next(c["status"] for c in self.status["conditions"] if c["type"] == kind))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[RunContext]:
    async with httpx.AsyncClient() as http:
        with run_dir(tmp_path) as run:
            yield RunContext(run, PortPool(HOST), SystemClock(), HttpProber(http), "http://127.0.0.1:8000")


@contextlib.asynccontextmanager
async def fleet(found: Running) -> AsyncIterator[Running]:
    passes = asyncio.create_task(found.fleet.run())
    try:
        yield found
    finally:
        passes.cancel()
        await found.fleet.stop()


@pytest.fixture
async def running(site: RunContext) -> AsyncIterator[Running]:
    async with fleet(Running(site, StandIns())) as found:
        yield found


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


async def test_the_logs_of_workers_that_have_left_stay_up_to_a_bound(site: RunContext) -> None:
    async with fleet(Running(site, StandIns(), left_logs=1)) as running:
        running.scale(3)
        await until(lambda: len(running.ready) == 3)
        running.scale(1)
        await until(lambda: len(running.fleet.workers) == 1)
        logs = sorted(path.name for path in site.run.logs.iterdir())
        assert (len(logs), logs[0]) == (2, "chat-main-1.log")


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


async def test_a_worker_that_keeps_ending_is_given_up_with_its_last_words(site: RunContext) -> None:
    async with fleet(Running(site, StandIns({CHAT: FAILING}))) as failing:
        given_up = await failing.fleet.wait_ready()
        assert str(given_up[CHAT]).startswith("chat-main-1 keeps ending: no such model; its log is ")
        await until(lambda: failing.condition("Degraded") == "True")


async def test_a_wrong_file_is_not_tried_twice(site: RunContext) -> None:
    async with fleet(Running(site, StandIns({CHAT: WRONG}))) as failing:
        assert list(await failing.fleet.wait_ready()) == [CHAT]
        assert [event["message"] for event in failing.store.events] == [
            "chat-main-1 ended (status 2); started again in 0.5 s"
        ]


async def test_a_broken_service_leaves_the_others_serving_and_says_why(site: RunContext) -> None:
    async with fleet(Running(site, StandIns({CHAT: FAILING}), CHAT, CODE)) as running:
        assert list(await running.fleet.wait_ready()) == [CHAT]
        await until(lambda: running.ready == ["code-main-1"])
        await until(lambda: running.condition("Degraded") == "True")
        assert running.trouble == "Workers keep ending: chat-main-1 (no such model)."
        assert [(worker["name"], worker["state"]) for worker in running.fleet.workers] == [
            ("chat-main-1", "keeps ending"),
            ("code-main-1", "ready"),
        ]
        url = running.fleet.workers[1]["url"]
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{url}/readyz")).status_code == 200


@pytest.mark.parametrize(
    ("env", "files", "why"),
    [
        ({"TOKEN": "a\0b"}, (), "embedded null byte"),
        ({}, (LaunchFile("/nonexistent/worker.yaml", "{}"),), "No such file or directory: /nonexistent/worker.yaml"),
    ],
)
async def test_a_worker_that_cannot_be_started_is_given_up_with_the_reason(
    site: RunContext, env: dict[str, str], files: tuple[LaunchFile, ...], why: str
) -> None:
    launches = StandIns()
    launches.more = {"env": env, "files": files}
    async with fleet(Running(site, launches)) as failing:
        given_up = await failing.fleet.wait_ready()
        assert f"chat-main-1 keeps ending: {why}" in str(given_up[CHAT])
        await until(lambda: failing.condition("Degraded") == "True")
        assert failing.trouble == f"Workers keep ending: chat-main-1 ({why})."
        assert f"cannot be started: {why}" in failing.store.events[0]["message"]


async def test_a_full_disk_is_the_reason_where_no_log_can_tell_one(site: RunContext) -> None:
    site.run.log("chat-main-1").symlink_to("/dev/full")
    async with fleet(Running(site, StandIns({CHAT: FAILING}))) as failing:
        given_up = await failing.fleet.wait_ready()
        await until(lambda: failing.condition("Degraded") == "True")
        for told in (str(given_up[CHAT]), failing.trouble):
            assert "chat-main-1.log cannot be written: No space left on device" in told


async def test_stopping_drains_everybody(site: RunContext) -> None:
    found = Running(site, StandIns())
    found.store.scales.set(MAIN, 2, "1")
    passes = asyncio.create_task(found.fleet.run())
    await until(lambda: len(found.ready) == 2)
    passes.cancel()
    await found.fleet.stop()
    assert found.launches.ports == {}
    assert found.published == [ServiceEndpoints(CHAT, ())]
