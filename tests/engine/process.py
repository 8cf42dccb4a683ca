"""A real engine process for tests, ended whatever happens."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.engine.peer import LIMIT_S, Peer

from paceline_core.config import FILE_VARIABLE


class Engine:
    """The process and the peer that talks to it."""

    def __init__(self, process: subprocess.Popen[bytes], peer: Peer) -> None:
        self.process = process
        self.peer = peer

    def start(self) -> None:
        """Wait for Started."""
        self.peer.until(lambda peer: peer.started)

    def status(self) -> int:
        """Its exit status, once it has ended by itself."""
        return self.process.wait(timeout=LIMIT_S)


@contextmanager
def engine(config: Path, **environ: str) -> Iterator[Engine]:
    """An engine of this configuration; `environ` is on top of ours."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline_workers.engine", "--fd", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            env={**os.environ, FILE_VARIABLE: str(config), **environ},
        )
        theirs.close()
        try:
            yield Engine(process, Peer(ours))
        finally:
            process.kill()
            process.wait(timeout=LIMIT_S)
