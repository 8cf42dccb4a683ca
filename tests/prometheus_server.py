"""A real Prometheus for a test, gone with the block."""

import contextlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.ports import free_port

ATTEMPTS = 3


@contextlib.contextmanager
def prometheus_server(program: str | Path, folder: Path, config: dict[str, Any], *flags: str) -> Iterator[str]:
    """The URL of a server with this configuration that answers queries; data and log lie in `folder`."""
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    process, url = _started(program, folder, flags)
    try:
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _started(program: str | Path, folder: Path, flags: Sequence[str]) -> tuple[subprocess.Popen[bytes], str]:
    """A free port may be taken by somebody else before Prometheus takes it; then another is tried."""
    for _ in range(ATTEMPTS):
        port = free_port()
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([*_argv(program, folder, port), *flags], stderr=log, stdout=log)
        while process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}/-/ready", timeout=1.0, trust_env=False).is_success:
                    return process, f"http://127.0.0.1:{port}"
            time.sleep(0.05)
    pytest.fail(f"prometheus does not start: {(folder / 'log').read_text()[-500:]}")


def _argv(program: str | Path, folder: Path, port: int) -> list[str]:
    return [
        str(program),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
