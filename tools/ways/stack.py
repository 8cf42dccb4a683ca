"""A traced `paceline up` of any checkout, and the requests that are sent to it.

Only what users hold on to is used: the command with its JSON lines, a manifest, the HTTP API. Without a Prometheus on
PATH the autoscaler scrapes by itself, so the trace does not depend on the machine.
"""

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.ways import recorder
from tools.ways.trace import Window

LIMIT_S = 120.0
QUESTION = "What is a replica, and who decides how many there are?"


@dataclass(frozen=True)
class Stack:
    """One run that is ready to serve."""

    process: subprocess.Popen[str]
    calls: Path
    host: str
    key: str
    model: str

    def chat(self, prompt: str, tokens: int) -> Window:
        """One streamed chat on a connection of its own: when it was sent, and when its last byte was read."""
        began = time.monotonic_ns()
        with contextlib.closing(http.client.HTTPConnection(self.host, timeout=LIMIT_S)) as connection:
            response = self._send(connection, prompt, tokens)
            text = response.read()
            ended = time.monotonic_ns()
        if response.status != http.HTTPStatus.OK or b"[DONE]" not in text:
            raise RuntimeError(f"the chat failed with {response.status}: {text[-300:]!r}")
        return Window(began, ended)

    def stream_until(self, stop: threading.Event, prompt: str, tokens: int) -> None:
        """Stream one chat after the other, and leave the last one at `stop`."""
        while not stop.is_set():
            with (
                contextlib.suppress(OSError, http.client.HTTPException),
                contextlib.closing(http.client.HTTPConnection(self.host, timeout=LIMIT_S)) as connection,
            ):
                response = self._send(connection, prompt, tokens)
                while not stop.is_set() and response.read1():
                    pass

    def started(self, word: str) -> list[int]:
        """When the supervisor started programs with this word on their command line, in nanoseconds."""
        lines = (self.calls / f"{self.process.pid}.starts").read_text().splitlines()
        return [int(line.partition("\t")[0]) for line in lines if word in line]

    def _send(self, connection: http.client.HTTPConnection, prompt: str, tokens: int) -> http.client.HTTPResponse:
        messages = [{"role": "user", "content": prompt}]
        body = {"model": self.model, "messages": messages, "max_tokens": tokens, "stream": True}
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        return connection.getresponse()


@contextlib.contextmanager
def traced(root: Path, manifest: dict[str, Any]) -> Iterator[Stack]:
    """`paceline up` of the checkout `root`, stopped after the block; its trace is gone with the block."""
    with tempfile.TemporaryDirectory(prefix="paceline-ways-") as scratch:
        folder = Path(scratch)
        for name in ("calls", "injected", "bin"):
            (folder / name).mkdir()
        shutil.copy(recorder.__file__, folder / "injected" / "sitecustomize.py")
        (folder / "service.yaml").write_text(json.dumps(manifest))
        process = _start(root, folder)
        try:
            event = _ready(process, folder / "error")
            host = event["endpoint"].removeprefix("http://").removesuffix("/v1")
            threading.Thread(target=_read_on, args=(process,), daemon=True).start()
            yield Stack(process, folder / "calls", host, event["key"], event["model"])
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(LIMIT_S)


def _start(root: Path, folder: Path) -> subprocess.Popen[str]:
    python = root / ".venv" / "bin" / "python"
    words = ["up", "-f", str(folder / "service.yaml"), "--state", str(folder / "state"), "--json", "--port", "0"]
    environment = {
        **os.environ,
        "PATH": str(folder / "bin"),
        "PYTHONPATH": str(folder / "injected"),
        recorder.FOLDER: str(folder / "calls"),
        recorder.ROOT: f"{root}/",
    }
    command = [str(python if python.exists() else sys.executable), "-m", "paceline_cli", *words]
    with (folder / "error").open("wb") as error:
        return subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=error, text=True)  # noqa: S603 - ours


def _ready(process: subprocess.Popen[str], error: Path) -> dict[str, Any]:
    assert process.stdout
    for line in process.stdout:
        event: dict[str, Any] = json.loads(line)
        if event["event"] == "ready":
            return event
    raise RuntimeError(f"`paceline up` ended before it was ready: {error.read_text()}")


def _read_on(process: subprocess.Popen[str]) -> None:
    assert process.stdout
    for _ in process.stdout:
        pass
