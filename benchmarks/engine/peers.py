"""Engines in processes of their own, and the virtual environments that peers need.

An environment is made the first time and kept in `${XDG_CACHE_HOME:-~/.cache}/paceline/peers`; llama-cpp-python is
built from source there, for this machine's processor. All wait with a limit.
"""

import json
import os
import select
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engine.lines import Run
from benchmarks.harness import ROOT

LIMIT_S = 300.0
BUILD_LIMIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment of these packages; `takes`: what making it costs, for whoever waits."""

    name: str
    packages: tuple[str, ...]
    takes: str

    @property
    def folder(self) -> Path:
        """Where it lies."""
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(cache, "paceline", "peers", self.name)

    def python(self) -> str:
        """Its interpreter; makes the environment if these packages are not in it."""
        done, interpreter = self.folder / "packages.txt", self.folder / "bin" / "python"
        wanted = "\n".join(self.packages)
        if not done.is_file() or done.read_text() != wanted:
            print(f"making {self.folder} with {', '.join(self.packages)}: {self.takes}", flush=True)
            venv.create(self.folder, with_pip=True)
            command = [str(interpreter), "-m", "pip", "install", "-q", *self.packages]
            subprocess.run(command, check=True, timeout=BUILD_LIMIT_S)
            done.write_text(wanted)
        return str(interpreter)

    def versions(self) -> dict[str, str]:
        """Of what is in it."""
        command = [self.python(), "-m", "pip", "list", "--format", "json"]
        listed = subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
        return {entry["name"]: entry["version"] for entry in json.loads(listed.stdout)}


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
