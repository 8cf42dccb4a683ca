"""Runs of a cluster on this machine, and how one ends: nothing of it is left, however its owner ended.

A run is a folder with a lock that its owner and its warden hold. Everything the run starts carries the run's name
in its environment, containers too (their image sets it), so what must end is read from the kernel and no process id
is ever written down. All mounts are in the run's own mount namespace and go with it. A sweep ends all of that and
removes the folder; the owner's end, the warden (when the owner was killed) and the next start (when both were) do
the same sweep. Hole: a container's cgroups stay when everything of the run was killed from outside before a sweep
could read their names.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

MARK = "PACELINE_CLUSTER_RUN"
CONTAINERS = "/run/containerd/state/io.containerd.runtime.v2.task/k8s.io"
CHECKOUT = Path(__file__).parents[3]
SWEEP_LIMIT_S = 60.0


class NotSwept(Exception):
    """Something of a run outlived its limit; the text says what."""


@dataclass(frozen=True, slots=True)
class Run:
    """The name and folder of one run."""

    folder: Path

    @property
    def name(self) -> str:
        """The name, unique on this machine while the folder stands."""
        return self.folder.name

    def environment(self) -> dict[str, str]:
        """What everything of the run carries."""
        return {MARK: self.name}


@dataclass(frozen=True, slots=True)
class OwnedRun:
    """A run with the hold that keeps others from sweeping it."""

    run: Run
    lock: IO[bytes]
    warden: subprocess.Popen[bytes]

    def end(self) -> None:
        """Sweep it, and say what was left if the sweep could not."""
        assert self.warden.stdin is not None
        self.warden.stdin.close()
        self.warden.wait(SWEEP_LIMIT_S + 10)
        self.lock.close()
        if self.run.folder.exists():
            sweep(self.run)


def root() -> Path:
    """Where the runs of this machine have their folders."""
    return Path(tempfile.gettempdir()) / "paceline-clusters"


def open_run() -> OwnedRun:
    """A fresh run with its warden; runs whose owner is dead are swept first."""
    with _alone():
        sweep_dead()
        run = Run(root() / secrets.token_hex(4))
        run.folder.mkdir(mode=0o755)
        lock = (run.folder / "lock").open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return OwnedRun(run, lock, _start_warden(run, lock))


def _start_warden(run: Run, lock: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.harness.warden", str(run.folder)],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        pass_fds=[lock.fileno()],
        start_new_session=True,
    )


def sweep_dead() -> None:
    """Sweep the runs that neither an owner nor a warden holds."""
    for folder in root().iterdir():
        if folder.is_dir() and not _held(folder):
            sweep(Run(folder))


def sweep(run: Run) -> None:
    """End every process of the run and remove its cgroups and its folder."""
    theirs: set[str] = set()
    try:
        until(SWEEP_LIMIT_S, lambda: _cleared(run, theirs), f"processes and cgroups of the run {run.name} end")
    except NotSwept as error:
        raise NotSwept(f"{error}; there still: {_there(run, theirs)}") from error
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if here := [mount for mount in mounts if Path(mount).is_relative_to(run.folder)]:
        raise NotSwept(f"mounted in {run.folder}, so it is not removed: {here}")
    shutil.rmtree(run.folder, ignore_errors=True)


def until(limit_s: float, holds: Callable[[], bool], what: str) -> None:
    """Wait, with a limit, for what the kernel tells only who asks."""
    end = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end:
            raise NotSwept(f"waited {limit_s:.0f} s and not seen: {what}")
        time.sleep(0.02)


def members(run: Run) -> list[int]:
    """The process ids of all that runs for it, containers included; zombies are no longer."""
    mark = f"{MARK}={run.name}".encode()
    marked = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and mark in _environ(path)}
    return sorted(marked - {os.getpid()})


def containers(run: Run) -> set[str]:
    """The names of the run's containers, dead ones too, as its container runtime knows them."""
    views = [Path(f"/proc/{process}/root{CONTAINERS}") for process in members(run)]
    found: set[str] = set()
    for view in views:
        with contextlib.suppress(OSError):
            found.update(path.name for path in view.iterdir())
    return found


def cgroups(names: set[str]) -> list[Path]:
    """The containers' folders in the cgroup tree, of either version."""
    top = Path("/sys/fs/cgroup")
    parents = [place / "k8s.io" for place in [top, *top.iterdir()]]
    mine = [parent / name for parent in parents for name in names]
    return [Path(path) for place in mine for path, _, _ in os.walk(place, topdown=False)]


def processes_of(container: str) -> list[int]:
    """The process ids of one container, its first process first, as this machine counts them."""
    return sorted({process for folder in cgroups({container}) for process in _inside(folder)})


def _inside(folder: Path) -> list[int]:
    try:
        return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _environ(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _cleared(run: Run, seen: set[str]) -> bool:
    """Kill all that is there now and remove what is empty; whether that was all. Adds what it sees to `seen`.

    In a container's cgroup there may be what does not carry the mark: a runtime's helper before it becomes the
    container, or a process whose first thread has ended. A runtime that was killed half-way may have left it
    suspended, and nothing suspended dies.
    """
    seen |= containers(run)
    _thaw(seen)
    there = _processes(run, seen)
    for process in there:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return _remove_cgroups(seen) and not there


def _processes(run: Run, names: set[str]) -> set[int]:
    return {*members(run), *(process for name in names for process in processes_of(name))}


def _there(run: Run, names: set[str]) -> list[str]:
    files = [Path(f"/proc/{process}/stat") for process in _processes(run, names)]
    return [file.read_text() for file in files if file.exists()] + [str(folder) for folder in cgroups(names)]


def _thaw(names: set[str]) -> None:
    for folder in cgroups(names):
        for file, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            if (folder / file).exists():
                with contextlib.suppress(OSError):
                    (folder / file).write_text(word)


def _remove_cgroups(names: set[str]) -> bool:
    for folder in cgroups(names):
        with contextlib.suppress(OSError):
            folder.rmdir()
    return not cgroups(names)


def _held(folder: Path) -> bool:
    try:
        with (folder / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    root().mkdir(mode=0o755, exist_ok=True)
    with (root() / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
