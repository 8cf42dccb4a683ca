"""Load from outside: NVIDIA's aiperf against a worker with the demo model, and whether both have counted the same.

It is Apache-2.0, comes from PyPI, and needs 1.2 GB with what it requires, so it is a peer here and no test. It counts
output tokens as the server's usage tells them; the worker's own count comes from its engine.
"""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.engine.worker import LIMIT_S, NAME, counted, worker
from benchmarks.harness import ROOT, Bar, Measured, Row
from benchmarks.peers import Environment

AIPERF = Environment("aiperf", ("aiperf==0.13.0",), "1.2 GB from the package index, some minutes, once")
DEMO = ROOT / "workers" / "paceline_workers" / "demo" / "model"
REQUESTS, CONCURRENCY = 40, 4
OPTIONS = {
    "model": NAME,
    "endpoint-type": "chat",
    "tokenizer": str(DEMO),
    "request-count": str(REQUESTS),
    "concurrency": str(CONCURRENCY),
    "isl": "64",
    "osl": "32",
    "osl-stddev": "8",
    "random-seed": "1",
    "ui": "none",
}
FLAGS = ("--streaming", "--use-server-token-count", "--no-gpu-telemetry", "--no-server-metrics")


def measure(scratch: Path) -> Measured:
    """How far its counts are from the worker's, and what it measured."""
    with worker(scratch, DEMO) as (url, _):
        told = profile(url, scratch / "aiperf", {})
        requests = counted(url, "paceline_worker_requests_total", outcome="ok")
        tokens = counted(url, "paceline_worker_tokens_total", kind="output")
    theirs = told["request_count"]["avg"], told["total_output_tokens"]["avg"]
    rows = [
        Row("aiperf's requests less the worker's", abs(theirs[0] - requests), f"of {requests:.0f}", bar=Bar(0)),
        Row("aiperf's output tokens less the worker's", abs(theirs[1] - tokens), f"of {tokens:.0f}", bar=Bar(0)),
    ]
    return rows, {"requests": theirs[0], "output_tokens": theirs[1], "version": AIPERF.packages[0]}


def profile(url: str, folder: Path, changes: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What aiperf tells of this URL; `changes` are to its OPTIONS."""
    options = [part for name, value in {**OPTIONS, **changes}.items() for part in (f"--{name}", str(value))]
    command = [
        AIPERF.python(),
        "-m",
        "aiperf",
        "profile",
        "--url",
        url,
        "--artifact-dir",
        str(folder),
        *options,
        *FLAGS,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
    found: dict[str, dict[str, float]] = json.loads((folder / "profile_export_aiperf.json").read_text())
    return found
