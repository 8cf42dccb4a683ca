"""Contests for model names among a set of manifests, decided as gateway and operator decide them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paceline_core.manifests import ParsedManifest
from paceline_core.objects import InferenceRoute, InferenceService
from paceline_core.objects.model_names import LostName, NameClaim, loss

Named = InferenceService | InferenceRoute


@dataclass(frozen=True, slots=True)
class ModelNameClaims:
    """Every claim on every name, and the namespaces that hold services or routes."""

    claims: Mapping[str, Sequence[NameClaim]]
    namespaces: frozenset[str]

    @classmethod
    def of(cls, here: Iterable[ParsedManifest]) -> "ModelNameClaims":
        """The claims of all services and routes among these."""
        claims: dict[str, list[NameClaim]] = {}
        named = [one.found for one in here if isinstance(one.found, Named)]
        for found in named:
            for name in (*names_of(found), found.key):
                claims.setdefault(name, []).append(claim_of(found))
        return cls(claims, frozenset(found.namespace for found in named))

    def loss(self, name: str, mine: NameClaim) -> LostName | None:
        """Return the claim that answers to `name` instead of `mine`; None if `mine` does."""
        return loss(name, mine, self.claims.get(name, ()), self.namespaces)


def names_of(found: Named) -> tuple[str, ...]:
    """Names that clients may use beside `namespace/name`, the preferred one first."""
    if isinstance(found, InferenceRoute):
        return (found.spec.model,)
    return tuple(dict.fromkeys((found.spec.model.served_name or found.name, found.name)))


def claim_of(found: Named) -> NameClaim:
    """The claim of a service or route on its names."""
    partial = isinstance(found, InferenceRoute) and bool(found.spec.matches)
    created = found.metadata.creation_timestamp or ""
    return NameClaim(found.kind, found.namespace, found.name, created, partial)
