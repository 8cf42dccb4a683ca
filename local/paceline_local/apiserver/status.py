"""Status by field manager, as server-side apply with force does it: an apply replaces what its manager applied before.

A field belongs to the manager that wrote it last, and is gone when that one no longer sends it. `conditions` is a list
that several managers share, keyed by `type`; every other list belongs to one manager and is replaced whole.
"""

from collections.abc import Mapping
from typing import Any

_KEYED = {"conditions": "type"}


def apply(parts: Mapping[str, Any], status: Mapping[str, Any], manager: str) -> dict[str, Any]:
    """The parts by manager after `manager` has applied `status`: the others lose the fields that it took."""
    others = {name: _less(part, status) for name, part in parts.items() if name != manager}
    return {**others, manager: dict(status)}


def merged(parts: Mapping[str, Any]) -> dict[str, Any]:
    """What readers see: every manager's part."""
    whole: dict[str, Any] = {}
    for part in parts.values():
        whole = _joined(whole, part)
    return whole


def _joined(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    return {**left, **{name: _join(name, left.get(name), value) for name, value in right.items()}}


def _join(name: str, left: Any, right: Any) -> Any:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return _joined(left, right)
    if name in _KEYED and isinstance(left, list):
        return [*left, *right]
    return right


def _less(part: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
    merged = {name: _rest(name, value, taken[name]) if name in taken else value for name, value in part.items()}
    return {name: value for name, value in merged.items() if value is not None}


def _rest(name: str, value: Any, taken: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(taken, Mapping):
        return _less(value, taken)
    if name in _KEYED:
        mine = {item[_KEYED[name]] for item in taken}
        return [item for item in value if item[_KEYED[name]] not in mine]
    return None
