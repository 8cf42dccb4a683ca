"""A process of the control plane (gateway, autoscaler, Prometheus): supervised, with one URL that says it is ready."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paceline_cli.supervisor.logs import tail, unwritable
from paceline_cli.supervisor.process import Command, Supervised
from paceline_cli.supervisor.site import HOST, RunContext
from paceline_core.errors import Unreachable
from paceline_core.launch import Probe, to_manifest_field

POLL_S = 0.1
ENDS_TOLERATED = 2


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """What to run, where it says that it is ready, and how long it may take to leave (seconds)."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str]
    port: int
    ready: Probe
    grace_s: float


class Component:
    """One of them, from start to stop. `tell` is given its name and a sentence when it ends by itself."""

    def __init__(self, spec: ComponentSpec, site: RunContext, tell: Callable[[str, str], None]) -> None:
        self.spec = spec
        self.log = site.run.log(spec.name)
        self._site = site
        self._tell = tell
        self._leaving = False
        self._ready = False
        self._waiting: asyncio.Task[None] | None = None
        self._process = Supervised(spec.name, self._command, site.clock, self._on_process)

    @property
    def state(self) -> str:
        """`down`; `starting` from a process's start until it first says that it is ready; then `running`.

        Told to leave it is `draining`, and in the end `stopped`.
        """
        if self._leaving:
            return "draining" if self._process.child else "stopped"
        if self._process.child is None:
            return "down"
        return "running" if self._ready else "starting"

    def start(self) -> None:
        """Begin to run."""
        self._process.start()

    async def wait_ready(self) -> None:
        """Return when it is ready; raises Unreachable with the end of its log when it is not within its limit."""
        limit_s = self.spec.ready.period_s * self.spec.ready.failures
        began = self._site.clock.monotonic()
        while not self._ready:
            if self._process.backoff.exits >= ENDS_TOLERATED:
                what = f"ended {self._process.backoff.exits} times while it started"
                raise failure(self.spec.name, what, self.log, self._process.refusal)
            if self._site.clock.monotonic() - began > limit_s:
                raise failure(self.spec.name, f"is not ready after {limit_s} s", self.log)
            await self._site.clock.sleep(POLL_S)

    async def stop(self) -> None:
        """Let it finish within its grace, then end it."""
        self._leaving = True
        await self._process.stop(self.spec.grace_s)

    def kill(self) -> None:
        """End it now."""
        self._leaving = True
        self._process.kill()

    def _on_process(self) -> None:
        self._ready = False
        if self._waiting:
            self._waiting.cancel()
        if self._process.child:
            self._waiting = asyncio.create_task(self._await_ready(), name=f"await {self.spec.name}")
        elif not self._leaving:
            self._tell(self.spec.name, self._process.ending)

    async def _await_ready(self) -> None:
        while not await self._site.prober.ask(HOST, self.spec.port, self.spec.ready):
            await self._site.clock.sleep(POLL_S)
        self._ready = True

    def _command(self) -> Command:
        return Command(self.spec.argv, self.spec.env, self.log)


def failure(name: str, what: str, log: Path, refusal: str = "") -> Unreachable:
    """The end of its log, then one last line that says it all: the program's own last words where it had any.

    `refusal`: why there was no program.
    """
    if words := refusal or unwritable(log) or last_words(log):
        return Unreachable(f"{name} {what}: {words}; its log is {log}")
    shown = "".join(f"    {line}\n" for line in tail(log))
    return Unreachable(f"{shown}{name} {what}; its log is {log}")


def last_words(log: Path) -> str:
    """The last line that is no record, in the manifest's words; "" if there is none."""
    spoken = (line.strip() for line in reversed(tail(log)) if line.strip() and not line.startswith("{"))
    return to_manifest_field(next(spoken, ""))
