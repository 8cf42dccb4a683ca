"""Find a running local stack in its state directory: its endpoint, a key, and the service behind a model's name."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline_cli.supervisor.keys import KeyFile
from paceline_cli.supervisor.rundir import RunRecord, read_record
from paceline_core.clock import Clock
from paceline_core.errors import InvalidInput, Unreachable
from paceline_core.kube import Cluster, Listed, LocalCluster, ObjectKey, ScaleTarget
from paceline_core.objects import InferenceService, ResolvedService, read, resolve
from paceline_core.objects.metadata import INFERENCE_SERVICE

LIST_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Attached:
    """A stack that runs, and the one service that a run is about."""

    record: RunRecord
    key: str
    service: ResolvedService
    cluster: LocalCluster

    @property
    def scale_targets(self) -> list[ScaleTarget]:
        """The pools to watch."""
        return [ScaleTarget(ObjectKey.parse(self.service.key), pool.name) for pool in self.service.pools]


async def attach(state: Path, model: str | None, clock: Clock, limit_s: float = LIST_LIMIT_S) -> Attached:
    """Join the run in `state`; raises NotFound when nothing runs there, InvalidInput when the model is not clear."""
    record = read_record(state)
    cluster = LocalCluster(Path(record.socket), clock)
    services = [resolve(read(InferenceService, manifest)) for manifest in await listed(cluster, limit_s)]
    return Attached(record, KeyFile(state).local(clock), choose(services, model), cluster)


async def listed(cluster: Cluster, limit_s: float) -> Sequence[dict[str, Any]]:
    """All InferenceServices; raises Unreachable."""
    try:
        async with asyncio.timeout(limit_s):
            async for event in cluster.watch(INFERENCE_SERVICE):
                if isinstance(event, Listed):
                    return event.items
    except TimeoutError:
        pass
    raise Unreachable(f"the supervisor did not list its services within {limit_s:g} s; is it still up?")


def choose(services: Sequence[ResolvedService], model: str | None) -> ResolvedService:
    """The service of that name, or the only one there is."""
    names = ", ".join(service.model.served_name for service in services)
    found = [service for service in services if model in (None, service.model.served_name, service.key)]
    if len(found) == 1:
        return found[0]
    if model is None:
        raise InvalidInput("model", f"name one of the models that are served: {names}")
    raise InvalidInput("model", f"{model!r} is not served here; the models are: {names}")
