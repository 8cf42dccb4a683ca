"""The process adapter of `paceline_core.launch`: a binding with paths and a port on this machine for each worker."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from paceline_cli.supervisor.ports import is_free
from paceline_cli.supervisor.site import HOST, Site
from paceline_core.config import LEVEL_VARIABLE
from paceline_core.kube.cluster import Key, ScaleTarget
from paceline_core.launch import Binding, WorkerLaunch, build
from paceline_core.objects.resolved import ResolvedService


class Launcher:
    """Builds launches; a worker keeps its port from start to start unless somebody else took it meanwhile."""

    def __init__(self, site: Site, services: Mapping[Key, ResolvedService], trust: Path) -> None:
        self._site = site
        self._services = services
        self._trust = trust
        self._ports: dict[str, int] = {}

    def launch(self, target: ScaleTarget, name: str) -> WorkerLaunch:
        """What to start for the worker `name`."""
        service = self._services[target.service]
        pool = next(pool for pool in service.pools if pool.name == target.pool)
        home = self._site.run.home(name)
        binding = Binding(
            name=name,
            host=HOST,
            port=self._port(name),
            config_dir=str(home),
            trust_path=str(self._trust),
            page_dir=str(home / "pages"),
            python=sys.executable,
        )
        launch = build(service, pool, target.track, binding)
        return replace(launch, env={**launch.env, LEVEL_VARIABLE: self._site.log_level})

    def release(self, name: str) -> None:
        """The worker will not come back."""
        if port := self._ports.pop(name, None):
            self._site.ports.give_back(port)

    def _port(self, name: str) -> int:
        port = self._ports.get(name)
        if port is None or not is_free(HOST, port):
            self.release(name)
            port = self._ports[name] = self._site.ports.take()
        return port
