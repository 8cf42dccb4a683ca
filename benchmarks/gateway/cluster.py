"""The store that a gateway of ours watches: the supervisor's own, as `paceline up` has it, with one service and tenant.

`python -m benchmarks.gateway.cluster FOLDER PORT...` serves it on `FOLDER/supervisor.sock` with a worker on each port,
and prints a key of the tenant's once it listens.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from paceline_cli.supervisor.api import make_app
from paceline_cli.supervisor.server import serving
from paceline_cli.supervisor.store import Store
from paceline_core.auth import new_key
from paceline_core.clock import SystemClock
from paceline_core.kube import Endpoint, Key, ServiceEndpoints
from paceline_core.kube.cluster import Manifest

NAMESPACE = "paceline-system"
SOCKET = "supervisor.sock"
API = "paceline.dev/v1alpha1"
AMPLE: dict[str, Any] = {
    "requestsPerMinute": 100_000_000,
    "inputTokensPerMinute": 100_000_000_000,
    "outputTokensPerMinute": 100_000_000_000,
    "concurrency": 100_000,
}
"""Every limit is there to be counted, and none is ever reached."""
TIGHT: dict[str, Any] = {"outputTokensPerMinute": 100}
TENANTS = {"ample": AMPLE, "tight": TIGHT, "as-tight": TIGHT}


def service() -> Manifest:
    """What the workers serve."""
    pools = [{"name": "main", "accelerator": "cpu"}]
    return {
        "apiVersion": API,
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"model": {"source": "builtin://demo"}, "classes": {}, "pools": pools},
    }


def tenant(name: str, limits: dict[str, Any]) -> Manifest:
    """Who asks."""
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": API, "kind": "Tenant", "metadata": metadata, "spec": {"services": ["*"], "limits": limits}}


def filled(ports: list[int]) -> tuple[Store, list[str]]:
    """The store, and the key of each tenant in turn."""
    store, keys = Store(), []
    store.objects.put(service())
    for name, limits in TENANTS.items():
        record, key = new_key(name)
        keys.append(key)
        store.objects.put(tenant(name, limits))
        store.objects.put(record.manifest(NAMESPACE))
    workers = tuple(
        Endpoint(f"w{index}", "main", "stable", "r1", "127.0.0.1", port, ready=True) for index, port in enumerate(ports)
    )
    store.put_endpoints(ServiceEndpoints(Key("default", "chat"), workers))
    return store, keys


async def _main(folder: Path, ports: list[int]) -> None:
    store, keys = filled(ports)
    app = make_app(store, SystemClock(), lambda: None)
    async with serving(app, folder / SOCKET):
        print(*keys, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), [int(port) for port in sys.argv[2:]]))
