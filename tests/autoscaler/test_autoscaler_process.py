"""The real process against the real supervisor's API; gateway and worker are stand-ins on real sockets."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
import yaml
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from tests.autoscaler.conftest import until
from tests.autoscaler.ledgers import entries_in
from tests.autoscaler.talkers import load_report
from tests.autoscaler.test_scaling_goals import manifest
from tests.ports import free_port

from paceline_autoscaler.controller import LEASE
from paceline_autoscaler.output.replay import replay
from paceline_core.auth import InvalidToken, TokenVerifier, jwk_set, new_signing_key, public_jwk
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE, HEADER
from paceline_core.clock import SystemClock, rfc3339
from paceline_core.errors import NotFound
from paceline_core.kube import Endpoint, ObjectKey, ScaleTarget, ServiceEndpoints, ServiceRef
from paceline_core.wire import ClassDemand, DemandReport, ServiceDemand, encode
from paceline_local.apiserver import ObjectStore
from paceline_local.apiserver.api import make_app

pytestmark = pytest.mark.real

KEY = ObjectKey("default", "chat")
POOL = ScaleTarget(KEY, "main")
LIMIT_S = 60.0


class Server(uvicorn.Server):
    """uvicorn on a socket that is already bound."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(app: FastAPI, listening: socket.socket) -> AsyncIterator[None]:
    settings = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=0)
    server = Server(settings)
    task = asyncio.create_task(server.serve([listening]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
        listening.close()


def loopback() -> socket.socket:
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    return made


class Stage:
    """The supervisor's store, a gateway that is asked for what `row` says, and a worker that is ready."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = ObjectStore()
        self.key = new_signing_key()
        self.row = ClassDemand.model_validate({"name": "interactive"})
        self.good = 0
        self.gateway_port = self.worker_port = 0
        self.process: asyncio.subprocess.Process | None = None
        self.log = folder / "log"

    def configure(self, **changes: Any) -> Path:
        (self.folder / "key").write_bytes(self.key)
        config = {
            "listen": {"host": "127.0.0.1", "port": 0},
            "cluster": {"socket": str(self.folder / "s")},
            "signing_key": str(self.folder / "key"),
            "gateways": [f"127.0.0.1:{self.gateway_port}"],
            "interval_s": 0.5,
            "ledger_dir": str(self.folder / "ledger"),
            **changes,
        }
        path = self.folder / "autoscaler.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    async def start(self, **changes: Any) -> asyncio.subprocess.Process:
        environ = {**os.environ, "PACELINE_CONFIG": str(self.configure(**changes))}
        argv = (sys.executable, "-m", "paceline_autoscaler.main")
        with self.log.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(*argv, env=environ, stderr=log)
        return self.process

    async def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(LIMIT_S):
            return await self.process.wait()

    async def get(self, path: str) -> httpx.Response | None:
        listening = re.search(r'"listening", "address": "([^"]+)"', self.log.read_text())
        if listening is None:
            return None
        try:
            async with httpx.AsyncClient() as http:
                return await http.get(f"http://{listening[1]}{path}")
        except httpx.HTTPError:
            return None

    async def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.store.objects.get("InferenceService", KEY)["status"]
        return found

    async def replicas(self) -> int:
        return self.store.scales.get(POOL).replicas

    def gateway(self) -> FastAPI:
        app, verifier = FastAPI(), TokenVerifier(jwk_set([public_jwk(self.key, "autoscaler")]), GATEWAY_AUDIENCE)

        @app.get("/internal/demand")
        async def demand(request: Request) -> Response:
            try:
                verifier.verify(request.headers.get(HEADER, ""), SystemClock().utc())
            except InvalidToken:
                return Response(status_code=401)
            return StreamingResponse(self._demand())

        @app.get("/metrics")
        async def metrics() -> Response:
            labels = 'pisvc_namespace="default",pisvc="chat",class="interactive",slo="ttft_p95"'
            return PlainTextResponse(f'paceline_slo_requests_total{{{labels},verdict="good"}} {self.good}\n')

        return app

    def worker(self) -> FastAPI:
        app = FastAPI()

        @app.get("/internal/load")
        async def load() -> Response:
            return StreamingResponse(self._load())

        return app

    async def _demand(self) -> AsyncIterator[bytes]:
        while True:
            service = ServiceDemand(service=str(KEY), classes=(self.row,))
            yield encode(DemandReport(gateway="g", started="a", services=(service,)))
            await asyncio.sleep(0.2)

    async def _load(self) -> AsyncIterator[bytes]:
        while True:
            yield encode(load_report("main-1"))
            await asyncio.sleep(0.2)

    def ask_for(self, **row: int) -> None:
        self.row = ClassDemand.model_validate({"name": "interactive", **row})

    def put(self, replicas: int, **spec: Any) -> None:
        slo = {"interactive": {"slo": {"ttft": {"p95": "500ms"}}}}
        self.store.objects.put(manifest(classes=slo, **spec))
        self.store.scales.create(POOL, replicas)

    def list_worker(self) -> None:
        created = rfc3339(SystemClock().utc())
        worker = Endpoint("main-1", "main", "stable", "r", "127.0.0.1", self.worker_port, True, created=created)
        self.store.put_endpoints(ServiceEndpoints(KEY, (worker,)))


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path)
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(tmp_path / "s"))
    gateway, worker = loopback(), loopback()
    made.gateway_port, made.worker_port = gateway.getsockname()[1], worker.getsockname()[1]
    api = make_app(made.store, SystemClock(), lambda: None)
    async with serving(api, unix), serving(made.gateway(), gateway), serving(made.worker(), worker):
        yield made
        if made.process is not None:
            await made.end(signal.SIGKILL)
        made.store.topics.close()


async def test_a_process_wakes_scales_reports_and_leaves_in_order(stage: Stage) -> None:
    pools = [{"name": "main", "accelerator": "h100", "replicas": {"min": 0, "max": 4}}]
    stage.put(0, pools=pools, scaling={"scaleToZero": {"after": "5m"}})
    await stage.start()
    await until(lambda: stage.get("/readyz"), lambda answer: answer is not None and answer.status_code == 200)

    stage.ask_for(arrivals=1, held=1, queued=1)
    await until(stage.replicas, lambda count: count == 1)
    stage.list_worker()
    stage.ask_for(arrivals=100, prompt_tokens=400_000, queued=2000, queued_prompt_tokens=8_000_000)
    await until(stage.replicas, lambda count: count == 4)
    status = await until(stage.status, lambda status: status.get("scaling", {}).get("limit") == "max")
    assert status["scaling"]["reason"] in {"backlog", "demand"}
    assert {"ScaledUp", "ScalingLimited"} <= {event["reason"] for event in stage.store.events}

    decisions = await stage.get("/debug/decisions?service=default/chat&limit=3")
    assert decisions is not None
    assert {entry["observation"]["goal"]["service"] for entry in decisions.json()} == {"default/chat"}
    assert decisions.json()[0]["decision"]["limit"] == "max"
    metrics = await stage.get("/metrics")
    assert metrics is not None
    assert 'paceline_autoscaler_decisions_total{direction="up"' in metrics.text
    healthy = await stage.get("/healthz")
    assert healthy is not None
    assert healthy.text == "ok"
    assert (await stage.get("/nowhere") or healthy).status_code == 404

    assert await stage.end() == 0
    stage.store.leases.take(LEASE, "the next one", 1.0, now=0.0)
    assert stage.store.states.get(ServiceRef(KEY, ""))["state"]
    entries = entries_in(stage.folder / "ledger" / "default.chat.jsonl")
    assert any(entry.decision.reason == "scale_from_zero" for entry in entries)
    assert replay(entries) == []


async def test_own_scrapes_measure_the_slo_where_there_is_no_prometheus(stage: Stage) -> None:
    stage.put(1)
    stage.list_worker()
    await stage.start()

    async def grow() -> dict[str, Any]:
        stage.good += 20
        return await stage.status()

    met = ("SLOMet", "True", "Met")
    await until(grow, lambda status: met in facts(status))


async def test_a_gateway_that_cannot_be_heard_is_reported(stage: Stage) -> None:
    stage.put(1)
    stage.list_worker()
    await stage.start(gateways=[f"127.0.0.1:{free_port()}"])
    await until(stage.status, lambda status: ("MetricsFresh", "False", "GatewaysMissing") in facts(status))


def facts(status: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(row["type"], row["status"], row["reason"]) for row in status.get("conditions", ())}


async def ended(stage: Stage, **changes: Any) -> tuple[int, str]:
    process = await stage.start(**changes)
    async with asyncio.timeout(LIMIT_S):
        status = await process.wait()
    return status, stage.log.read_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"signing_key": "/does/not/exist"}, "signing_key: /does/not/exist cannot be read"),
        ({"gateways": []}, "gateways"),
        ({"interval": 3}, "interval"),
        ({"ledger_size": "much"}, "ledger_size"),
        ({"prometheus": {"url": "prometheus:9090"}}, "prometheus.url"),
    ],
)
async def test_a_wrong_configuration_is_one_line_and_status_two(
    stage: Stage, changes: dict[str, Any], words: str
) -> None:
    status, line = await ended(stage, **changes)
    assert status == 2
    assert line.startswith("paceline autoscaler: ")
    assert words in line


async def test_a_port_in_use_is_one_line_and_status_two(stage: Stage) -> None:
    with loopback() as taken:
        taken.listen()
        status, line = await ended(stage, listen={"host": "127.0.0.1", "port": taken.getsockname()[1]})
    assert (status, "listen: 127.0.0.1:" in line) == (2, True)


async def test_a_key_of_the_wrong_size_is_refused(stage: Stage) -> None:
    (stage.folder / "short").write_bytes(b"short")
    status, line = await ended(stage, signing_key=str(stage.folder / "short"))
    assert (status, "holds 5 bytes; a private key has 32" in line) == (2, True)


async def test_the_supervisor_may_come_later_than_the_autoscaler(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.gateway_port = free_port()
    await stage.start()
    unready = await until(lambda: stage.get("/readyz"), lambda answer: answer is not None)
    assert unready is not None
    assert unready.status_code == 503
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(tmp_path / "s"))
    async with serving(make_app(stage.store, SystemClock(), lambda: None), unix):
        await until(lambda: stage.get("/readyz"), lambda answer: answer is not None and answer.status_code == 200)
        assert await stage.end(signal.SIGINT) == 0
        stage.store.topics.close()
    with pytest.raises(NotFound):
        stage.store.states.get(ServiceRef(KEY, ""))
