"""The operator's process under kopf: its signals, its end, and an API server that does not answer."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from paceline_core.clock import SystemClock
from paceline_operator.handlers import run_under_kopf


async def test_a_signal_cancels_the_work_and_ends_without_kopfs_grace() -> None:
    ended: list[float] = []
    clock = SystemClock()

    async def work() -> None:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append(clock.monotonic())

    await run_under_kopf(work)
    assert clock.monotonic() - ended[0] < 1.0


async def test_work_that_fails_ends_the_process_with_its_error() -> None:
    async def work() -> None:
        await asyncio.sleep(0.01)
        raise ValueError("a watch ended")

    with pytest.raises(ValueError, match="a watch ended"):
        await run_under_kopf(work)


@pytest.fixture
def api_server() -> Iterator[socket.socket]:
    """It accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


@pytest.fixture
def kubeconfig(api_server: socket.socket, tmp_path: Path) -> Path:
    server = f"http://127.0.0.1:{api_server.getsockname()[1]}"
    path = tmp_path / "kubeconfig"
    named = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "x", **named}))
    return path


async def test_kopf_sends_no_request_of_its_own(
    api_server: socket.socket, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    await run_under_kopf(lambda: asyncio.sleep(0.2))
    with pytest.raises(BlockingIOError):
        api_server.accept()


async def test_an_api_server_that_never_answers_neither_ends_the_process_nor_delays_its_end(
    kubeconfig: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = tmp_path / "operator.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "namespace": "home",
                "worker": {"image": "example/worker:1"},
                "endpoint": "http://gateway.example",
                "listen": {"host": "127.0.0.1", "port": port},
                "cluster": {"kubeconfig": str(kubeconfig)},
            }
        )
    )
    environment = {**os.environ, "PACELINE_CONFIG": str(config)}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "paceline_operator.main", env=environment)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client, asyncio.timeout(30.0):
            while True:
                try:
                    alive, ready = await client.get("/healthz"), await client.get("/readyz")
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
        assert (alive.status_code, ready.status_code) == (200, 503)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 5.0) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
