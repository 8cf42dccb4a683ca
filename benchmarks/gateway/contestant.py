"""A gateway under test: a program on one core with all its processes and threads, stopped while others are measured.

Processor time is the kernel's, in nanoseconds, over all threads that still live at the end of a measurement.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from benchmarks.gateway.client import Target

CORE, LOAD_CORE = 1, 0
START_S, END_S, POLL_S = 90.0, 10.0, 0.05
Times = Mapping[tuple[int, int], int]
"""Nanoseconds by process and thread."""


@dataclass(slots=True)
class Contestant:
    """`port` is where it listens; `key` opens it."""

    name: str
    command: Sequence[str]
    port: int
    log: Path
    key: str = "none"
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def target(self) -> Target:
        """For the client."""
        return Target(self.name, (self.port,), self.key)

    def start(self) -> None:
        """On its core, in our session: cores may be shared between sessions first. Its output goes to the log."""
        with self.log.open("wb") as log, on_core(CORE):
            self.process = subprocess.Popen(
                self.command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **self.environment}, process_group=0,
            )  # fmt: skip

    def wait_listening(self) -> None:
        """Raises Failed if it ends, or does not listen in time."""
        end = time.monotonic() + START_S
        while not listens(self.port):
            if self.ended:
                raise Failed(self, "has ended")
            if time.monotonic() > end:
                raise Failed(self, f"does not listen after {START_S:.0f} s")
            time.sleep(POLL_S)

    @property
    def ended(self) -> bool:
        """It is there no more, or was never started."""
        return self.process is None or self.process.poll() is not None

    def stop(self) -> None:
        """Send SIGSTOP to each of its processes."""
        self._signal(signal.SIGSTOP)

    def go(self) -> None:
        """Send SIGCONT to each of its processes."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """End each of its processes by its id."""
        family = self.family()
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.resume()
                member.terminate()
        _, alive = psutil.wait_procs(family, END_S)
        for member in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        if self.process is not None:
            self.process.wait(END_S)

    def times(self) -> Times:
        """Processor time so far."""
        found = {}
        for member in self.family():
            for place in Path(f"/proc/{member.pid}/task").glob("*/schedstat"):
                with contextlib.suppress(OSError):
                    found[member.pid, int(place.parent.name)] = int(place.read_text().split()[0])
        return found

    def memory_mb(self) -> float:
        """Resident memory of all its processes."""
        return sum(member.memory_info().rss for member in self.family()) / 1e6

    def family(self) -> list[psutil.Process]:
        """Its process and what that has started."""
        if self.process is None or not psutil.pid_exists(self.process.pid):
            return []
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-800:] if self.log.exists() else ""

    def _signal(self, number: int) -> None:
        for member in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                member.send_signal(number)


class Failed(Exception):
    """A contestant that cannot be measured, and why."""

    def __init__(self, contestant: Contestant, why: str) -> None:
        super().__init__(f"{contestant.name} {why}; it said: {contestant.tail() or 'nothing'}")
        self.name = contestant.name


def spent_s(before: Times, after: Times) -> float:
    """Processor seconds between two readings."""
    return sum(time - before.get(thread, 0) for thread, time in after.items()) / 1e9


def listens(port: int) -> bool:
    """Whether somebody accepts connections there; a port that nobody has may be given to who asks, and is no answer."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0 and probe.getsockname() != probe.getpeername()


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is started meanwhile stays on this core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
