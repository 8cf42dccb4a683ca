"""A service's last decisions, from the best place that the user may read.

The ledger of the autoscaler has them all, with what was rejected: it is asked through the API server's pod proxy
(needs `get` on `pods/proxy`), each replica, since only the one that holds the Lease decides. Else the object's own
status keeps the last decision, and Events the last changes.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from paceline_cli.kube.session import proxied, text
from paceline_cli.ui.detail import event_time
from paceline_core.errors import NotFound, PacelineError
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Manifest

AUTOSCALER: Final = "app.kubernetes.io/name=paceline-autoscaler"
PORT: Final = 8090
LEDGER_LIMIT: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Ledger:
    """Entries newest first, and where they are from; without any, `source` says why."""

    source: str
    entries: tuple[dict[str, Any], ...] = ()


async def ledger(api: KubeClient, system: str, key: ObjectKey, limit: int) -> Ledger:
    """Ask every autoscaler pod; never raises for what is missing or forbidden."""
    try:
        pods = await api.list(RESOURCES["Pod"], system, selector=AUTOSCALER)
    except PacelineError as error:
        return Ledger(f"the autoscaler's pods cannot be listed ({error})")
    reasons = [f"no autoscaler runs in namespace {system}"] if not pods else []
    for pod in pods:
        name = pod["metadata"]["name"]
        try:
            entries = await _ask(api, ObjectKey(system, name), key, limit)
        except (PacelineError, ValueError) as error:
            reasons.append(f"{name} cannot be asked ({error})")
            continue
        if entries:
            return Ledger(f"the ledger of {system}/{name}", tuple(entries))
        reasons.append(f"{name} has decided nothing about it")
    return Ledger("; ".join(reasons))


async def events(api: KubeClient, key: ObjectKey, limit: int) -> list[Manifest]:
    """What was said about the service, newest last."""
    fields = f"involvedObject.kind=InferenceService,involvedObject.name={key.name}"
    found = await api.list(RESOURCES["Event"], key.namespace, fields=fields)
    return sorted(found, key=event_time)[-limit:]


async def _ask(api: KubeClient, pod: ObjectKey, service: ObjectKey, limit: int) -> list[dict[str, Any]]:
    query = {"service": str(service), "limit": str(limit)}
    found = json.loads(await text(api, proxied(pod, PORT, "/debug/decisions"), query, limit=LEDGER_LIMIT))
    if not isinstance(found, list):
        raise NotFound("its answer is no list of decisions")
    return found
