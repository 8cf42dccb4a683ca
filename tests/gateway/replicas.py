"""Real workers behind a test's gateway: processes that can be killed, and asked to give their streams up."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.gateway.stand import Stand
from tests.gateway.worker_double import SERVICE
from tests.worker.processes import HTTP, WorkerProcess

from paceline_core.auth import TokenSigner
from paceline_core.auth.internal_token import HEADER
from paceline_core.clock import SystemClock
from paceline_core.kube import Endpoint
from paceline_core.wire import LoadReport, decode

_NONE: Mapping[str, str] = MappingProxyType({})
EMULATED = {"emulate": {"accelerator": "l4", "model": "llama-3.1-8b", "cold_start_s": 0.0}, "max_seqs": 256}
"""A slow one, some 20 tokens a second: streams last long enough to be hit on a busy machine."""


class Replica:
    """One worker process, by the name that the gateway knows it by."""

    def __init__(
        self, folder: Path, name: str, signing_key: bytes, environ: Mapping[str, str] = _NONE, **changes: Any
    ) -> None:
        folder.mkdir()
        self.name = name
        self._signing_key = signing_key
        self.process = WorkerProcess(folder, None, {"service": SERVICE, "name": name} | changes, environ, signing_key)

    @property
    def endpoint(self) -> Endpoint:
        """As the cluster lists it; waits until it listens."""
        port = int(self.process.url.rpartition(":")[2])
        return Endpoint(self.name, "main", "stable", "r1", "127.0.0.1", port, ready=True)

    @property
    def gateway_headers(self) -> dict[str, str]:
        """A gateway's header."""
        return {HEADER: TokenSigner(self._signing_key, "gateway").token(SERVICE, SystemClock().utc())}

    def load(self) -> LoadReport:
        """How it says it is."""
        with HTTP.stream("GET", f"{self.process.url}/internal/load", headers=self.gateway_headers) as answer:
            return decode(LoadReport, next(answer.iter_lines()).encode())

    def evacuate(self) -> int:
        """Ask it to give up what it has; how many streams that was."""
        answer = HTTP.post(f"{self.process.url}/internal/evacuate", json={"v": 1}, headers=self.gateway_headers)
        moved: int = answer.raise_for_status().json()["moved"]
        return moved

    def kill(self) -> None:
        """SIGKILL, and nothing is left of it."""
        self.process.process.kill()
        self.process.process.wait()


@contextlib.contextmanager
def replicas(
    folder: Path, count: int, signing_key: bytes, environ: Mapping[str, str] = _NONE, **changes: Any
) -> Iterator[list[Replica]]:
    """So many, all ready; ended at the end. `environ` is on top of ours."""
    made = [Replica(folder / f"w{index}", f"w{index}", signing_key, environ, **changes) for index in range(count)]
    try:
        for replica in made:
            replica.process.ready()
        yield made
    finally:
        for replica in made:
            replica.process.end()


def holder(stand: Stand, workers: Sequence[Replica]) -> Replica:
    """Who answers the only request."""
    (call,) = stand.calls
    (found,) = [worker for worker in workers if worker.name == call.machine.worker]
    return found
