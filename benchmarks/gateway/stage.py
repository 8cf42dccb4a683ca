"""Everybody that a benchmark needs, from start to end: two upstreams, the cluster of ours, and the contestants.

Upstreams, cluster and client share core 0, contestants take turns on core 1. A contestant that cannot start is left
out, and `failed` says why.
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

import uvloop
from benchmarks.gateway import ours
from benchmarks.gateway.client import Load, Target
from benchmarks.gateway.contestant import CORE, LOAD_CORE, START_S, Contestant, Failed, Times, on_core, spent_s
from benchmarks.gateway.rivals import RIVALS
from benchmarks.gateway.script import Script
from benchmarks.gateway.work import bodies
from benchmarks.harness import ROOT

OURS = "paceline"
DIRECT = "direct"
UPSTREAMS = 2
WARM_UP = 64
TRIES, PAUSE_S = 100, 0.2
SETTLE_S, LOOK_S, IDLE_LOOKS, IDLE_SHARE = 5.0, 0.2, 2, 0.03
TROUBLE = (OSError, Failed)
"""What goes wrong with one contestant and not with the benchmark; OSError holds TimeoutError too."""


@dataclass(slots=True)
class Stage:
    """`contestants` by name, ours first; each is stopped while it is not its turn."""

    upstreams: tuple[int, ...]
    keys: tuple[str, ...]
    contestants: dict[str, Contestant] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def script(self, script: Script) -> None:
        """What upstreams answer from now on."""
        for port in self.upstreams:
            data = json.dumps(asdict(script)).encode()
            urllib.request.urlopen(f"http://127.0.0.1:{port}/script", data, START_S).close()

    def counts(self, name: str) -> int:
        """One of the upstreams' counts, of all of them."""
        total = 0
        for port in self.upstreams:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/counts", timeout=START_S) as answer:
                total += json.load(answer)[name]
        return total

    @property
    def direct(self) -> Target:
        """No gateway at all."""
        return Target(DIRECT, self.upstreams)

    def drop(self, name: str, error: Exception) -> None:
        """It takes part no more. Ends it, and says why."""
        self.failed[name] = f"{error!r}" if not isinstance(error, Failed) else str(error)
        sys.stderr.write(f"{name} is out: {self.failed[name]}\n")
        if name in self.contestants:
            self.contestants.pop(name).end()

    def times(self, name: str) -> Times:
        """Processor time of a contestant so far; nothing of `direct`."""
        return {} if name == DIRECT else self.contestants[name].times()

    @contextlib.contextmanager
    def turn(self, name: str, script: Script) -> Iterator[Target]:
        """One contestant runs, warmed up; `direct` is nobody."""
        if name == DIRECT:
            self.script(script)
            yield self.direct
            return
        contestant = self.contestants[name]
        contestant.go()
        try:
            self.script(Script())
            _warm(contestant)
            self.script(script)
            yield contestant.target
        finally:
            contestant.stop()


@contextlib.contextmanager
def stage(rivals: Sequence[str], trees: Sequence[Path] = ()) -> Iterator[Stage]:
    """Ours, these rivals, and ours of other checkouts. Everything is ended by its process id."""
    if not os.sched_getaffinity(0) >= {CORE, LOAD_CORE}:
        raise SystemExit(f"cores {LOAD_CORE} and {CORE} are needed: one for upstreams and client, one for the gateway")
    if not Path("/proc/self/schedstat").exists():
        raise SystemExit("this kernel does not tell a thread's processor time (/proc/self/schedstat)")
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))  # thousands of streams, here and in what is started
    with tempfile.TemporaryDirectory(prefix="paceline-gateway-") as scratch, contextlib.ExitStack() as stack:
        folder = Path(scratch)
        stack.enter_context(on_core(LOAD_CORE))
        names = [f"w{index}" for index in range(UPSTREAMS)]
        upstreams = [int(stack.enter_context(_helper("benchmarks.gateway.upstream", name))) for name in names]
        keys = stack.enter_context(_helper("benchmarks.gateway.cluster", str(folder), *map(str, upstreams))).split()
        made = Stage(tuple(upstreams), tuple(keys))
        made.script(Script())
        for name, make in _entrants(made, folder, rivals, trees).items():
            _enter(stack, made, name, make)
        yield made


def _entrants(
    made: Stage, folder: Path, rivals: Sequence[str], trees: Sequence[Path]
) -> dict[str, Callable[[], Contestant]]:
    """Who takes part, ours first, and how each is made ready to start."""
    own = {OURS: ROOT} | {f"{OURS} of {tree.name}": tree for tree in trees}
    ready: dict[str, Callable[[], Contestant]] = {
        name: partial(ours.gateway, name, folder / name.replace(" ", "-"), folder, made.keys[0], tree)
        for name, tree in own.items()
    }
    return ready | {name: partial(RIVALS[name].contestant, folder / name, made.upstreams) for name in rivals}


def _enter(stack: contextlib.ExitStack, made: Stage, name: str, make: Callable[[], Contestant]) -> None:
    """Start it, and stop it until its turn; or note why it cannot take part."""
    try:
        contestant = make()
        stack.callback(contestant.end)
        contestant.start()
        contestant.wait_listening()
        _serves(contestant)
    except (*TROUBLE, subprocess.SubprocessError) as error:
        made.drop(name, error)
        return
    contestant.stop()
    made.contestants[name] = contestant


def _serves(contestant: Contestant) -> None:
    """Wait until it answers as it should: it listens before it knows its upstreams, and forgets them while stopped."""
    complaint = ""
    for _ in range(TRIES):
        try:
            tally = uvloop.run(Load(contestant.target, Script(), bodies(1)).closed(1, 1))
            if not tally.errors:
                return
            complaint = tally.complaints[0]
        except OSError as error:
            complaint = repr(error)
        if contestant.ended:
            raise Failed(contestant, "has ended")
        time.sleep(PAUSE_S)
    raise Failed(contestant, f"does not serve: {complaint}")


def _warm(contestant: Contestant) -> None:
    """Bring it back to where it was: what it missed while it was stopped (timeouts, watches) must not be measured."""
    _serves(contestant)
    uvloop.run(Load(contestant.target, Script(), bodies(WARM_UP)).closed(8, WARM_UP))
    idle, end = 0, time.monotonic() + SETTLE_S
    while idle < IDLE_LOOKS and time.monotonic() < end:
        before = contestant.times()
        time.sleep(LOOK_S)
        idle = idle + 1 if spent_s(before, contestant.times()) < IDLE_SHARE * LOOK_S else 0


@contextlib.contextmanager
def _helper(module: str, *arguments: str) -> Iterator[str]:
    """A process of ours beside the contestants: the line that it says when it is there."""
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, cwd=ROOT)
    try:
        yield _line(process.stdout)
    finally:
        process.terminate()
        process.wait(START_S)


def _line(output: IO[bytes] | None) -> str:
    line = output.readline().decode() if output is not None else ""
    if not line:
        raise RuntimeError("a helper of the benchmark has ended")
    return line
