"""Child processes: each in its own process group, ended with the supervisor, restarted with back-off.

The group keeps the terminal's Ctrl-C with the supervisor. It contains the child and the child's children, so that they
are killed when the child has ended. All are in the supervisor's session: where Linux first divides processor time
between sessions (`sched_autogroup_enabled`), a busy child in its own session would get as much as all others together.
On Linux the kernel kills the child if the supervisor is killed; elsewhere a supervisor killed by SIGKILL leaves its
children running (known hole).

A process that ended stays down for half a second, doubling to thirty, reset after a healthy minute. A component of the
control plane (gateway, autoscaler, Prometheus) is a supervised process with one URL that reports its readiness.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from paceline_core.clock import Clock
from paceline_core.errors import PacelineError, Unreachable
from paceline_core.launch import Probe, to_manifest_field
from paceline_core.telemetry import get_logger
from paceline_local import HOST
from paceline_local.context import RunContext
from paceline_local.rundir import tail, unwritable

FIRST_S = 0.5
LIMIT_S = 30.0
HEALTHY_S = 60.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Consecutive exits, and how long to stay down after the last one (seconds)."""

    exits: int = 0
    delay_s: float = 0.0

    def after_exit(self, lived_s: float) -> "Backoff":
        """The next state after a process that lived `lived_s` seconds."""
        earlier = 0 if lived_s >= HEALTHY_S else self.exits
        return replace(self, exits=earlier + 1, delay_s=min(LIMIT_S, FIRST_S * 2.0 ** min(earlier, 16)))


CANNOT_START = 127
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path


async def spawn(command: Command) -> Process:
    parent = os.getpid()

    def end_with_parent() -> None:
        assert _libc is not None
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(CANNOT_START)

    with command.log.open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *command.argv,
            env={**os.environ, **command.env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            preexec_fn=end_with_parent if _libc else None,
        )


class Supervised:
    """Keeps a command running until it is stopped. `prepare` makes the command before each start."""

    def __init__(self, name: str, prepare: Callable[[], Command], clock: Clock, changed: Callable[[], None]) -> None:
        self.name = name
        self.child: Process | None = None
        self.backoff = Backoff()
        self.last_exit: int | None = None
        self.refusal = ""
        """Why the last start failed; empty if a process was started."""
        self._prepare = prepare
        self._clock = clock
        self._changed = changed
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"supervise {self.name}")

    async def stop(self, grace_s: float) -> None:
        self._stopping.set()
        self._terminate()
        if self._task and not (await asyncio.wait([self._task], timeout=grace_s))[0]:
            _log.warning("still running after its grace; killed", extra={"part": self.name, "grace_s": grace_s})
            self.kill()
            await self._task

    def kill(self) -> None:
        self._stopping.set()
        self.restart()

    @property
    def ending(self) -> str:
        """How it ended last and when it restarts, for users."""
        if self.refusal:
            return f"{self.name} cannot be started: {self.refusal}; tried again in {self.backoff.delay_s:g} s"
        code = self.last_exit or 0
        how = f"signal {-code}" if code < 0 else f"status {code}"
        return f"{self.name} ended ({how}); started again in {self.backoff.delay_s:g} s"

    def restart(self) -> None:
        """Kill the process and its children; it restarts."""
        if self.child:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child.pid, signal.SIGKILL)

    def _terminate(self) -> None:
        if self.child:
            with contextlib.suppress(ProcessLookupError):
                self.child.terminate()

    async def _run(self) -> None:
        while not self._stopping.is_set():
            born = self._clock.monotonic()
            self.last_exit = await self._once()
            self.backoff = self.backoff.after_exit(self._clock.monotonic() - born)
            self._changed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.backoff.delay_s):
                    await self._stopping.wait()

    async def _once(self) -> int:
        try:
            self.child = await spawn(self._prepare())
        except (OSError, ValueError, PacelineError) as error:  # ValueError: a NUL in an argument or variable
            self.refusal = str(error)
            if isinstance(error, OSError) and error.strerror:
                self.refusal = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
            _log.exception("cannot be started", extra={"part": self.name, "reason": self.refusal})
            return CANNOT_START
        self.refusal = ""
        if self._stopping.is_set():
            self._terminate()
        self._changed()
        code = await self.child.wait()
        self.restart()  # kill the children that it left
        self.child = None
        _log.info("ended", extra={"part": self.name, "code": code})
        return code


POLL_S = 0.1
ENDS_TOLERATED = 2


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """The command to run, the URL of its readiness, and its grace period (seconds)."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str]
    port: int
    ready: Probe
    grace_s: float


class Component(Supervised):
    """A component from start to stop. `on_event` gets its name and a sentence when it ends unexpectedly."""

    def __init__(self, spec: ComponentSpec, site: RunContext, on_event: Callable[[str, str], None]) -> None:
        self.spec = spec
        self.log = site.run.log(spec.name)
        self._site = site
        self._on_event = on_event
        self._ready = False
        self._waiting: asyncio.Task[None] | None = None
        command = Command(spec.argv, spec.env, self.log)
        super().__init__(spec.name, lambda: command, site.clock, self._on_process)

    @property
    def state(self) -> str:
        """`down`; `starting` from a process's start until it is first ready; then `running`.

        Once `stop` is called it is `draining`, and finally `stopped`.
        """
        if self._stopping.is_set():
            return "draining" if self.child else "stopped"
        if self.child is None:
            return "down"
        return "running" if self._ready else "starting"

    async def wait_ready(self) -> None:
        """Return when it is ready; raises Unreachable with the end of its log if it is not within its limit."""
        limit_s = self.spec.ready.period_s * self.spec.ready.failures
        began = self._clock.monotonic()
        while not self._ready:
            if self.backoff.exits >= ENDS_TOLERATED:
                what = f"ended {self.backoff.exits} times while it started"
                raise failure(self.name, what, self.log, self.refusal)
            if self._clock.monotonic() - began > limit_s:
                raise failure(self.name, f"is not ready after {limit_s} s", self.log)
            await self._clock.sleep(POLL_S)

    def _on_process(self) -> None:
        self._ready = False
        if self._waiting:
            self._waiting.cancel()
        if self.child:
            self._waiting = asyncio.create_task(self._await_ready(), name=f"await {self.name}")
        elif not self._stopping.is_set():
            self._on_event(self.name, self.ending)

    async def _await_ready(self) -> None:
        while not await self._site.prober.ask(HOST, self.spec.port, self.spec.ready):
            await self._clock.sleep(POLL_S)
        self._ready = True


def failure(name: str, what: str, log: Path, refusal: str = "") -> Unreachable:
    """The end of its log, then one last line with the cause: the program's own last line if it has any.

    `refusal`: why it could not be started.
    """
    if words := refusal or unwritable(log) or last_words(log):
        return Unreachable(f"{name} {what}: {words}; its log is {log}")
    shown = "".join(f"    {line}\n" for line in tail(log))
    return Unreachable(f"{shown}{name} {what}; its log is {log}")


def last_words(log: Path) -> str:
    """The last line that is not a log record, with the manifest's field names; "" if there is none."""
    spoken = (line.strip() for line in reversed(tail(log)) if line.strip() and not line.startswith("{"))
    return to_manifest_field(next(spoken, ""))
