"""A command's cluster, and its one connection: kubectl's own options, environment variable and defaults.

Errors of the API server are shown with the fix. `text` reads answers that are not objects: logs, versions, and what a
pod answers through the API server's proxy.
Known hole: of several files in $KUBECONFIG only the first that exists is read; kubectl merges them.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
import yaml

from paceline_core.errors import Forbidden, InvalidInput, PacelineError, Unreachable
from paceline_core.kube import ObjectKey, key_namespace_of
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.credentials import Access
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.objects.fields import FIXES, LABEL_PATTERN

SYSTEM: Final = "paceline-system"

Kubeconfig = Annotated[
    str,
    typer.Option(
        "--kubeconfig", envvar="KUBECONFIG", metavar="FILE", help="Path of the kubeconfig. Default: ~/.kube/config."
    ),
]
Context = Annotated[str, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig to use.")]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NS", help="Namespace. Default: the context's, else default.")
]
System = Annotated[
    str,
    typer.Option(
        "--system-namespace", metavar="NS", help="Namespace that paceline is installed in.", show_default=True
    ),
]

Keys = Annotated[
    str,
    typer.Option(
        "--key-namespace", metavar="NS", help="Namespace of tenants' keys. Default: paceline's plus -tenant-keys."
    ),
]


@dataclass(frozen=True, slots=True)
class KubeTarget:
    """A cluster by its kubeconfig and context, the command's namespace, and paceline's own."""

    kubeconfig: Path
    context: str
    namespace: str
    system: str

    def keys(self, option: str) -> str:
        """The namespace of tenants' keys; raises InvalidInput for an invalid name."""
        return _checked("--key-namespace", option or key_namespace_of(self.system))


def place(kubeconfig: str, context: str, namespace: str, system: str) -> KubeTarget:
    """Fill in kubectl's defaults; raises InvalidInput if there is no kubeconfig or a name is invalid."""
    candidates = [Path(part).expanduser() for part in kubeconfig.split(os.pathsep) if part]
    file = next((path for path in candidates or [Path("~/.kube/config").expanduser()] if path.is_file()), None)
    if file is None:
        named = f"{kubeconfig} does not exist" if kubeconfig else "there is none at ~/.kube/config"
        raise InvalidInput("--kubeconfig", f"{named}; name the cluster's kubeconfig, or set KUBECONFIG")
    chosen = namespace or _namespace(file, context) or "default"
    return KubeTarget(file, context, _checked("--namespace", chosen), _checked("--system-namespace", system))


def _namespace(file: Path, context: str) -> str:
    """The context's namespace; errors in the file are reported when it is used to connect."""
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    wanted = context or _field(document, "current-context")
    for entry in _field(document, "contexts") or ():
        if _field(entry, "name") == wanted and (found := _field(_field(entry, "context"), "namespace")):
            return str(found)
    return ""


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _checked(option: str, namespace: str) -> str:
    if not re.fullmatch(LABEL_PATTERN, namespace) or len(namespace) > 63:
        raise InvalidInput(option, f"{namespace!r} is no namespace ({FIXES[LABEL_PATTERN]})")
    return namespace


LIMIT_S: Final = 15.0
NONE: Final[Mapping[str, str]] = {}


def proxied(pod: ObjectKey, port: int, path: str) -> str:
    """The API server's path to a pod's `path` (such as `/metrics`); needs `get` on `pods/proxy`."""
    return RESOURCES["Pod"].path(ObjectKey(pod.namespace, f"{pod.name}:{port}"), f"proxy{path}")


async def text(
    api: KubeClient, path: str, params: Mapping[str, str] = NONE, *, limit: int = 1 << 20, within_s: float = LIMIT_S
) -> str:
    """GET; reads at most `limit` bytes. Raises what a call raises."""
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
    async def connected() -> T:
        api = await KubeClient.connect(Access(place.kubeconfig, place.context))
        try:
            return await work(api)
        except PacelineError as error:
            raise explained(error, place) from None
        finally:
            await api.close()

    return asyncio.run(connected())


async def expect_namespace(api: KubeClient, name: str) -> None:
    """Raise NotFound if there is no such namespace; does nothing without the permission to check."""
    with suppress(Forbidden):
        await api.get(RESOURCES["Namespace"], ObjectKey("", name))


def explained(error: PacelineError, place: KubeTarget) -> PacelineError:
    if isinstance(error, Forbidden):
        fix = "; ask the cluster's administrator for a role with this verb, or choose another --context"
        return Forbidden(error.status, error.reason, f"{error.message}{fix}")
    if isinstance(error, Unreachable):
        return Unreachable(f"{error}; is the cluster of {place.kubeconfig} up, and is it the one you mean?")
    return error
