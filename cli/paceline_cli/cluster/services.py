"""Finding InferenceServices, and saying what is missing: the definitions, or a service of that name."""

import re
from typing import Final

from paceline_cli.cluster.place import KubeTarget
from paceline_core.errors import InvalidInput, NotFound
from paceline_core.kube import ObjectKey
from paceline_core.kube.api.resource import RESOURCES
from paceline_core.kube.api.server import KubeClient
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.fields import FIXES, LABEL_PATTERN, SERVICE_NAME_PATTERN
from paceline_core.objects.problems import did_you_mean

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
    """One by its key. Raises NotFound with the names that are like it."""
    try:
        return await api.get(SERVICE, key)
    except NotFound:
        names = [found["metadata"]["name"] for found in await services(api, key.namespace)]
    raise NotFound(_missing(key, names))


def named(text: str, place: KubeTarget) -> ObjectKey:
    """`name` in the namespace asked about, or `namespace/name`; raises InvalidInput for what cannot be one."""
    namespace, slash, name = text.rpartition("/")
    for part, pattern in ((name, SERVICE_NAME_PATTERN), (namespace if slash else place.namespace, LABEL_PATTERN)):
        if not re.fullmatch(pattern, part):
            raise InvalidInput("NAME", f"{text!r} is no service's name ({FIXES[pattern]})")
    return ObjectKey(namespace or place.namespace, name)


def _missing(key: ObjectKey, names: list[str]) -> str:
    said = f"there is no InferenceService {key.name} in namespace {key.namespace}"
    if not names:
        return f"{said}, nor any other; `kubectl paceline status -A` shows those of all namespaces"
    return f"{said}{did_you_mean(key.name, names) or '; there are ' + ', '.join(names[:10])}"
