"""What an autoscaler on a cluster has learned of a service, through the API server's pod proxy (`get` on `pods/proxy`).

Only the one that leads has it.
"""

import json
from collections.abc import Mapping
from typing import Any

from paceline_cli.kube.ledger import AUTOSCALER, LIMIT_S, PORT, SIZE_LIMIT
from paceline_cli.kube.session import proxied, text
from paceline_core.errors import NotFound, PacelineError
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES


async def read_learned(api: KubeClient, system: str, key: ObjectKey) -> Mapping[str, Any]:
    """Ask each autoscaler pod. Raises NotFound with what each of them said, and what listing the pods raises."""
    pods = await api.list(RESOURCES["Pod"], system, selector=AUTOSCALER)
    reasons = [] if pods else [f"no autoscaler runs in namespace {system}; choose another --system-namespace"]
    for pod in pods:
        name = pod["metadata"]["name"]
        url = proxied(ObjectKey(system, name), PORT, "/debug/learned")
        try:
            found = json.loads(await text(api, url, {"service": str(key)}, limit=SIZE_LIMIT, within_s=LIMIT_S))
        except (PacelineError, ValueError) as error:
            reasons.append(f"{name}: {error}")
            continue
        if isinstance(found, dict) and "stored" in found:
            return found
        reasons.append(f"{name} does not scale it")
    raise NotFound(f"no autoscaler has learned anything of {key}: {'; '.join(reasons)}")
