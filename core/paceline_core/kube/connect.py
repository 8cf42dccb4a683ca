"""Chooses a process's Cluster: the supervisor's socket, a kubeconfig, or the cluster that runs its pod.

Modules that only a cluster needs (aiohttp, kubernetes, orjson) are imported only when one is requested.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import model_validator

from paceline_core.clock import Clock, SystemClock
from paceline_core.config import Config
from paceline_core.kube.cluster import Namespaces
from paceline_core.kube.local import LocalCluster, without_second_wakes

if TYPE_CHECKING:
    from paceline_core.kube.kubernetes import KubernetesCluster


class ClusterConfig(Config):
    """At most one of `socket` and `kubeconfig`; neither means in-cluster. `namespaces` to watch; empty means all."""

    socket: Path | None = None
    kubeconfig: Path | None = None
    namespaces: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.socket is not None and self.kubeconfig is not None:
            raise ValueError("socket and kubeconfig are both set; keep one of them")
        return self


async def connect(
    config: ClusterConfig,
    namespace: str,
    clock: Clock | None = None,
    workers: Literal["slices", "pods"] = "slices",
    key_namespace: str = "",
) -> "LocalCluster | KubernetesCluster":
    """The cluster of a process: `namespace` is paceline's own, `key_namespace` that of tenants' keys. `close` it.

    Raises InvalidInput or Unreachable.
    """
    if config.socket is not None:
        asyncio.get_running_loop().set_exception_handler(without_second_wakes)
        return LocalCluster(config.socket, clock)
    from paceline_core.kube.client.client import KubeClient  # noqa: PLC0415
    from paceline_core.kube.client.credentials import Access  # noqa: PLC0415
    from paceline_core.kube.kubernetes import KubernetesCluster  # noqa: PLC0415

    clock = clock or SystemClock()
    api = await KubeClient.connect(Access(config.kubeconfig), clock)
    return KubernetesCluster(api, Namespaces(namespace, config.namespaces, key_namespace), workers, clock)
