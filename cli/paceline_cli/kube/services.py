"""A cluster's InferenceServices, the Leases of operator and autoscaler, and its gateways' admin ports.

A Lease that may not be read is not reported. Known hole: renewals are judged by this machine's clock; if it is minutes
off, a component is wrongly reported as silent, or a silent one is missed.

Gateways are read through the API server's pod proxy (needs `list` on `pods` and `get` on `pods/proxy` in paceline's
namespace). A refused list ends the command; a pod that cannot be read is named and the others count.
"""

import asyncio
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from paceline_cli.kube.session import KubeTarget, proxied, text
from paceline_cli.ui.gateway_poll import Fetch, GatewaySnapshot, Reading, UnreachableGateway, look
from paceline_cli.ui.rows import age
from paceline_core.clock import Clock
from paceline_core.errors import InvalidInput, NotFound, PacelineError
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.field_errors import did_you_mean
from paceline_core.objects.fields import FIXES, LABEL_PATTERN, SERVICE_NAME_PATTERN

LEASES: Final = {"operator": "paceline-operator", "autoscaler": "paceline-autoscaler"}
SILENT_S: Final = 60.0

Holders = Mapping[str, Manifest | None]
"""The Lease of each part, None if there is none; a part whose Lease may not be read is missing."""


async def holders(api: KubeClient, system: str) -> Holders:
    found: dict[str, Manifest | None] = {}
    for part, name in LEASES.items():
        try:
            found[part] = await api.get(RESOURCES["Lease"], ObjectKey(system, name))
        except NotFound:
            found[part] = None
        except PacelineError:
            continue
    return found


def absent(found: Holders, system: str, now: datetime) -> list[str]:
    """A line for each component that does not run, or has not renewed its Lease recently."""
    lines = []
    for part, lease in found.items():
        spec = (lease or {}).get("spec") or {}
        renewed = spec.get("renewTime")
        silent = renewed is None or (now - datetime.fromisoformat(renewed)).total_seconds() > SILENT_S
        if lease is None:
            fix = "statuses may be old, or it runs elsewhere: --system-namespace"
            lines.append(f"no {part} has a Lease in {system}; {fix}")
        elif silent or not spec.get("holderIdentity"):
            since = f" since {age(renewed, now)}" if renewed else ""
            lines.append(f"no {part} holds its Lease{since}; statuses may be old")
    return lines


GATEWAY: Final = "app.kubernetes.io/name=paceline-gateway"
PORT: Final = 8081
ANSWER_LIMIT: Final = 4 << 20
AT_MOST: Final = 32
"""The most gateways to read; of more, the first by name."""


async def looks(api: KubeClient, system: str, service: str, clock: Clock) -> Reading:
    pods = await api.list(RESOURCES["Pod"], system, selector=GATEWAY)
    running = (pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running")
    names = sorted(pod["metadata"]["name"] for pod in running)
    if not names:
        return [UnreachableGateway(f"namespace {system}", "no gateway runs there; choose another --system-namespace")]
    found: list[GatewaySnapshot | UnreachableGateway] = list(
        await asyncio.gather(*(look(name, _fetch(api, system, name), service, clock) for name in names[:AT_MOST]))
    )
    return [*found, *(UnreachableGateway(name, f"only {AT_MOST} gateways are asked") for name in names[AT_MOST:])]


def _fetch(api: KubeClient, system: str, name: str) -> Fetch:
    async def fetch(path: str, query: Mapping[str, str]) -> str:
        return await text(api, proxied(ObjectKey(system, name), PORT, path), query, limit=ANSWER_LIMIT)

    return fetch


SERVICE: Final = RESOURCES["InferenceService"]
NOT_INSTALLED: Final = (
    "this cluster does not know InferenceServices; install paceline first: "
    "helm install paceline charts/paceline -n paceline-system"
)


async def services(api: KubeClient, namespace: str) -> list[Manifest]:
    """All of a namespace, or of the cluster (empty), by name. Raises NotFound when paceline is not installed."""
    try:
        found = await api.list(SERVICE, namespace)
    except NotFound:
        raise NotFound(NOT_INSTALLED) from None
    return sorted(found, key=lambda service: (service["metadata"]["namespace"], service["metadata"]["name"]))


async def service(api: KubeClient, key: ObjectKey) -> Manifest:
    """Get one by its key. Raises NotFound with similar names."""
    try:
        return await api.get(SERVICE, key)
    except NotFound:
        names = [found["metadata"]["name"] for found in await services(api, key.namespace)]
    fix = ", nor any other; `kubectl paceline status -A` shows those of all namespaces"
    if names:
        fix = did_you_mean(key.name, names) or f"; there are {', '.join(names[:10])}"
    raise NotFound(f"there is no InferenceService {key.name} in namespace {key.namespace}{fix}")


def named(text: str, place: KubeTarget) -> ObjectKey:
    """`name` in the command's namespace, or `namespace/name`; raises InvalidInput for an invalid name."""
    namespace, slash, name = text.rpartition("/")
    for part, pattern in ((name, SERVICE_NAME_PATTERN), (namespace if slash else place.namespace, LABEL_PATTERN)):
        if not re.fullmatch(pattern, part):
            raise InvalidInput("NAME", f"{text!r} is no service's name ({FIXES[pattern]})")
    return ObjectKey(namespace or place.namespace, name)
