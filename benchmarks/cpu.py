"""Processor time of a streamed chat and of an engine step, in this checkout and in another, turn by turn.

`python -m benchmarks.cpu --beside ../other [--pairs 10]` judges a change that shall cost nothing. Each turn starts the
whole of `paceline up` with an emulated worker (real HTTP, scheduler and KV accounting; the engine waits where a model
would compute) and streams a fixed number of chats; what the gateway, the worker's API process and the engine process
used meanwhile is theirs alone, whatever else the machine does. Neighbours still slow a core down, so the ratio of a
pair counts, and the first of a pair is the other one each time. Each checkout's own `.venv` runs it.
"""

import argparse
import contextlib
import http.client
import json
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from benchmarks.harness import ROOT, Bar, Measured, Row, median_row, report

from paceline_core.clock import SystemClock

LIMIT_S = 120.0
STREAMS, TOKENS, WARM_UP = 8, 32, 40
PROCESSES = {
    "gateway": "paceline_gateway.main",
    "worker API": "paceline_workers.main",
    "engine": "paceline_workers.engine",
}
STEPS = b"paceline_scheduler_step_seconds_count"
MANIFEST: dict[str, Any] = {
    "apiVersion": "paceline.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "chat"},
    "spec": {
        "model": {"source": "builtin://demo", "servedName": "demo"},
        "engine": {
            "maxModelLen": 4096,
            "emulate": {"accelerator": "h100", "model": "llama-3.1-8b", "coldStart": "100ms"},
        },
        "classes": {"interactive": {"slo": {"ttft": {"p95": "500ms"}, "tpot": {"p95": "100ms"}}}},
        "pools": [{"name": "main", "accelerator": "cpu", "replicas": {"min": 1, "max": 1}}],
    },
}


@dataclass(frozen=True, slots=True)
class Turn:
    """Milliseconds a chat of each process, and microseconds of the engine process a step."""

    chat_ms: dict[str, float]
    step_us: float


@dataclass(frozen=True, slots=True)
class Stack:
    """A run that serves: where, with which key, and its processes."""

    host: str
    key: str
    processes: dict[str, psutil.Process]

    def chat(self, number: int) -> None:
        """One streamed chat on a connection of its own; a RuntimeError when it is not answered whole."""
        text = f"{number}: What is a replica, and who decides how many there are?"
        body = {"model": "demo", "messages": [{"role": "user", "content": text}], "max_tokens": TOKENS, "stream": True}
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        with contextlib.closing(http.client.HTTPConnection(self.host, timeout=LIMIT_S)) as connection:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            if not (answer := connection.getresponse().read()).endswith(b"data: [DONE]\n\n"):
                raise RuntimeError(f"a chat failed: {answer[-300:]!r}")

    def spent_s(self) -> dict[str, float]:
        """Processor seconds of each process so far."""
        times = {name: process.cpu_times() for name, process in self.processes.items()}
        return {name: found.user + found.system for name, found in times.items()}

    def steps(self) -> float:
        """Engine steps so far, by the worker's metrics."""
        ports = [c.laddr.port for c in self.processes["worker API"].net_connections("inet") if c.status == "LISTEN"]
        for port in ports:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)) as connection:
                connection.request("GET", "/metrics")
                for line in connection.getresponse().read().splitlines():
                    if line.startswith(STEPS):
                        return float(line.rsplit(b" ", 1)[1])
        raise RuntimeError(f"no port of the worker ({ports}) serves {STEPS.decode()}")


@contextlib.contextmanager
def up(root: Path) -> Iterator[Stack]:
    """`paceline up` of a checkout, ended after the block."""
    with tempfile.TemporaryDirectory(prefix="paceline-cpu-") as scratch:
        manifest = Path(scratch) / "service.yaml"
        manifest.write_text(json.dumps(MANIFEST))
        words = ["up", "-f", str(manifest), "--state", f"{scratch}/state", "--json", "--port", "0"]
        command = [str(root / ".venv" / "bin" / "python"), "-m", "paceline_cli", *words]
        with (Path(scratch) / "error").open("w+") as error:
            process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=error, text=True)
            try:
                assert process.stdout
                ready = next((line for line in process.stdout if json.loads(line)["event"] == "ready"), None)
                if ready is None:
                    error.seek(0)
                    raise RuntimeError(f"`paceline up` of {root} ended before it was ready: {error.read()}")
                threading.Thread(target=list, args=(process.stdout,), daemon=True).start()
                event = json.loads(ready)
                host = event["endpoint"].removeprefix("http://").removesuffix("/v1")
                yield Stack(host, event["key"], _processes(process.pid))
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(LIMIT_S)


def _processes(supervisor: int) -> dict[str, psutil.Process]:
    by_module = {}
    for process in psutil.Process(supervisor).children(recursive=True):
        words = process.cmdline()
        if "-m" in words:
            by_module[words[words.index("-m") + 1]] = process
    return {name: by_module[module] for name, module in PROCESSES.items()}


def turn(root: Path, chats: int) -> Turn:
    """Serve so many chats from a checkout, after some that warm it."""
    with up(root) as stack, ThreadPoolExecutor(STREAMS) as pool:
        list(pool.map(stack.chat, range(WARM_UP)))
        steps, spent = stack.steps(), stack.spent_s()
        list(pool.map(stack.chat, range(WARM_UP, WARM_UP + chats)))
        after = stack.spent_s()
        used = {name: after[name] - spent[name] for name in spent}
        return Turn({name: s * 1e3 / chats for name, s in used.items()}, used["engine"] * 1e6 / (stack.steps() - steps))


def measure(other: Path, pairs: int, chats: int) -> Measured:
    """Medians of both, and the median ratio of the pairs."""
    ours: list[Turn] = []
    theirs: list[Turn] = []
    for number in range(pairs):
        for root, turns in ((ROOT, ours), (other, theirs))[:: 1 if number % 2 else -1]:
            turns.append(turn(root, chats))
    rows: list[Row] = []
    for name in PROCESSES:
        rows += _compared(
            f"{name}: CPU a chat", "ms", *([one.chat_ms[name] for one in side] for side in (ours, theirs))
        )
    rows += _compared("engine: CPU a step", "µs", *([one.step_us for one in side] for side in (ours, theirs)))
    return rows, {"pairs": pairs, "chats": chats, "streams": STREAMS, "tokens": TOKENS}


def _compared(name: str, unit: str, ours: list[float], theirs: list[float]) -> list[Row]:
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    row = median_row(name, ours, unit, peer=median(theirs))
    return [row, median_row(f"{name}, of a pair", ratios, "ratio", Bar(1.02))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu")
    parser.add_argument("--beside", type=Path, required=True, help="the other checkout, with a .venv of its own")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--chats", type=int, default=400, help="chats of a turn (default: %(default)s)")
    asked = parser.parse_args()
    report("cpu", lambda: measure(asked.beside.resolve(), asked.pairs, asked.chats), SystemClock())
