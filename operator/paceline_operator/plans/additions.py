"""What other managers added to a Deployment: fields that we do not state, so that an apply leaves them where they are.

Read from managedFields, which name every field that a manager set. Replicas, status and what Kubernetes itself marks
belong to their own writers and are not counted; a field that we set too is no addition.
Hole: a field that one manager set and another removed again is in no entry, and what the server defaulted in neither.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from paceline_operator.nouns import MANAGER, REPLICAS_MANAGER, SCALER

SHOWN: Final = 4
"""Fields that are named for each manager."""
_OURS: Final = frozenset((MANAGER, REPLICAS_MANAGER, SCALER))
_SYSTEM: Final = "kube-controller-manager"

Fields = Mapping[str, Any]


def foreign_fields(metadata: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """By manager the fields below `spec` that it added, in the words of a manifest; the first few of each."""
    entries = [one for one in metadata.get("managedFields") or () if not one.get("subresource")]
    ours = [_spec(one) for one in entries if one.get("manager") in _OURS]
    found: dict[str, list[str]] = {}
    for one in entries:
        manager = str(one.get("manager", ""))
        if manager not in _OURS and manager != _SYSTEM:
            found.setdefault(manager, []).extend(_added(_spec(one), ours, "spec"))
    return tuple((manager, _told(paths)) for manager, paths in sorted(found.items()) if paths)


def _spec(entry: Mapping[str, Any]) -> Fields:
    spec = (entry.get("fieldsV1") or {}).get("f:spec")
    fields = spec if isinstance(spec, dict) else {}
    return {name: part for name, part in fields.items() if name != "f:replicas"}


def _added(theirs: Fields, ours: list[Fields], path: str) -> Iterator[str]:
    """The topmost fields that nobody of ours holds."""
    for name, part in theirs.items():
        if name == ".":
            continue
        held = [fields[name] for fields in ours if isinstance(fields.get(name), dict)]
        place = _place(path, name)
        if not held:
            yield place
        elif isinstance(part, dict):
            yield from _added(part, held, place)


def _place(path: str, name: str) -> str:
    """`f:nodeName` is a field, `k:{"name":"worker"}` an item of a list by its keys, `v:` one of a set by its value."""
    kind, _, rest = name.partition(":")
    if kind == "f":
        return f"{path}[{rest}]" if "." in rest or "/" in rest else f"{path}.{rest}"
    try:
        keys = orjson.loads(rest)
    except orjson.JSONDecodeError:
        keys = rest
    return f"{path}[{','.join(map(str, keys.values())) if isinstance(keys, dict) else keys}]"


def _told(paths: list[str]) -> str:
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return f"{', '.join(sorted(paths)[:SHOWN])}{more}"
