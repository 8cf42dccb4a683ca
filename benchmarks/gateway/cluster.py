"""The store that a gateway of ours watches: the supervisor's own, as `paceline up` has it, with one service and tenant.

`python -m benchmarks.gateway.cluster FOLDER PORT...` serves it on `FOLDER/supervisor.sock` with a worker on each port,
and prints a key of the tenant's once it listens.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from tests.gateway import manifests

from paceline_core.clock import SystemClock
from paceline_core.kube import Endpoint, ObjectKey, ServiceEndpoints
from paceline_local.apiserver import ObjectStore
from paceline_local.apiserver.api import make_app, serving

SOCKET = "supervisor.sock"
AMPLE: dict[str, Any] = {
    "requestsPerMinute": 100_000_000,
    "inputTokensPerMinute": 100_000_000_000,
    "outputTokensPerMinute": 100_000_000_000,
    "concurrency": 100_000,
}
"""Every limit is there to be counted, and none is ever reached."""
TIGHT: dict[str, Any] = {"outputTokensPerMinute": 100}
TENANTS = {"ample": AMPLE, "tight": TIGHT, "as-tight": TIGHT}


def filled(ports: list[int]) -> tuple[ObjectStore, list[str]]:
    """The store, and the key of each tenant in turn."""
    store, keys = ObjectStore(), []
    store.objects.put(manifests.service())
    for name, limits in TENANTS.items():
        secret, key = manifests.key(name)
        keys.append(key)
        store.objects.put(manifests.tenant(name, limits=limits))
        store.objects.put(secret)
    workers = tuple(
        Endpoint(f"w{index}", "main", "stable", "r1", "127.0.0.1", port, ready=True) for index, port in enumerate(ports)
    )
    store.put_endpoints(ServiceEndpoints(ObjectKey("default", "chat"), workers))
    return store, keys


async def _main(folder: Path, ports: list[int]) -> None:
    store, keys = filled(ports)
    app = make_app(store, SystemClock(), lambda: None)
    async with serving(app, folder / SOCKET):
        print(*keys, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), [int(port) for port in sys.argv[2:]]))
