"""Answers that are no objects: logs, versions, and what a pod says through the API server's proxy."""

import asyncio
from collections.abc import Mapping
from typing import Final

from paceline_core.errors import Unreachable
from paceline_core.kube import ObjectKey
from paceline_core.kube.api.resource import RESOURCES
from paceline_core.kube.api.server import KubeClient

LIMIT_S: Final = 15.0
NONE: Final[Mapping[str, str]] = {}


def proxied(pod: ObjectKey, port: int, path: str) -> str:
    """Where the API server passes on what a pod answers at `path` (`/metrics`); needs `get` on `pods/proxy`."""
    return RESOURCES["Pod"].path(ObjectKey(pod.namespace, f"{pod.name}:{port}"), f"proxy{path}")


async def text(
    api: KubeClient, path: str, params: Mapping[str, str] = NONE, *, limit: int = 1 << 20, within_s: float = LIMIT_S
) -> str:
    """GET; at most `limit` bytes are read, the rest is left. Raises what a call raises."""
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(within_s), api.stream(path, params) as answer:
            async for chunk in answer:
                chunks.append(chunk[: limit - size])
                size += len(chunks[-1])
                if size >= limit:
                    break
    except TimeoutError:
        raise Unreachable(f"GET {path} took longer than {within_s:g} s") from None
    return b"".join(chunks).decode(errors="replace")
