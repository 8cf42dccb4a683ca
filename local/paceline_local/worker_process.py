"""A replica: a supervised process made from a WorkerLaunch, probed as the kubelet probes a pod.

A process that ends is restarted under its name; port and files are prepared again for each start. `Launcher` is the
process adapter of `paceline_core.launch`: it binds each worker to paths and ports on this machine.

Probes are judged by time instead of counts. Until the process is first ready, only the startup limit can fail it;
afterwards a readiness miss removes it from the endpoints and a liveness miss restarts it. A probe has failed after
misses for `failures` periods.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from paceline_core.clock import rfc3339
from paceline_core.config import LEVEL_VARIABLE
from paceline_core.errors import Unreachable
from paceline_core.kube.cluster import Endpoint, ObjectKey, ScaleTarget, StartStage
from paceline_core.launch import Binding, Probe, WorkerLaunch, build
from paceline_core.objects.resolved import ResolvedService
from paceline_core.replicas import PoolReplica
from paceline_local import HOST
from paceline_local.context import RunContext, is_free
from paceline_local.process import Command, Supervised, failure, last_words
from paceline_local.rundir import unwritable, write_private

STARTING_PERIOD_S = 0.2
WRONG = 2
"""The exit status of a worker whose configuration or model is wrong."""
WORDS = 300


@dataclass(frozen=True, slots=True)
class Health:
    """The probe history of one started process; times in seconds of a monotonic clock."""

    born: float
    started: bool = False
    ready: bool = False
    last_alive: float = 0.0
    last_ready: float = 0.0

    def after(self, launch: WorkerLaunch, now: float, *, alive: bool, ready: bool) -> "Health":
        last_ready = now if ready else self.last_ready
        return replace(
            self,
            started=self.started or ready,
            ready=ready or (self.ready and now - last_ready < patience(launch.readiness)),
            last_alive=now if alive or ready else self.last_alive,
            last_ready=last_ready,
        )

    def complaint(self, launch: WorkerLaunch, now: float) -> str | None:
        if not self.started:
            limit = patience(launch.startup)
            return f"not ready {limit:.0f} s after its start" if now - self.born >= limit else None
        limit = patience(launch.liveness)
        return f"its engine has not shown life for {limit:.0f} s" if now - self.last_alive >= limit else None


def patience(probe: Probe) -> float:
    """Seconds of misses after which a probe has failed."""
    return float(probe.period_s * probe.failures)


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of a worker: for its launch, after a change, with an event for the user."""

    launch: Callable[[ScaleTarget, str], WorkerLaunch]
    changed: Callable[[], None]
    emit_event: Callable[[ScaleTarget, str, str], None]


class WorkerProcess(Supervised):
    """A replica from its start until all of its processes have ended."""

    def __init__(self, target: ScaleTarget, ordinal: int, site: RunContext, hooks: Hooks) -> None:
        self.target = target
        self.ordinal = ordinal
        name = f"{target.service.name}-{target.pool}-{ordinal}"
        super().__init__(name, self._command, site.clock, self._on_process)
        self.log = site.run.log(name)
        self.draining = False
        self.gone = False
        self._hopeless = False
        self._unwritable = ""
        self._site = site
        self._hooks = hooks
        self._created = rfc3339(site.clock.utc())
        self._launch = hooks.launch(target, name)
        self._health: Health | None = None
        self._probing: asyncio.Task[None] | None = None

    def start(self) -> None:
        super().start()
        self._probing = asyncio.create_task(self._probe(), name=f"probe {self.name}")

    def drain(self) -> asyncio.Task[None]:
        """SIGTERM, the grace period, then SIGKILL; the task is done when all of its processes have ended."""
        self.draining = True
        return asyncio.create_task(self._leave(), name=f"drain {self.name}")

    @property
    def ready(self) -> bool:
        return bool(self._health and self._health.ready) and not self.draining

    @property
    def failing(self) -> bool:
        """Whether it keeps ending, or ended for a reason that no restart repairs; until it is ready again."""
        if self._health and self._health.started:
            return False
        return self._hopeless or self.backoff.exits > 1

    @property
    def problem(self) -> str:
        """Its name and why it ended, short enough for a status: its last line, or why there is none."""
        words = self.refusal or self._unwritable or last_words(self.log)
        return f"{self.name} ({words[:WORDS] or f'see {self.log}'})"

    def unserved(self, waited_s: float) -> Unreachable:
        """Why it is given up after `waited_s`."""
        what = "keeps ending" if self.failing else f"is not ready after {waited_s:.0f} s"
        return failure(self.name, what, self.log, self.refusal)

    @property
    def shown(self) -> dict[str, str]:
        words = {"draining": self.draining, "ready": self.ready, "keeps ending": self.failing}
        state = next((word for word, so in words.items() if so), "starting")
        return {
            "name": self.name,
            "service": str(self.target.service),
            "state": state,
            "url": f"http://{HOST}:{self._launch.port}",
            "metrics": f"http://{HOST}:{self._launch.metrics_port}/metrics",
        }

    @property
    def startup_limit_s(self) -> float:
        return patience(self._launch.startup)

    @property
    def replica(self) -> PoolReplica:
        unready = bool(self._health and self._health.started) and not self.ready
        return PoolReplica(self.target, self.ordinal, self.ready, self.draining, unready)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(
            name=self.name,
            pool=self.target.pool,
            track=self.target.track,
            revision=self._launch.revision,
            host=HOST,
            port=self._launch.port,
            ready=self.ready,
            terminating=self.draining,
            created=self._created,
            metrics_port=self._launch.metrics_port,
            stage=None if self.ready or self.draining else StartStage.LOAD,
        )

    async def _leave(self) -> None:
        await self.stop(self._launch.grace_s)
        if self._probing:
            self._probing.cancel()
        self._site.run.forget(self.name)
        self.gone = True
        self._hooks.changed()

    def _command(self) -> Command:
        self._launch = self._hooks.launch(self.target, self.name)
        for file in self._launch.files:
            write_private(Path(file.path), file.content)
        return Command(self._launch.argv, self._launch.env, self.log)

    def _on_process(self) -> None:
        if self.child is not None:
            self._health = Health(self._clock.monotonic())
        else:
            self._health = None
            ports = (self._launch.port, self._launch.metrics_port)
            # a port taken by another process is replaced at the next start
            self._hopeless = self.last_exit == WRONG and all(is_free(HOST, port) for port in ports)
            self._unwritable = "" if self.draining else unwritable(self.log)
            if not self.draining:
                self._hooks.emit_event(self.target, "BackOff", self.ending)
        self._hooks.changed()

    async def _probe(self) -> None:
        while True:
            if self._health and not self.draining:
                await self._round(self._health)
            starting = self._health is None or not self._health.started
            await self._clock.sleep(STARTING_PERIOD_S if starting else self._launch.readiness.period_s)

    async def _round(self, before: Health) -> None:
        launch, ask = self._launch, self._site.prober.ask
        answers = await asyncio.gather(
            *(ask(HOST, launch.metrics_port, probe) for probe in (launch.liveness, launch.readiness))
        )
        if self._health is not before:
            return  # the process that answered has ended meanwhile
        now = self._clock.monotonic()
        self._health = before.after(launch, now, alive=answers[0], ready=answers[1])
        if self._health.ready != before.ready:
            self._hooks.changed()
        if complaint := self._health.complaint(launch, now):
            self._hooks.emit_event(self.target, "Unhealthy", f"{self.name} is restarted: {complaint}")
            self.restart()


class Launcher:
    """Builds launches; a worker keeps its ports from start to start unless another process took one meanwhile."""

    def __init__(self, site: RunContext, services: Mapping[ObjectKey, ResolvedService], trust: Path) -> None:
        self._site = site
        self._services = services
        self._trust = trust
        self._ports: dict[str, tuple[int, int]] = {}

    def launch(self, target: ScaleTarget, name: str) -> WorkerLaunch:
        service = self._services[target.service]
        pool = next(pool for pool in service.pools if pool.name == target.pool)
        home = self._site.run.home(name)
        pair = self._ports.get(name)
        if pair is None or not all(is_free(HOST, port) for port in pair):
            self.release(name)
            pair = self._ports[name] = (self._site.ports.take(), self._site.ports.take())
        port, metrics_port = pair
        binding = Binding(
            name=name,
            host=HOST,
            port=port,
            config_dir=str(home),
            trust_bundle_path=str(self._trust),
            page_dir=str(home / "pages"),
            metrics_port=metrics_port,
            python=sys.executable,
        )
        launch = build(service, pool, target.track, binding)
        return replace(launch, env={**launch.env, LEVEL_VARIABLE: self._site.log_level})

    def release(self, name: str) -> None:
        for port in self._ports.pop(name, ()):
            self._site.ports.give_back(port)
