"""Whether a live object still is what we state: every leaf that we state must be so; what others add may stay.

Selectors and a policy's rules are wholes: one more key chooses other pods. The API server holds them to be atomic, so
that an apply takes such a key away; it leaves what others add to any other map. Lists of maps are matched by their
merge key as the API server matches them; all other lists are atomic: of one length, item by item. An empty value that
the server drops equals one that is not there.
Invariant: what the server stores of a body that we applied never differs from it. For this, bodies hold quantities,
numbers and enums in the server's own form.
Hole: a field that we no longer state is not seen here; whatever drops one must change a leaf beside it (a Deployment's
`paceline.dev/rendered` does).
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from paceline_operator.nouns import DesiredChild, ObservedChild

_MERGE_KEYS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "ownerReferences": (("uid",),),
    "containers": (("name",),),
    "volumes": (("name",),),
    "env": (("name",),),
    "volumeMounts": (("mountPath",),),
    "imagePullSecrets": (("name",),),
    "ports": (("containerPort", "protocol"), ("port", "protocol")),
}
_WHOLE: Final = frozenset(("selector", "podSelector", "nodeSelector", "ingress"))


def differs(desired: DesiredChild, live: ObservedChild) -> bool:
    """Whether an apply of `desired` would change `live`."""
    return not _holds(_stated(desired.body), orjson.loads(live.content), "")


def _stated(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {name: part for name, part in body["metadata"].items() if name not in ("name", "namespace")}
    rest = {name: part for name, part in body.items() if name not in ("apiVersion", "kind", "metadata")}
    return {"metadata": metadata, **rest}


def _holds(wish: Any, found: Any, name: str) -> bool:
    if wish == found:
        return True
    if isinstance(wish, dict):
        return isinstance(found, dict) and all(_has(found, key, part) for key, part in wish.items())
    if isinstance(wish, list):
        return isinstance(found, list) and _list_holds(wish, found, name)
    return False


def _has(found: Mapping[str, Any], key: str, wish: Any) -> bool:
    if key not in found:
        return wish in ({}, [], "")
    return wish == found[key] if key in _WHOLE else _holds(wish, found[key], key)


def _list_holds(wish: list[Any], found: list[Any], name: str) -> bool:
    if keys := _keys(wish, name):
        by_key = {tuple(item.get(key) for key in keys): item for item in found}
        return all(_holds(item, by_key.get(tuple(item.get(key) for key in keys)), "") for item in wish)
    return len(wish) == len(found) and all(_holds(one, other, name) for one, other in zip(wish, found, strict=True))


def _keys(wish: list[Any], name: str) -> tuple[str, ...] | None:
    if not wish or not isinstance(wish[0], dict):
        return None
    return next((keys for keys in _MERGE_KEYS.get(name, ()) if keys[0] in wish[0]), None)
