"""One connection for one command, and the API server's errors with the fix.

Answers that are no objects: logs, versions, and what a pod says through the API server's proxy.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, TypeVar

from paceline_cli.kube.target import KubeTarget
from paceline_core.errors import Forbidden, PacelineError, Unreachable
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.credentials import Access
from paceline_core.kube.client.resource import RESOURCES

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


T = TypeVar("T")


def run(place: KubeTarget, work: Callable[[KubeClient], Awaitable[T]]) -> T:
    return asyncio.run(_connected(place, work))


async def _connected(place: KubeTarget, work: Callable[[KubeClient], Awaitable[T]]) -> T:
    api = await KubeClient.connect(Access(place.kubeconfig, place.context))
    try:
        return await work(api)
    except PacelineError as error:
        raise explained(error, place) from None
    finally:
        await api.close()


async def expect_namespace(api: KubeClient, name: str) -> None:
    """Raises NotFound where there is no such namespace; without the right to look it raises nothing."""
    with suppress(Forbidden):
        await api.get(RESOURCES["Namespace"], ObjectKey("", name))


def explained(error: PacelineError, place: KubeTarget) -> PacelineError:
    if isinstance(error, Forbidden):
        fix = "; ask the cluster's administrator for a role with this verb, or choose another --context"
        return Forbidden(error.status, error.reason, f"{error.message}{fix}")
    if isinstance(error, Unreachable):
        return Unreachable(f"{error}; is the cluster of {place.kubeconfig} up, and is it the one you mean?")
    return error
