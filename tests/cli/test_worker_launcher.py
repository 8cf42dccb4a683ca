import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline_core.clock import ManualClock
from paceline_core.kube import ObjectKey, ScaleTarget
from paceline_core.launch import Probe
from paceline_core.objects import InferenceService, resolve, validate
from paceline_local import HOST
from paceline_local.context import PortPool, RunContext
from paceline_local.rundir import RunDir, run_dir
from paceline_local.worker_process import Launcher

CHAT = ObjectKey("default", "chat")
MAIN = ScaleTarget(CHAT, "main")


class Nobody:
    """A prober that finds nobody."""

    async def ask(self, host: str, port: int, probe: Probe) -> bool:
        return False


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    with run_dir(tmp_path) as found:
        yield found


@pytest.fixture
def launcher(run: RunDir, tmp_path: Path) -> Launcher:
    return launching(run, tmp_path)


def launching(run: RunDir, folder: Path, **spec: Any) -> Launcher:
    document = {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat"},
        "spec": {"model": {"source": "builtin://demo"}, "pools": [{"name": "main", "accelerator": "cpu"}], **spec},
    }
    found = validate(document)
    assert isinstance(found, InferenceService)
    site = RunContext(run, PortPool(HOST), ManualClock(), Nobody(), "http://127.0.0.1:8000", "DEBUG")
    return Launcher(site, {CHAT: resolve(found)}, folder / "jwks.json")


SPILLING = {"kvCache": {"hostOffloadBytes": "1Gi", "diskOffloadBytes": "8Gi"}}


def test_a_worker_keeps_its_port_from_start_to_start(launcher: Launcher) -> None:
    first = launcher.launch(MAIN, "chat-main-1")
    assert launcher.launch(MAIN, "chat-main-1").port == first.port
    assert launcher.launch(MAIN, "chat-main-2").port != first.port


def test_a_port_that_somebody_took_meanwhile_is_not_insisted_on(launcher: Launcher) -> None:
    port = launcher.launch(MAIN, "chat-main-1").port
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind((HOST, port))
        thief.listen()
        assert launcher.launch(MAIN, "chat-main-1").port != port


def test_a_released_port_is_for_the_next_worker(launcher: Launcher) -> None:
    port = launcher.launch(MAIN, "chat-main-1").port
    launcher.release("chat-main-1")
    assert launcher.launch(MAIN, "chat-main-2").port == port


def test_the_runs_log_level_reaches_the_worker(launcher: Launcher) -> None:
    assert launcher.launch(MAIN, "chat-main-1").env["PACELINE_LOG_LEVEL"] == "DEBUG"


def test_pages_on_disk_lie_in_the_run_from_start_to_start_and_go_with_their_worker(run: RunDir, tmp_path: Path) -> None:
    launcher = launching(run, tmp_path, engine=SPILLING)
    first = launcher.launch(MAIN, "chat-main-1")
    pages = Path(json.loads(first.files[0].content)["engine"]["disk_path"])
    assert pages.is_relative_to(run.root)
    assert launcher.launch(MAIN, "chat-main-1").files[0].content == first.files[0].content
    pages.mkdir()
    run.forget("chat-main-1")
    assert not pages.exists()
