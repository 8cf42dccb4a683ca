"""The process adapter of `paceline_core.launch`: a binding with paths and ports on this machine for each worker."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from paceline_cli.supervisor.ports import is_free
from paceline_cli.supervisor.site import HOST, RunContext
from paceline_core.config import LEVEL_VARIABLE
from paceline_core.kube.cluster import ObjectKey, ScaleTarget
from paceline_core.launch import Binding, WorkerLaunch, build
from paceline_core.objects.resolved import ResolvedService


class Launcher:
    """Builds launches; a worker keeps its ports from start to start unless somebody else took it meanwhile."""

    def __init__(self, site: RunContext, services: Mapping[ObjectKey, ResolvedService], trust: Path) -> None:
        self._site = site
        self._services = services
        self._trust = trust
        self._ports: dict[str, tuple[int, int]] = {}

    def launch(self, target: ScaleTarget, name: str) -> WorkerLaunch:
        """What to start for the worker `name`."""
        service = self._services[target.service]
        pool = next(pool for pool in service.pools if pool.name == target.pool)
        home = self._site.run.home(name)
        port, metrics_port = self._pair(name)
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
        """The worker will not come back."""
        for port in self._ports.pop(name, ()):
            self._site.ports.give_back(port)

    def _pair(self, name: str) -> tuple[int, int]:
        """The API's port and that of metrics."""
        pair = self._ports.get(name)
        if pair is None or not all(is_free(HOST, port) for port in pair):
            self.release(name)
            pair = self._ports[name] = (self._site.ports.take(), self._site.ports.take())
        return pair
