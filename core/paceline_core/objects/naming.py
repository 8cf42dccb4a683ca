"""Names and labels of the objects that paceline creates, and the revision of what is served.

Selectors have service, pool and track and nothing else: they cannot be changed on an existing Deployment.
"""

import hashlib
import json
from base64 import b32encode
from typing import Any, Final

from paceline_core.objects.service import InferenceService

LABEL_SERVICE: Final = "paceline.dev/service"
LABEL_POOL: Final = "paceline.dev/pool"
LABEL_TRACK: Final = "paceline.dev/track"
LABEL_REVISION: Final = "paceline.dev/revision"
LABEL_ROLE: Final = "paceline.dev/role"
LABEL_TENANT: Final = "paceline.dev/tenant"
ANNOTATION_PAUSE_UNTIL: Final = "paceline.dev/pause-until"
ANNOTATION_PAUSE_REASON: Final = "paceline.dev/pause-reason"
ANNOTATION_UPGRADE: Final = "paceline.dev/upgrade"

STABLE: Final = "stable"
CANARY: Final = "canary"


def deployment_name(service: str, pool: str, track: str = STABLE) -> str:
    return f"{service}-{pool}-canary" if track == CANARY else f"{service}-{pool}"


def workers_service_name(service: str) -> str:
    return f"{service}-workers"


def selector_labels(service: str, pool: str, track: str = STABLE) -> dict[str, str]:
    return {LABEL_SERVICE: service, LABEL_POOL: pool, LABEL_TRACK: track}


def pod_labels(service: str, pool: str, *, role: str, revision: str, track: str = STABLE) -> dict[str, str]:
    """The selector's labels and others for users; no version of paceline, so that an upgrade restarts no pods."""
    return {
        **selector_labels(service, pool, track),
        LABEL_REVISION: revision,
        LABEL_ROLE: role,
        "app.kubernetes.io/name": "paceline-worker",
        "app.kubernetes.io/managed-by": "paceline",
    }


def revision(service: InferenceService) -> str:
    """Ten characters that change when the user changes model, runtime or engine, and only then.

    Only what the user wrote counts (unset fields and empty maps are left out), so a default that a later paceline adds
    to the schema or changes in code changes no revision.
    """
    spec = service.spec
    written = {
        name: _written(part.model_dump(mode="json", by_alias=True, exclude_unset=True))
        for name, part in (("model", spec.model), ("runtime", spec.runtime), ("engine", spec.engine))
    }
    canonical = json.dumps(_written(written), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return b32encode(hashlib.sha256(canonical.encode()).digest()).decode().lower()[:10]


def _written(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _written(item) for key, item in value.items()}
    return {key: item for key, item in inner.items() if item not in (None, {}, [])}
