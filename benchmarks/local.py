"""How long `paceline up --check` takes from a stopped machine: to the end of its first answer, and to its exit.

Each repetition is a fresh process with a fresh state directory: start, one streamed chat, drain, stop.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Timer

from benchmarks.harness import ROOT, Bar, Measured, main, median_row

from paceline_core.clock import SystemClock

LIMIT_S = 180.0
MANIFEST = ROOT / "examples" / "chat.yaml"


@dataclass(frozen=True, slots=True)
class Check:
    """A run: from start to the whole first answer and to exit, the first token of that answer, the decode speed."""

    answered_s: float
    total_s: float
    ttft_ms: float
    tokens_per_s: float


def check() -> Check:
    """Run it once; raises CalledProcessError with what it said when it failed."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="paceline-local-") as scratch:
        command = [sys.executable, "-m", "paceline_cli", "up", "-f", str(MANIFEST), "--check", "--json", "--port", "0"]
        began = clock.monotonic()
        with subprocess.Popen([*command, "--state", str(Path(scratch) / "state")], stdout=subprocess.PIPE) as process:
            assert process.stdout
            watchdog = Timer(LIMIT_S, process.kill)
            watchdog.start()
            came = [(json.loads(line), clock.monotonic() - began) for line in process.stdout]
            watchdog.cancel()
        total = clock.monotonic() - began
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    answer, answered = next((line, at) for line, at in came if line["event"] == "checked")
    return Check(answered, total, answer["ttft_ms"], answer["tokens_per_s"])


def measure(quick: bool) -> Measured:
    """Several checks, after one that warms the disk's cache."""
    check()
    checks = [check() for _ in range(2 if quick else 7)]
    rows = [
        median_row("start to the first answer", [run.answered_s for run in checks], "s", Bar(6.0)),
        median_row("up --check, start to exit", [run.total_s for run in checks], "s", Bar(20.0)),
        median_row("time to first token", [run.ttft_ms for run in checks], "ms", Bar(300.0)),
        median_row("decode speed, one stream", [run.tokens_per_s for run in checks], "tokens/s"),
    ]
    return rows, {"repetitions": [asdict(run) for run in checks]}


if __name__ == "__main__":
    main("local", measure)
