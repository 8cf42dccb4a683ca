"""Who answers to a short model name: the oldest service, as the gateway resolves it; kept up as services come and go.

Every service claims its served name and its own name; the age is its creation time, then its key. Only a lost served
name is told, since that is the one clients are given. Hole: a caller that may not use the older service still reaches
the younger one by the short name; the condition speaks of everybody else.
"""

from dataclasses import dataclass

from paceline_core.kube.cluster import Key, Manifest


@dataclass(frozen=True, slots=True)
class _Claim:
    """One service's age, its served name and every short name it answers to."""

    age: tuple[str, str]
    served: str
    names: frozenset[str]


class Names:
    """The claims of all services. Each change answers with the services for which `taken_by` may have changed."""

    def __init__(self) -> None:
        self._claims: dict[Key, _Claim] = {}
        self._by_name: dict[str, set[Key]] = {}

    def put(self, service: Manifest) -> frozenset[Key]:
        """A service is there, or changed; what cannot be read claims its own name alone."""
        claim, key = _claim(service), _key(service)
        if self._claims.get(key) == claim:
            return frozenset()
        touched = self.remove(key)
        self._claims[key] = claim
        for name in claim.names:
            self._by_name.setdefault(name, set()).add(key)
        return touched | self._rivals(key, claim)

    def remove(self, key: Key) -> frozenset[Key]:
        """A service is gone."""
        if (claim := self._claims.pop(key, None)) is None:
            return frozenset()
        rivals = self._rivals(key, claim)
        for name in claim.names:
            self._by_name[name].discard(key)
            if not self._by_name[name]:
                del self._by_name[name]
        return rivals

    def taken_by(self, key: Key) -> str:
        """The key of the older service that answers to this one's served name; empty if it answers itself."""
        if (claim := self._claims.get(key)) is None:
            return ""
        oldest = min(self._by_name[claim.served], key=lambda other: self._claims[other].age)
        return "" if oldest == key else str(oldest)

    def _rivals(self, key: Key, claim: _Claim) -> frozenset[Key]:
        return frozenset(other for name in claim.names for other in self._by_name.get(name, ()) if other != key)


def _key(service: Manifest) -> Key:
    return Key(service["metadata"].get("namespace", ""), service["metadata"]["name"])


def _claim(service: Manifest) -> _Claim:
    metadata, spec = service["metadata"], service.get("spec")
    model = spec.get("model") if isinstance(spec, dict) else None
    served = model.get("servedName") if isinstance(model, dict) else None
    name = served if isinstance(served, str) and served else metadata["name"]
    age = (metadata.get("creationTimestamp") or "~", str(_key(service)))
    return _Claim(age, name, frozenset((name, metadata["name"])))
