"""A process of the control plane (gateway, autoscaler, Prometheus): supervised, with one URL that says it is ready."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paceline_cli.supervisor.logs import tail
from paceline_cli.supervisor.process import Command, Supervised
from paceline_cli.supervisor.site import HOST, Site
from paceline_core.errors import Unreachable
from paceline_core.launch import Probe

POLL_S = 0.1
ENDS_TOLERATED = 2


@dataclass(frozen=True, slots=True)
class PartSpec:
    """What to run, where it says that it is ready, and how long it may take to leave (seconds)."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str]
    port: int
    ready: Probe
    grace_s: float


class Part:
    """One of them, from start to stop. `tell` is given its name and a sentence when it ends by itself."""

    def __init__(self, spec: PartSpec, site: Site, tell: Callable[[str, str], None]) -> None:
        self.spec = spec
        self.log = site.run.log(spec.name)
        self._site = site
        self._tell = tell
        self._leaving = False
        self._process = Supervised(spec.name, self._command, site.clock, self._on_process)

    @property
    def running(self) -> bool:
        """Whether there is a process now."""
        return self._process.child is not None

    def start(self) -> None:
        """Begin to run."""
        self._process.start()

    async def wait_ready(self) -> None:
        """Return when it is ready; raises Unreachable with the end of its log when it is not within its limit."""
        limit_s = self.spec.ready.period_s * self.spec.ready.failures
        began = self._site.clock.monotonic()
        while not await self._site.prober.ask(HOST, self.spec.port, self.spec.ready):
            if self._process.backoff.exits >= ENDS_TOLERATED:
                raise failure(self.spec.name, f"ended {self._process.backoff.exits} times while it started", self.log)
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
        if not (self.running or self._leaving):
            self._tell(self.spec.name, f"{self.spec.name} ended ({self._process.last_exit}) and will come back")

    def _command(self) -> Command:
        return Command(self.spec.argv, self.spec.env, self.log)


def failure(name: str, what: str, log: Path) -> Unreachable:
    """One sentence, where the log is, and how it ends."""
    lines = "\n".join(f"    {line}" for line in tail(log))
    return Unreachable(f"{name} {what}; its log is {log} and ends with\n{lines}")
