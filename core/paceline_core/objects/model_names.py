"""The owner of each name that clients may write in `model`: one decision per name, over services and routes. Pure.

A service claims its served name and its own name, a route its public name. The namespace of the oldest claim owns the
name (by creation time, then `namespace/name`), so that no namespace takes over a name that another one already uses.
Within the namespace routes come before services, whatever their age: a route there fronts its own team's service.

`ns/...` belongs to `ns` if that namespace has a service or a route; any other text before the slash belongs to no
namespace, so that a Hugging Face id is a name like any other. `namespace/name` of a service is only that service.
Known hole: other namespaces can claim names of a namespace until it has such an object.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from paceline_core.objects.metadata import INFERENCE_ROUTE, INFERENCE_SERVICE

_UNSTORED: Final = "~"
_NEVER: Final = (_UNSTORED * 2, "")
_WORDS: Final = {INFERENCE_SERVICE: "service", INFERENCE_ROUTE: "route"}


@dataclass(frozen=True, slots=True)
class NameClaim:
    """One object that claims a name. `created` is RFC 3339; `partial`: a route that applies only to some requests."""

    kind: str
    namespace: str
    name: str
    created: str = ""
    partial: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def age(self) -> tuple[str, str]:
        """The sort key of claims; the oldest is the smallest."""
        return age(self.created, self.key)


@dataclass(frozen=True, slots=True)
class LostName:
    """Why a claim fails: another object answers, or, without one, the name belongs to another namespace.

    `partial`: the other one answers only some requests.
    """

    name: str
    owner: str
    winner: NameClaim | None = None

    @property
    def partial(self) -> bool:
        return self.winner is not None and self.winner.partial

    def __str__(self) -> str:
        winner = self.winner
        if winner is None:
            return f"names that begin with {self.owner + '/'!r} belong to the namespace {self.owner}"
        if winner.kind == INFERENCE_SERVICE and winner.key == self.name:
            return f"{self.name!r} is the full name of the service {winner.key}"
        who = f"the older {_WORDS[winner.kind]} {winner.key} answers"
        if winner.partial:
            return f"{who} to {self.name!r} where its matches apply"
        return f"{who} every request for {self.name!r}" if winner.kind == INFERENCE_ROUTE else f"{who} to {self.name!r}"


def claimed(manifest: Mapping[str, Any]) -> tuple[NameClaim, tuple[str, ...]]:
    """The claim of a stored service or route and its names, the one that clients should use first.

    From an object that cannot be parsed, only the valid parts; for a route that may be none.
    """
    kind, metadata, spec = manifest.get("kind", ""), manifest["metadata"], _map(manifest.get("spec"))
    partial = kind == INFERENCE_ROUTE and bool(spec.get("matches"))
    created = metadata.get("creationTimestamp") or ""
    claim = NameClaim(kind, metadata.get("namespace") or "default", metadata["name"], created, partial)
    model = spec.get("model") if kind == INFERENCE_ROUTE else _map(spec.get("model")).get("servedName")
    own = () if kind == INFERENCE_ROUTE else (claim.name,)
    return claim, tuple(dict.fromkeys((*([model] if isinstance(model, str) and model else []), *own)))


def _map(part: object) -> Mapping[str, Any]:
    return part if isinstance(part, Mapping) else {}


def age(created: str | None, key: str) -> tuple[str, str]:
    """The sort key of an age; an object without a timestamp was never stored and counts as the youngest."""
    return (created or _UNSTORED, key)


def owner_of(name: str, namespaces: Collection[str]) -> str:
    """The namespace that owns `ns/...`, of those that have services or routes; empty if none does."""
    namespace, slash, _ = name.partition("/")
    return namespace if slash and namespace in namespaces else ""


def loss(name: str, mine: NameClaim, claims: Iterable[NameClaim], namespaces: Collection[str]) -> LostName | None:
    """The claim that wins `name` over `mine`, for a caller that may use all of them; None if none does.

    `claims` are all claims on this name, with or without `mine`.
    """
    if (mine.kind, mine.key) == (INFERENCE_SERVICE, name):
        return None
    rivals = [one for one in claims if one != mine]
    for one in rivals:
        if (one.kind, one.key) == (INFERENCE_SERVICE, name):
            return LostName(name, one.namespace, one)
    owner = owner_of(name, namespaces)
    if owner not in ("", mine.namespace):
        return LostName(name, owner)
    # claims that come before `mine`: in its namespace, the older of its kind; in others, those older than all there
    rivals = [one for one in rivals if owner in ("", one.namespace)]
    own = [one for one in rivals if one.namespace == mine.namespace]
    firm = min((one.age for one in own if not one.partial), default=_NEVER)
    hiding = [one for one in own if one.kind == mine.kind and not one.partial]
    elsewhere = [one for one in rivals if one.namespace != mine.namespace and one.age < firm]
    older = [one for one in (*hiding, *elsewhere) if one.age < mine.age]
    winner = min(older, key=lambda one: (one.partial, one.age, one.kind), default=None)  # a route before a service
    return None if winner is None else LostName(name, winner.namespace, winner)
