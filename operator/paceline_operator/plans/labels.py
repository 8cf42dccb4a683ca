"""The contest of services and routes over model names, kept up as they come and go.

Only a lost served name or public name is told, since that is what clients are given; a service's own name is not. Hole:
a caller that may not use the winner still reaches the loser; the condition speaks of everybody else.

The marks by which the operator knows its own objects, and the names of those that a namespace shares.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Final

from paceline_core.kube.cluster import Manifest, ObjectKey
from paceline_core.objects.metadata import API_VERSION, INFERENCE_ROUTE, INFERENCE_SERVICE
from paceline_core.objects.model_names import LostName, NameClaim, claimed, loss, owner_of
from paceline_core.objects.naming import LABEL_SERVICE
from paceline_operator.plans.types import ObjectRef

OURS: Final = "paceline.dev/"
INPUTS: Final = "paceline.dev/inputs"
RENDERED: Final = "paceline.dev/rendered"
WORKER: Final = "paceline.dev/worker"
ROTATE: Final = "paceline.dev/rotate"
MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "paceline")
WORKER_NAME: Final = ("app.kubernetes.io/name", "paceline-worker")

ACCOUNT: Final = "paceline-worker"
TRUST: Final = "paceline-trust"
TRUST_FILE: Final = "jwks.json"
POLICY: Final = "paceline-workers"
PORT: Final = 8000
PORT_NAME: Final = "http"
METRICS_PORT: Final = 8001
METRICS_PORT_NAME: Final = "metrics"
ASKERS: Final = ("paceline-gateway", "paceline-autoscaler")
"""Components that ask workers, as the chart labels their pods."""


def shared_labels() -> dict[str, str]:
    return dict((MANAGED_BY,))


def service_labels(service: str) -> dict[str, str]:
    """Labels of every child of a service; a Service hands them on to its EndpointSlices."""
    return {LABEL_SERVICE: service, **dict((WORKER_NAME, MANAGED_BY))}


def owner_reference(name: str, uid: str) -> dict[str, object]:
    return {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_SERVICE,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


@dataclass(frozen=True, slots=True)
class _Claims:
    claim: NameClaim
    reported: str
    names: frozenset[str]


class ModelNameIndex:
    """The claims of all services and routes. Each change answers with those whose `loss` may have changed."""

    def __init__(self) -> None:
        self._claims: dict[ObjectRef, _Claims] = {}
        self._by_name: defaultdict[str, set[ObjectRef]] = defaultdict(set)
        self._by_prefix: defaultdict[str, set[ObjectRef]] = defaultdict(set)
        self._namespaces: Counter[str] = Counter()

    def put(self, manifest: Manifest) -> frozenset[ObjectRef]:
        place = (manifest["kind"], ObjectKey(manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]))
        claims = _claims_of(manifest)
        if self._claims.get(place) == claims:
            return frozenset()
        touched = self.remove(place)
        self._claims[place] = claims
        for name in claims.names:
            self._by_name[name].add(place)
            self._by_prefix[name.partition("/")[0]].add(place)
        return (touched | self._rivals(place, claims) | self._count(claims.claim.namespace, 1)) - {place}

    def remove(self, place: ObjectRef) -> frozenset[ObjectRef]:
        if (claims := self._claims.pop(place, None)) is None:
            return frozenset()
        rivals = self._rivals(place, claims)
        for name in claims.names:
            for index, key in ((self._by_name, name), (self._by_prefix, name.partition("/")[0])):
                index[key].discard(place)
                if not index[key]:
                    del index[key]
        return rivals | self._count(claims.claim.namespace, -1)

    def loss(self, place: ObjectRef) -> LostName | None:
        """The loss of the name that this object is to be asked by; None if the object answers itself."""
        if (claims := self._claims.get(place)) is None or not claims.reported:
            return None
        rivals = (self._claims[other].claim for other in self._by_name.get(claims.reported, ()))
        return loss(claims.reported, claims.claim, rivals, self._namespaces)

    def _rivals(self, place: ObjectRef, claims: _Claims) -> frozenset[ObjectRef]:
        return frozenset(other for name in claims.names for other in self._by_name.get(name, ()) if other != place)

    def _count(self, namespace: str, change: int) -> frozenset[ObjectRef]:
        """Count a namespace's objects: with the first and the last of them, who owns `namespace/...` changes."""
        before = self._namespaces[namespace]
        self._namespaces[namespace] += change
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]
        if before and namespace in self._namespaces:
            return frozenset()
        others = (place for place in self._by_prefix.get(namespace, ()) if place[1].namespace != namespace)
        return frozenset(place for place in others if owner_of(self._claims[place].reported, {namespace}))


def _claims_of(manifest: Manifest) -> _Claims:
    claim, names = claimed(manifest)
    full = () if claim.kind == INFERENCE_ROUTE else (claim.key,)
    return _Claims(claim, names[0] if names else "", frozenset((*names, *full)))
