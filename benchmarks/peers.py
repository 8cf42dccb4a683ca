"""Virtual environments of the programs that benchmarks compare with.

An environment is made the first time and kept in `${XDG_CACHE_HOME:-~/.cache}/paceline/peers`.
"""

import json
import os
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

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
