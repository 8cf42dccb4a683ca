"""Engines in processes of their own; llama-cpp-python is built from source, for this machine's processor.

All wait with a limit.
"""

import json
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.engine.lines import Run
from benchmarks.harness import ROOT
from benchmarks.peers import LIMIT_S, Environment

LLAMA = Environment(
    "llama-cpp",
    ("llama-cpp-python==0.3.36", "ninja", "numpy", "gguf"),
    "10 to 20 minutes on two cores, once",
)


class Engine:
    """A runner's process; jobs go in one at a time."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = " ".join(command)
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._read()

    def run(self, prompts: Sequence[Sequence[int]], new: int, **more: Any) -> Run:
        """One batch."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompts": prompts, "new": new, **more}).encode() + b"\n")
        self._process.stdin.flush()
        return Run(**self._read())

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate(timeout=LIMIT_S)

    def _read(self) -> dict[str, Any]:
        """Its next line; whoever is silent for too long is ended."""
        output = self._process.stdout
        assert output is not None
        if not select.select([output], [], [], LIMIT_S)[0]:
            self.close()
            raise TimeoutError(f"no answer within {LIMIT_S:.0f} s from {self._command}")
        line = output.readline()
        if not line:
            raise EOFError(f"{self._command} has ended with {self._process.wait(LIMIT_S)}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def engine(python: str, module: str, folder: Path, threads: int, *, core: int | None = None) -> Iterator[Engine]:
    """A runner of this package over a model folder, on one core if wanted."""
    runner = [f"benchmarks.engine.{module}", str(folder), str(threads)]
    pinned = [] if core is None else ["benchmarks.engine.pinned", str(core)]
    started = Engine([python, "-m", *pinned, *runner])
    try:
        yield started
    finally:
        started.close()


OURS = sys.executable
