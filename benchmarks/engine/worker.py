"""A real worker for the benchmark: its engine on core 0, its API process on core 1, where clients run too."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml
from benchmarks.engine.run_paceline import ENGINE
from benchmarks.harness import ROOT

from paceline_core.config import FILE_VARIABLE

NAME = "random"
ENGINE_CORE, API_CORE = 0, 1
LIMIT_S = 300.0


@contextmanager
def worker(scratch: Path, model: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A ready worker's URL and its API process; it is drained at the end."""
    config: dict[str, Any] = {
        "service": "default/bench",
        "revision": "1",
        "pool": "default",
        "model": f"file://{model}",
    }
    config |= {"served_names": [NAME], "listen": {"port": 0}, "engine": {**ENGINE, "threads": 1}}
    settings, log = scratch / "worker.yaml", scratch / "worker.log"
    settings.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "benchmarks.engine.pinned", str(API_CORE), "worker", str(ENGINE_CORE)]
    environment = {**os.environ, FILE_VARIABLE: str(settings)}
    with log.open("wb") as errors:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=errors)
    try:
        yield _ready(log), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def counted(url: str, metric: str, **labels: str) -> float:
    """The sum of a counter over all its labels but these."""
    lines = httpx.get(f"{url}/metrics", timeout=LIMIT_S).text.splitlines()
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    mine = [line for line in lines if line.startswith(metric) and all(label in line for label in wanted)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in mine)


def _ready(log: Path) -> str:
    """The worker's URL, once it can serve."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        time.sleep(0.1)
        ports = [json.loads(line)["port"] for line in log.read_text().splitlines() if '"listening"' in line]
        if ports and httpx.get(f"http://127.0.0.1:{ports[0]}/readyz", timeout=LIMIT_S).status_code == 200:
            return f"http://127.0.0.1:{ports[0]}"
    raise TimeoutError(f"the worker was not ready within {LIMIT_S:.0f} s: {log.read_text()[-500:]}")
