"""The user's files, checked as a cluster would check them, and local mode's additions.

Services that this machine cannot serve are refused here, before anything is started.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from paceline_core.clock import rfc3339
from paceline_core.errors import InvalidInput
from paceline_core.kube.cluster import ObjectKey
from paceline_core.launch import unsupported_route
from paceline_core.manifests import ParsedManifest, load_manifests
from paceline_core.objects import (
    API_VERSION,
    FieldError,
    InferenceRoute,
    InferenceService,
    ManifestError,
    ResolvedService,
    Tenant,
    resolve,
)
from paceline_local import LOCAL_TENANT, NAMESPACE
from paceline_local.preflight import accelerators, missing_on_host, unsupported_here
from paceline_local.warnings import manifest_warnings
from paceline_planner.service_devices import unknown_accelerators, unmanaged_accelerators

_LOCAL_TENANT_DOCUMENT: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": "Tenant",
    "metadata": {"name": LOCAL_TENANT, "namespace": NAMESPACE},
    "spec": {"services": ["*"]},
}


@dataclass(frozen=True, slots=True)
class LocalManifests:
    """The objects to serve: documents with a server's metadata, services resolved, and notes of `manifest_warnings`."""

    documents: tuple[dict[str, Any], ...]
    services: dict[ObjectKey, ResolvedService]
    notes: tuple[str, ...] = ()

    @property
    def tenants(self) -> list[str]:
        """Names of the valid Tenants."""
        metadata = (one["metadata"] for one in self.documents if one["kind"] == "Tenant")
        return [of["name"] for of in metadata if of["namespace"] == NAMESPACE]


def read_local_manifests(files: Sequence[Path], now: datetime) -> LocalManifests:
    """Read and check the files. Raises ManifestError with every fault, InvalidInput for an unreadable file."""
    surveys = [load_manifests(file) for file in files]
    manifests = [manifest for found in surveys for manifest in found.manifests]
    own = [fault for found in surveys for fault in found.faults]
    if faults := [*own, *_faults(manifests)]:
        raise ManifestError(faults)
    services = [resolve(m.found) for m in manifests if isinstance(m.found, InferenceService)]
    if not services:
        raise InvalidInput(", ".join(map(str, files)), "holds no InferenceService; add one to serve")
    documents = [manifest.document for manifest in manifests]
    tenants = {ObjectKey.parse(m.found.key) for m in manifests if isinstance(m.found, Tenant)}
    if ObjectKey(NAMESPACE, LOCAL_TENANT) not in tenants:
        documents.append(_LOCAL_TENANT_DOCUMENT)
    served = tuple(
        {
            **document,
            "metadata": {
                "namespace": "default",
                "uid": str(uuid.uuid4()),
                "creationTimestamp": rfc3339(now),
                "generation": 1,
                **document["metadata"],
            },
        }
        for document in documents
    )
    notes = tuple(manifest_warnings(manifests, manifests))
    return LocalManifests(served, {ObjectKey.parse(s.key): s for s in services}, notes)


def _faults(manifests: Sequence[ParsedManifest]) -> Iterator[FieldError]:
    """Duplicates in two files, then what is not served here. The parser of a file finds its own duplicates."""
    places = Counter((m.found.kind, m.found.key) for m in manifests)
    for manifest in manifests:
        if places[manifest.found.kind, manifest.found.key] > 1:
            yield FieldError(f"{manifest.context}: metadata.name", "stands in two files; rename one of them")
    yield from unservable(manifests)
    yield from refused(manifests, missing_on_host)


def unservable(manifests: Sequence[ParsedManifest]) -> Iterator[FieldError]:
    """What no machine could serve: not in this version, or only with an accelerator that these files do not define."""
    known = accelerators(manifests)
    yield from refused(manifests, unsupported_here)
    yield from refused(manifests, lambda service: unmanaged_accelerators(service, known.get))
    yield from idle_routes(manifests)
    yield from refused(manifests, lambda service: unknown_accelerators(service, known))


def refused(
    manifests: Iterable[ParsedManifest], why: Callable[[ResolvedService], Iterable[FieldError]]
) -> Iterator[FieldError]:
    """The problems that `why` (`unsupported_here` or `missing_on_host`) finds in valid manifests, with their places."""
    for manifest in manifests:
        if isinstance(manifest.found, InferenceService):
            for problem in why(resolve(manifest.found)):
                yield FieldError(f"{manifest.context}: {problem.field}", problem.message)


def idle_routes(manifests: Iterable[ParsedManifest]) -> Iterator[FieldError]:
    """Valid routes that no part of this version would answer."""
    for manifest in manifests:
        if isinstance(manifest.found, InferenceRoute):
            for problem in unsupported_route(manifest.found.spec):
                yield FieldError(f"{manifest.context}: {problem.field}", problem.message)
