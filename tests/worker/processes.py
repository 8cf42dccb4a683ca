"""Real worker processes for tests: started with a configuration file, always ended, engine included."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import msgspec
import psutil
import yaml
from tests.worker.harness import SERVICE, settings
from tests.worker.scripted_engine import Script

from paceline_core.auth import TokenSigner, jwk_set, new_signing_key, public_jwk
from paceline_core.auth.internal_token import HEADER
from paceline_core.clock import SystemClock

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0
EMULATED_H100 = {"emulate": {"accelerator": "h100", "model": "llama-3.1-8b", "cold_start_s": 0.0}, "max_seqs": 64}
"""An engine whose steps take as long as on that accelerator."""
_NONE: Mapping[str, str] = MappingProxyType({})
_WITH_ENGINE = "import sys; from paceline_workers.main import main; sys.exit(main(sys.argv[1:]))"


def _engine(script: Script | Sequence[str]) -> list[str]:
    """The command of a scripted engine, or of another module."""
    if isinstance(script, Script):
        script = ("tests.worker.scripted_engine", msgspec.json.encode(script).decode())
    return [sys.executable, "-m", *script]


class WorkerProcess:
    """One worker's API process and what it says on standard error."""

    def __init__(
        self,
        folder: Path,
        script: Script | Sequence[str] | None,
        changes: dict[str, Any],
        environ: Mapping[str, str] = _NONE,
        key: bytes | None = None,
    ) -> None:
        keys = {"gateway": key or new_signing_key(), "autoscaler": new_signing_key()}
        (folder / "jwks.json").write_text(json.dumps(jwk_set([public_jwk(key, name) for name, key in keys.items()])))
        tokens = {name: TokenSigner(key, name).token(SERVICE, SystemClock().utc()) for name, key in keys.items()}
        self.gateway_headers, self.autoscaler_headers = ({HEADER: token} for token in tokens.values())
        config = settings(trust_bundle=folder / "jwks.json", **changes).model_dump(mode="json")
        (folder / "worker.yaml").write_text(yaml.safe_dump(config))
        self._errors = folder / "stderr"
        argv = ["-m", "paceline_workers.main"] if script is None else ["-c", _WITH_ENGINE, *_engine(script)]
        environ = {**os.environ, "PACELINE_CONFIG": str(folder / "worker.yaml"), **environ}
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen([sys.executable, *argv], cwd=ROOT, env=environ, stderr=errors)

    @property
    def url(self) -> str:
        """Where it listens; waits until it does."""
        until(lambda: "listening" in self.said() or self.process.poll() is not None)
        line = next(line for line in self.said().splitlines() if '"listening"' in line)
        return f"http://127.0.0.1:{json.loads(line)['port']}"

    @property
    def engine(self) -> psutil.Process:
        """Its engine process; waits until there is one."""
        until(lambda: psutil.Process(self.process.pid).children())
        return psutil.Process(self.process.pid).children()[0]

    def said(self) -> str:
        """Its standard error so far."""
        return self._errors.read_text()

    def ready(self) -> None:
        """Wait until it is."""
        until(lambda: get(f"{self.url}/readyz") == 200)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def ended(self) -> int:
        """Its exit status; waits for its end."""
        return self.process.wait(LIMIT_S)

    def end(self) -> None:
        """Kill whatever is left."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                child.kill()
        self.process.kill()
        self.process.wait(LIMIT_S)


# one client for all polls: each new one reads the machine's certificates, which takes longer than the request
HTTP = httpx.Client(timeout=LIMIT_S, verify=False, limits=httpx.Limits(max_keepalive_connections=0))


def get(url: str) -> int:
    """A GET's status, 0 without an answer."""
    try:
        return HTTP.get(url).status_code
    except httpx.TransportError:
        return 0


def until(holds: Callable[[], Any]) -> None:
    """Wait until `holds()`, at most LIMIT_S."""
    end = time.monotonic() + LIMIT_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("what the test waits for did not come")
        time.sleep(0.01)


@contextlib.contextmanager
def worker_process(
    folder: Path,
    script: Script | Sequence[str] | None = None,
    *,
    environ: Mapping[str, str] = _NONE,
    **changes: Any,
) -> Iterator[WorkerProcess]:
    """A worker of a scripted engine, of a module's with its arguments, or of the real one; `environ` is on top."""
    worker = WorkerProcess(folder, script, changes, environ)
    try:
        yield worker
    finally:
        worker.end()
