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
    """Labels of what the services of a namespace share."""
    return dict((MANAGED_BY,))


def service_labels(service: str) -> dict[str, str]:
    """Labels of every child of a service; a Service hands them on to its EndpointSlices."""
    return {LABEL_SERVICE: service, **dict((WORKER_NAME, MANAGED_BY))}


def owner_reference(name: str, uid: str) -> dict[str, object]:
    """The reference that lets the garbage collector remove a child with its service."""
    return {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_SERVICE,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


@dataclass(frozen=True, slots=True)
class _Held:
    """Claims of one object: every name, and the one that its condition speaks of."""

    claim: NameClaim
    told: str
    names: frozenset[str]


class ModelNameIndex:
    """The claims of all services and routes. Each change answers with those whose `loss` may have changed."""

    def __init__(self) -> None:
        self._held: dict[ObjectRef, _Held] = {}
        self._by_name: defaultdict[str, set[ObjectRef]] = defaultdict(set)
        self._by_prefix: defaultdict[str, set[ObjectRef]] = defaultdict(set)
        self._namespaces: Counter[str] = Counter()

    def put(self, manifest: Manifest) -> frozenset[ObjectRef]:
        """A service or a route is there, or changed; of what cannot be read only the object's own name is claimed."""
        place = (manifest["kind"], ObjectKey(manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]))
        held = _held_by(manifest)
        if self._held.get(place) == held:
            return frozenset()
        touched = self.remove(place)
        self._held[place] = held
        for name in held.names:
            self._by_name[name].add(place)
            self._by_prefix[name.partition("/")[0]].add(place)
        return (touched | self._rivals(place, held) | self._settle(held.claim.namespace, 1)) - {place}

    def remove(self, place: ObjectRef) -> frozenset[ObjectRef]:
        """A service or a route is gone."""
        if (held := self._held.pop(place, None)) is None:
            return frozenset()
        rivals = self._rivals(place, held)
        for name in held.names:
            for index, key in ((self._by_name, name), (self._by_prefix, name.partition("/")[0])):
                index[key].discard(place)
                if not index[key]:
                    del index[key]
        return rivals | self._settle(held.claim.namespace, -1)

    def loss(self, place: ObjectRef) -> LostName | None:
        """The loss of the name that this object is to be asked by; None if the object answers itself."""
        if (held := self._held.get(place)) is None or not held.told:
            return None
        claims = (self._held[other].claim for other in self._by_name.get(held.told, ()))
        return loss(held.told, held.claim, claims, self._namespaces)

    def _rivals(self, place: ObjectRef, held: _Held) -> frozenset[ObjectRef]:
        return frozenset(other for name in held.names for other in self._by_name.get(name, ()) if other != place)

    def _settle(self, namespace: str, change: int) -> frozenset[ObjectRef]:
        """Count a namespace's objects: with the first and the last of them, who owns `namespace/...` changes."""
        before = self._namespaces[namespace]
        self._namespaces[namespace] += change
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]
        if before and namespace in self._namespaces:
            return frozenset()
        foreign = (place for place in self._by_prefix.get(namespace, ()) if place[1].namespace != namespace)
        return frozenset(place for place in foreign if owner_of(self._held[place].told, {namespace}))


def _held_by(manifest: Manifest) -> _Held:
    claim, names = claimed(manifest)
    full = () if claim.kind == INFERENCE_ROUTE else (claim.key,)
    return _Held(claim, names[0] if names else "", frozenset((*names, *full)))
