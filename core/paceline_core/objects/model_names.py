"""Who owns a name that clients may write in `model`: one contest a name, over services and routes together. Pure.

A service claims its served name and its own name, a route its public name. The namespace of the oldest claim owns the
name (by creation time, then `namespace/name`), so that no namespace takes over what another one already answers to.
Within the namespace routes go before services, whatever their age: a route there fronts its own team's service.

`ns/...` belongs to `ns` where that namespace holds a service or a route; of any other text before the slash nobody is
the owner, so that a Hugging Face id stays a name like any other. `namespace/name` of a service is that service alone.
Hole: what a namespace without any such object will own can be claimed by others until it has one.
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
    """One object that claims a name. `created` is RFC 3339; `partial`: a route that applies to some requests only."""

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
        """What claims are ordered by; the oldest is the smallest."""
        return age(self.created, self.key)


@dataclass(frozen=True, slots=True)
class LostName:
    """Why a claim fails: another object answers, or, without one, the name belongs to another namespace.

    `partial`: the other one answers some requests only.
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

    Of what cannot be understood only what can; of a route that may be none.
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
    """An object without a timestamp was never stored and counts as the youngest."""
    return (created or _UNSTORED, key)


def owner_of(name: str, namespaces: Collection[str]) -> str:
    """The namespace that `ns/...` belongs to, of those that hold services or routes; empty if it belongs to none."""
    namespace, slash, _ = name.partition("/")
    return namespace if slash and namespace in namespaces else ""


def loss(name: str, mine: NameClaim, claims: Iterable[NameClaim], namespaces: Collection[str]) -> LostName | None:
    """The claim that wins `name` over `mine`, for a caller that may use all of them; None if none does.

    `claims` are all on this name, `mine` among them or not.
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
    # those that go before `mine`: of its namespace, the older of its kind; of others, what is older than all there
    rivals = [one for one in rivals if owner in ("", one.namespace)]
    own = [one for one in rivals if one.namespace == mine.namespace]
    firm = min((one.age for one in own if not one.partial), default=_NEVER)
    hiding = [one for one in own if one.kind == mine.kind and not one.partial]
    elsewhere = [one for one in rivals if one.namespace != mine.namespace and one.age < firm]
    older = [one for one in (*hiding, *elsewhere) if one.age < mine.age]
    winner = min(older, key=lambda one: (one.partial, one.age, one.kind), default=None)  # a route before a service
    return None if winner is None else LostName(name, winner.namespace, winner)
