"""Processes that are forked of one that has imported everything: each starts two or three seconds sooner.

That one is made anew, never forked of the tests' own process; what it forks dies, exits and takes signals like any.
"""

import importlib
import multiprocessing
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

OPERATOR = "tests.cluster.crashing_operator"
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([OPERATOR])


@dataclass(frozen=True, slots=True)
class Fork:
    """A process, with the words of `subprocess.Popen`."""

    process: ForkServerProcess

    def poll(self) -> int | None:
        """Its exit status, the number of what killed it below zero, or None while it runs."""
        return self.process.exitcode

    def wait(self, limit_s: float) -> int:
        """Its exit status, once it has one."""
        self.process.join(limit_s)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(self.process.name, limit_s)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """As from anybody."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()


def fork_operator(log: Path, environment: Mapping[str, str], dies_after: int) -> Fork:
    """An operator that dies after its n-th write, never when that is 0."""
    process = _FORKS.Process(target=_run, args=(log, dict(environment), dies_after), name=log.stem, daemon=True)
    process.start()
    return Fork(process)


def _run(log: Path, environment: dict[str, str], dies_after: int) -> None:
    with log.open("wb") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.environ.update(environment)
    importlib.import_module(OPERATOR).run(dies_after)
