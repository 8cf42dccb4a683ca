"""The store that the attacked gateway watches: two services of one worker each, a neighbour and two attackers.

`python -m benchmarks.attacks.cluster FOLDER MODEL=PORT ...` serves it on `FOLDER/supervisor.sock` and prints the keys
of the tenants in turn once it listens.
"""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.attacks.case import Model
from benchmarks.gateway.cluster import SOCKET
from tests.gateway import manifests

from paceline_core.clock import SystemClock
from paceline_core.kube import Endpoint, ObjectKey, ServiceEndpoints
from paceline_local.apiserver import ObjectStore
from paceline_local.apiserver.api import make_app, serving

NOTHING = {"outputTokensPerMinute": 0, "inputTokensPerMinute": 0, "requestsPerMinute": 0}
TENANTS = {"neighbour": {}, "guest": {}, "zero": NOTHING}
"""A guest without limits is the worst that a key can be."""


def filled(ports: Mapping[Model, int]) -> tuple[ObjectStore, list[str]]:
    """The store, and the key of each tenant in turn."""
    store, keys = ObjectStore(), []
    for name, limits in TENANTS.items():
        secret, key = manifests.key(name)
        keys.append(key)
        store.objects.put(manifests.tenant(name, limits=limits))
        store.objects.put(secret)
    for model, port in ports.items():
        store.objects.put(manifests.service(model.value))
        worker = Endpoint(f"{model}-0", "main", "stable", "r1", "127.0.0.1", port, ready=True)
        store.put_endpoints(ServiceEndpoints(ObjectKey("default", model.value), (worker,)))
    return store, keys


async def _main(folder: Path, ports: dict[Model, int]) -> None:
    store, keys = filled(ports)
    async with serving(make_app(store, SystemClock(), lambda: None), folder / SOCKET):
        print(*keys, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    listed = dict(given.split("=") for given in sys.argv[2:])
    asyncio.run(_main(Path(sys.argv[1]), {Model(model): int(port) for model, port in listed.items()}))
