"""Whether anybody keeps the statuses current: operator and autoscaler each renew a Lease in paceline's namespace.

A Lease that may not be read says nothing, and nothing is said about it. Hole: the renewal is judged by this machine's
clock; one that is minutes off tells of silence where there is none, or of none.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from paceline_cli.view.columns import age
from paceline_core.errors import NotFound, PacelineError
from paceline_core.kube import ObjectKey
from paceline_core.kube.api.resource import RESOURCES
from paceline_core.kube.api.server import KubeClient
from paceline_core.kube.cluster import Manifest

LEASES: Final = {"operator": "paceline-operator", "autoscaler": "paceline-autoscaler"}
SILENT_S: Final = 60.0

Holders = Mapping[str, Manifest | None]
"""The Lease of each part, None where there is none; a part whose Lease may not be read is missing."""


async def holders(api: KubeClient, system: str) -> Holders:
    """What the cluster tells of them."""
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
    """One line for each part that nobody runs, or that has not renewed its Lease lately."""
    return [line for part, lease in found.items() if (line := _line(part, lease, system, now))]


def _line(part: str, lease: Manifest | None, system: str, now: datetime) -> str:
    if lease is None:
        return f"no {part} has a Lease in {system}; statuses may be old, or it runs elsewhere: --system-namespace"
    spec = lease.get("spec") or {}
    renewed = spec.get("renewTime")
    silent = renewed is None or (now - datetime.fromisoformat(renewed)).total_seconds() > SILENT_S
    if spec.get("holderIdentity") and not silent:
        return ""
    since = f" since {age(renewed, now)}" if renewed else ""
    return f"no {part} holds its Lease{since}; statuses may be old"
