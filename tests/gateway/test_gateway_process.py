"""The gateway as a process: its exit codes, its drain, and a worker that is killed for good."""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.gateway.conftest import MakeWorker
from tests.gateway.pieces import endpoint
from tests.gateway.stand import CHAT, PATIENCE_S, STREAM, Stand, gateway, plain_client, until
from tests.gateway.worker_double import Script, as_argument

from paceline_core.auth import new_signing_key
from paceline_core.config import load
from paceline_core.telemetry import BackgroundWriter
from paceline_gateway.config import GatewayConfig
from paceline_gateway.telemetry.metrics import LogSinks

pytestmark = pytest.mark.real


@dataclass
class Running:
    """A gateway process and where it listens."""

    process: Process
    public: int
    admin: int


def configuration(directory: Path, **more: object) -> Path:
    (directory / "signing.key").write_bytes(new_signing_key())
    (directory / "jwks.json").write_text('{"keys": []}')
    fields = {
        "listen": {"host": "127.0.0.1", "port": 0},
        "admin": {"host": "127.0.0.1", "port": 0},
        "cluster": {"socket": str(directory / "supervisor.sock")},
        "signing_key": str(directory / "signing.key"),
        "trust_bundle": str(directory / "jwks.json"),
        "drain_s": 5,
    }
    path = directory / "gateway.yaml"
    path.write_text(yaml.safe_dump(fields | more))
    return path


async def spawn(configured: Path | None) -> Process:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PACELINE_")}
    if configured is not None:
        environment["PACELINE_CONFIG"] = str(configured)
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "paceline_gateway.main", env=environment, stdout=PIPE, stderr=PIPE
    )


async def last_words(process: Process) -> tuple[int, list[str]]:
    async with asyncio.timeout(PATIENCE_S):
        _, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, errors.decode().splitlines()


@contextlib.asynccontextmanager
async def running(configured: Path) -> AsyncIterator[Running]:
    process = await spawn(configured)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (line := json.loads(await process.stderr.readline()))["message"] != "listening":
                pass
        public, admin = (int(line[name].rsplit(":", 1)[1]) for name in ("public", "admin"))
        yield Running(process, public, admin)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("field", ["listen", "admin"])
async def test_a_port_in_use_is_one_clear_error_line(tmp_path: Path, field: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, lines = await last_words(
            await spawn(configuration(tmp_path, **{field: {"host": "127.0.0.1", "port": port}}))
        )
    assert status == 2
    assert lines == [
        f"paceline gateway: {field}: 127.0.0.1:{port} is already in use; stop the other program or choose another port"
    ]


async def test_an_address_of_another_machine_is_one_clear_error_line(tmp_path: Path) -> None:
    status, (line,) = await last_words(await spawn(configuration(tmp_path, listen={"host": "192.0.2.1", "port": 1})))
    assert status == 2
    assert "192.0.2.1:1" in line
    assert "choose an address of this machine" in line


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"unknown": 1}, "unknown: unknown setting"),
        ({"limits": {"body_bytes": -1}}, "limits.body_bytes"),
        ({"signing_key": "/nowhere"}, "signing_key: /nowhere cannot be read"),
        ({"signing_key": "/etc/hostname"}, "a private key has 32"),
    ],
)
async def test_a_wrong_configuration_names_the_field(tmp_path: Path, fields: dict[str, object], words: str) -> None:
    status, (line,) = await last_words(await spawn(configuration(tmp_path, **fields)))
    assert status == 2
    assert words in line


async def test_without_a_configuration_it_says_which_variable_is_missing() -> None:
    status, (line,) = await last_words(await spawn(None))
    assert status == 2
    assert "PACELINE_CONFIG is not set" in line.replace(":", "")


def test_a_gateway_names_itself_after_its_host(tmp_path: Path) -> None:
    assert load(GatewayConfig, configuration(tmp_path)).name == socket.gethostname()


async def test_without_a_supervisor_it_serves_health_and_is_not_ready(tmp_path: Path) -> None:
    async with running(configuration(tmp_path)) as started, plain_client() as client:
        assert (await client.get(f"http://127.0.0.1:{started.public}/health")).status_code == 200
        assert (await client.get(f"http://127.0.0.1:{started.admin}/healthz")).status_code == 200
        assert (await client.get(f"http://127.0.0.1:{started.admin}/readyz")).status_code == 503


async def test_a_log_that_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    async with running(configuration(tmp_path)) as started, plain_client() as client:
        for _ in range(100):  # a pipe takes 64 KiB, and 128 wait at our end
            assert (await client.get(f"http://127.0.0.1:{started.public}/{'x' * 4000}")).status_code == 404
        started.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            assert await started.process.wait() == 0


async def test_lines_that_do_not_fit_are_counted(tmp_path: Path, make_worker: MakeWorker) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, 4096)
        async with gateway(tmp_path, outlets=LogSinks(BackgroundWriter(stream, limit=4096))) as stand:
            stand.work(await make_worker())
            await stand.ready()
            while not await stand.metric("paceline_gateway_log_dropped_lines_total"):
                assert (await stand.client.post("/v1/chat/completions", json=CHAT)).status_code == 200
        os.close(reader)


async def test_an_idle_gateway_ends_at_once_with_status_0(tmp_path: Path) -> None:
    async with running(configuration(tmp_path)) as started:
        started.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            assert await started.process.wait() == 0


async def test_a_drain_finishes_streams_and_refuses_the_rest(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(tokens=("a",) * 20, delay_s=0.05)
    stand.work(worker)
    await stand.ready()
    running_stream = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
    await until(lambda: len(worker.seen) == 1)
    stand.stop.set()
    await until(lambda: _refused(stand))
    response = await running_stream
    assert response.text.endswith("data: [DONE]\n\n")
    assert "error" not in response.text
    async with asyncio.timeout(PATIENCE_S):
        await stand.run


async def _refused(stand: Stand) -> bool:
    async with plain_client() as fresh:
        url = f"http://127.0.0.1:{stand.port}/v1/chat/completions"
        response = await fresh.post(url, json=CHAT, headers={"authorization": f"Bearer {stand.key}"})
    if response.status_code != 503:
        return False
    assert response.json()["error"]["code"] == "draining"
    assert response.headers["connection"] == "close"
    assert response.headers["retry-after"] == "1"
    return (await stand.admin.get("/readyz")).status_code == 503


async def test_what_outlives_the_grace_period_ends_with_an_error_event(tmp_path: Path, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda seen: Script(stall_after=2 if b"stream" in seen.body else 0)
    async with gateway(tmp_path, drain_s=0.3) as stand:
        stand.work(worker)
        stream = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
        whole = asyncio.create_task(stand.client.post("/v1/chat/completions", json=CHAT))
        await until(lambda: len(worker.seen) == 2)
        stand.stop.set()
        assert '"code": "draining"' in (await stream).text
        assert (await whole).status_code == 503


async def test_a_second_signal_ends_the_grace_period(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(stall_after=2)
    stand.work(worker)
    stream = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
    await until(lambda: len(worker.seen) == 1)
    stand.stop.set()
    stand.abort.set()
    assert (await stream).text.endswith("data: [DONE]\n\n")
    async with asyncio.timeout(PATIENCE_S):
        await stand.run


async def test_a_killed_worker_process_is_routed_round(stand: Stand, make_worker: MakeWorker) -> None:
    script = Script(tokens=("a",) * 50, delay_s=0.02)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.gateway.worker_double", "victim", as_argument(script), stdout=PIPE
    )
    assert process.stdout is not None
    other = await make_worker("other")
    other.script = lambda _: script
    port = int(await process.stdout.readline())
    stand.cluster.serve("default/chat", endpoint("victim", port=port), other.endpoint)
    await stand.ready(2)
    posts = [asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM)) for _ in range(8)]
    await until(lambda: _streaming_at(stand, "victim"))
    process.kill()
    await process.wait()
    texts = [(await post).text for post in posts]
    assert [text.count('"content":"a"') for text in texts] == [50] * 8
    assert all(text.endswith("data: [DONE]\n\n") for text in texts)
    assert not any("error" in text for text in texts)
    assert await stand.metric("paceline_stream_resumed_total", reason="connection") > 0
    await stand.ready(1)
    assert (await stand.client.post("/v1/chat/completions", json=STREAM)).status_code == 200


async def _streaming_at(stand: Stand, name: str) -> bool:
    (worker,) = [w for w in await stand.workers() if w["worker"] == name]
    return bool(worker["in_flight"]) and worker["backlog_tokens"] == 0
