"""One connection for one command, and the API server's noes in words that name the fix."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from paceline_cli.cluster.place import KubeTarget
from paceline_core.errors import Forbidden, PacelineError, Unreachable
from paceline_core.kube import ObjectKey
from paceline_core.kube.api.credentials import Access
from paceline_core.kube.api.resource import RESOURCES
from paceline_core.kube.api.server import KubeClient

T = TypeVar("T")


def run(place: KubeTarget, work: Callable[[KubeClient], Awaitable[T]]) -> T:
    """Connect, do the work, close."""
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
    """Raises NotFound where there is no such namespace; who may not look is not told."""
    with suppress(Forbidden):
        await api.get(RESOURCES["Namespace"], ObjectKey("", name))


def explained(error: PacelineError, place: KubeTarget) -> PacelineError:
    """The same error with the way out."""
    if isinstance(error, Forbidden):
        fix = "; ask the cluster's administrator for a role with this verb, or choose another --context"
        return Forbidden(error.status, error.reason, f"{error.message}{fix}")
    if isinstance(error, Unreachable):
        return Unreachable(f"{error}; is the cluster of {place.kubeconfig} up, and is it the one you mean?")
    return error
