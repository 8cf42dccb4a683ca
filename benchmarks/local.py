"""How long a whole `paceline up --check` takes from a stopped machine, and the first token's time in it.

Each repetition is a fresh process with a fresh state directory: start, one streamed chat, drain, stop.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.harness import ROOT, Bar, Measured, main, median_row

from paceline_core.clock import SystemClock

LIMIT_S = 180.0
MANIFEST = ROOT / "examples" / "chat.yaml"


@dataclass(frozen=True, slots=True)
class Check:
    """One run: from start to exit, the first token, and the decode speed."""

    total_s: float
    ttft_ms: float
    tokens_per_s: float


def check() -> Check:
    """Run it once; raises CalledProcessError with what it said when it failed."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="paceline-local-") as scratch:
        command = [sys.executable, "-m", "paceline_cli", "up", "-f", str(MANIFEST), "--check", "--json", "--port", "0"]
        began = clock.monotonic()
        done = subprocess.run(
            [*command, "--state", str(Path(scratch) / "state")], check=True, capture_output=True, timeout=LIMIT_S
        )
        total = clock.monotonic() - began
    answer = next(line for line in map(json.loads, done.stdout.splitlines()) if line["event"] == "checked")
    return Check(total, answer["ttft_ms"], answer["tokens_per_s"])


def measure(quick: bool) -> Measured:
    """Several checks, after one that warms the disk's cache."""
    check()
    checks = [check() for _ in range(2 if quick else 7)]
    rows = [
        median_row("up --check, start to exit", [run.total_s for run in checks], "s", Bar(20.0)),
        median_row("time to first token", [run.ttft_ms for run in checks], "ms", Bar(300.0)),
        median_row("decode speed, one stream", [run.tokens_per_s for run in checks], "tokens/s"),
    ]
    return rows, {"repetitions": [asdict(run) for run in checks]}


if __name__ == "__main__":
    main("local", measure)
