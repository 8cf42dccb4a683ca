"""The gateways of a cluster, each asked at its admin port through the API server's pod proxy.

Needs `list` on `pods` and `get` on `pods/proxy` in paceline's namespace; a refused list ends the command, a pod that
cannot be asked is named and the others count.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from paceline_cli.cluster.raw import proxied, text
from paceline_cli.top.look import Fetch, GatewaySnapshot, Reading, UnreachableGateway, look
from paceline_core.clock import Clock
from paceline_core.kube import ObjectKey
from paceline_core.kube.api.resource import RESOURCES
from paceline_core.kube.api.server import KubeClient
from paceline_core.kube.cluster import Manifest

GATEWAY: Final = "app.kubernetes.io/name=paceline-gateway"
PORT: Final = 8081
ANSWER_LIMIT: Final = 4 << 20
AT_MOST: Final = 32
"""Gateways that are asked; of more the first by name."""


async def looks(api: KubeClient, system: str, service: str, clock: Clock) -> Reading:
    """One look at every gateway that runs."""
    pods = [pod for pod in await api.list(RESOURCES["Pod"], system, selector=GATEWAY) if _runs(pod)]
    if not pods:
        return [UnreachableGateway(f"namespace {system}", "no gateway runs there; choose another --system-namespace")]
    names = sorted(pod["metadata"]["name"] for pod in pods)
    found: list[GatewaySnapshot | UnreachableGateway] = list(
        await asyncio.gather(*(look(name, _fetch(api, system, name), service, clock) for name in names[:AT_MOST]))
    )
    return [*found, *(UnreachableGateway(name, f"only {AT_MOST} gateways are asked") for name in names[AT_MOST:])]


def _runs(pod: Manifest) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Running")


def _fetch(api: KubeClient, system: str, name: str) -> Fetch:
    async def fetch(path: str, query: Mapping[str, str]) -> str:
        return await text(api, proxied(ObjectKey(system, name), PORT, path), query, limit=ANSWER_LIMIT)

    return fetch
