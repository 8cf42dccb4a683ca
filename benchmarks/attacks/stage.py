"""Everybody that takes part: a gateway and two workers on one core, attacker and neighbour on the other, and a store.

All of them are in one session, since Linux may share a core between sessions first (`sched_autogroup_enabled`) and
between processes only then: a gateway in a session of its own waited up to 7 s for its core while an engine computed,
under `nice -n -10` too. `waited` tells how long each has waited for the core, so a gap can be told from the machine's.

What has ended, or does not come back to life in time, is started anew and counted: it is what a kubelet would have
done. Resident memory is read ten times a second, of the gateway and of each worker with its engine.
"""

import contextlib
import multiprocessing
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
from benchmarks.attacks import attacker, neighbour
from benchmarks.attacks.attacker import Place, Sent
from benchmarks.attacks.case import Case, Model, Port
from benchmarks.attacks.neighbour import Felt
from benchmarks.attacks.tokens import odd_tokens
from benchmarks.gateway import ours
from benchmarks.gateway.contestant import CORE, LOAD_CORE, START_S, Contestant, on_core
from benchmarks.harness import ROOT
from tests.ports import free_port
from tests.worker.processes import EMULATED_H100, WorkerProcess

from paceline_core.auth import new_signing_key
from paceline_core.clock import SystemClock

MIB = 1 << 20
BODIES = 256 * MIB
"""What the gateway may hold of bodies: less than its default, so that a few seconds could fill it."""
SAMPLE_S = 0.1
POD_BYTES = 2048 * MIB
"""Who holds more is killed, as it would be in its pod."""
_NONE: Mapping[str, Any] = MappingProxyType({})
_ENGINES: Mapping[Model, dict[str, Any]] = {
    Model.EMULATED: EMULATED_H100,
    Model.REAL: {"threads": 1, "max_seqs": 16},
}


@dataclass(slots=True)
class Talker:
    """A process of ours, and its end of the pipe."""

    process: "multiprocessing.context.SpawnProcess"
    pipe: Connection

    def ask(self, question: Any) -> Any:
        """Its answer."""
        self.pipe.send(question)
        return self.pipe.recv()

    def end(self) -> None:
        """It is asked to end, and ended if it does not."""
        with contextlib.suppress(OSError):
            self.pipe.send(None)
        self.process.join(2)
        self.process.kill()


@dataclass(slots=True)
class Stage:
    """`workers` by model; `peaks`: most bytes resident since the last look, by who."""

    folder: Path
    ports: Mapping[Model, int]
    signing_key: bytes
    key: str
    gateway: Contestant
    workers: dict[Model, WorkerProcess]
    attacker: Talker
    neighbour: Talker
    peaks: dict[str, int] = field(default_factory=dict)
    rest: dict[str, int] = field(default_factory=dict)
    restarts: list[str] = field(default_factory=list)
    _ids: dict[str, int] = field(default_factory=dict)

    def attack(self, case: Case, seconds: float, turns: int | None = None) -> Sent:
        """Run one case, or so many turns of it."""
        sent: Sent = self.attacker.ask((case, seconds, turns))
        return sent

    def choose(self, model: Model) -> None:
        """Where the neighbour's streams come from."""
        self.neighbour.ask(model)

    def flows(self) -> bool:
        """Whether the neighbour's streams run, at last after its patience."""
        return bool(self.neighbour.ask("flows"))

    def felt(self) -> Felt:
        """What the neighbour felt since the last time."""
        felt: Felt = self.neighbour.ask("felt")
        return felt

    def look(self) -> None:
        """Resident memory now."""
        for who, members in self._members().items():
            size = sum(map(_resident, members))
            self.peaks[who] = max(self.peaks.get(who, 0), size)
            if size > POD_BYTES:
                _kill(max(members, key=_resident))

    def taken(self) -> dict[str, int]:
        """Bytes that each held at most beyond what it held at rest, since the last time."""
        peaks, self.peaks = self.peaks, {}
        return {who: max(size - self.rest.get(who, 0), 0) for who, size in peaks.items()}

    def busy(self) -> dict[str, float]:
        """Processor seconds that each process has used since it began."""
        return {who: _spent(pid) for who, pid in self._process_ids().items()}

    def waited(self) -> dict[str, float]:
        """Seconds that each process's first thread could have run and got no core, since it began."""
        return {who: _queued(pid) for who, pid in self._process_ids().items()}

    def ended(self) -> list[str]:
        """Whose process is not the one that it was."""
        now = self._process_ids()
        return [who for who, pid in self._ids.items() if now.get(who) != pid]

    def settle(self, *names: str) -> None:
        """These are the processes now, and this is what they hold at rest; of some, or of all."""
        self.peaks = {}
        self.look()
        self.rest |= {who: size for who, size in self.peaks.items() if who in names or not names}
        self.peaks = {}
        self._ids = self._process_ids()

    def revive(self, who: list[str]) -> None:
        """Start these anew."""
        self.restarts += who
        for model in self.workers:
            if {f"worker {model}", f"engine of {model}"} & set(who):
                self.workers[model].end()
                self.workers[model] = _worker(self.folder, model, self.ports[model], self.signing_key)
                self.workers[model].ready()
        if "gateway" in who:
            self.gateway.end()
            self.gateway.start()
            self.gateway.wait_listening()
        self.settle(*(name.replace("engine of", "worker") for name in who))

    def end_workers(self) -> None:
        """Kill them, those that were started anew too."""
        for worker in self.workers.values():
            worker.end()

    def _members(self) -> dict[str, list[psutil.Process]]:
        found = {"gateway": self.gateway.family()}
        for model, worker in self.workers.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                first = psutil.Process(worker.process.pid)
                found[f"worker {model}"] = [first, *first.children(recursive=True)]
        return found

    def _process_ids(self) -> dict[str, int]:
        found = dict[str, int]()
        for who, members in self._members().items():
            alive = [member for member in members if _lives(member)]
            found |= {who: alive[0].pid} if alive else {}
            if who.startswith("worker") and len(alive) > 1:
                found[who.replace("worker", "engine of")] = alive[1].pid
        return found


@contextlib.contextmanager
def stage(models: Sequence[Model] = tuple(Model), limits: Mapping[str, Any] = _NONE) -> Iterator[Stage]:
    """All of them, ready; everything is ended by its process id. `limits`: settings of the gateway."""
    attacker.raise_files()
    with tempfile.TemporaryDirectory(prefix="paceline-attacks-") as scratch, contextlib.ExitStack() as stack:
        folder, signing_key = Path(scratch), new_signing_key()
        ports = {model: free_port() for model in models}
        workers = {model: _worker(folder, model, ports[model], signing_key) for model in models}
        keys = stack.enter_context(_cluster(folder, ports)).split()
        more = {"limits": {"memory_bytes": BODIES} | dict(limits)}
        settings = ours.settings("paceline", folder / "gateway", folder, signing_key, more)
        gateway = ours.of_settings("paceline", settings, keys[0])
        stack.callback(gateway.end)
        gateway.start()
        gateway.wait_listening()
        place = Place(_places(gateway, ports), _names(keys, signing_key))
        striker = _talker(attacker.serve, LOAD_CORE, place)
        stack.callback(striker.end)
        friend = _talker(neighbour.serve, LOAD_CORE, gateway.port, keys[0])
        stack.callback(friend.end)
        made = Stage(folder, ports, signing_key, keys[0], gateway, workers, striker, friend)
        stack.callback(made.end_workers)
        for worker in workers.values():
            worker.ready()
        stack.enter_context(_watched(made))
        yield made


def _worker(folder: Path, model: Model, port: int, signing_key: bytes) -> WorkerProcess:
    place = folder / f"{model}-{time.monotonic_ns()}"
    place.mkdir()
    names = {"service": f"default/{model}", "name": f"{model}-0", "served_names": [model.value, f"default/{model}"]}
    config = names | {"listen": {"host": "127.0.0.1", "port": port}, "anonymous": False, "engine": _ENGINES[model]}
    with on_core(CORE):
        return WorkerProcess(place, None, config, {}, signing_key)


def _places(gateway: Contestant, workers: Mapping[Model, int]) -> dict[Port, int]:
    return {Port.PUBLIC: gateway.port, Port.ADMIN: ours.admin_port(gateway), Port.WORKER: workers[Model.EMULATED]}


def _names(keys: list[str], signing_key: bytes) -> dict[str, str]:
    wrong = keys[1][:-1] + ("A" if keys[1][-1] != "A" else "B")
    known = {"GUEST": keys[1], "ZERO": keys[2], "WRONG": wrong}
    return known | odd_tokens(signing_key, f"default/{Model.EMULATED}", SystemClock().utc())


def _talker(target: Callable[..., None], *arguments: Any) -> Talker:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    return Talker(process, mine)


@contextlib.contextmanager
def _cluster(folder: Path, ports: Mapping[Model, int]) -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.attacks.cluster",
        str(folder),
        *(f"{model}={port}" for model, port in ports.items()),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None
        if not (line := process.stdout.readline().decode()):
            raise RuntimeError("the store of the benchmark has ended")
        yield line
    finally:
        process.terminate()
        process.wait(START_S)


@contextlib.contextmanager
def _watched(made: Stage) -> Iterator[None]:
    over = threading.Event()

    def watch() -> None:
        while not over.wait(SAMPLE_S):
            made.look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _resident(member: psutil.Process) -> int:
    try:
        return int(member.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _spent(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _queued(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _kill(member: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        member.kill()


def _lives(member: psutil.Process) -> bool:
    try:
        return bool(member.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
