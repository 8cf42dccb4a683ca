"""Converts pydantic's JSON Schema to a structural schema, the subset that Kubernetes accepts in a CRD.

`$ref`s are inlined, `X | None` becomes an optional X, `const` an enum of one, titles and closed objects are removed
(the server prunes unknown fields). Only strings and flags keep their defaults, never numbers (code resolves those), and
nothing under `status` or in the revision's fields. An object whose fields have defaults gets `default: {}`, so that
they apply if it is not written. Anything that the subset cannot express is an error here, at generation.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from paceline_core.objects.metadata import Object
from paceline_core.units import one_spelling

Schema = dict[str, Any]
Loc = tuple[str | int, ...]

_COPIED: Final[tuple[str, ...]] = (
    "type", "format", "description", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum",
    "minItems", "maxItems", "maxProperties", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
)  # fmt: skip
_READ: Final = (
    "$ref", "anyOf", "const", "exclusiveMinimum", "title", "default", "properties", "items", "additionalProperties",
)  # fmt: skip
_KNOWN: Final = {*_COPIED, *_READ}
NO_DEFAULTS: Final = ("status", "spec.model", "spec.runtime", "spec.engine")
_WRITTEN: Final = ("spec.", "metadata.")
_MOST_PLACES: Final = 3
_INDEX: Final = re.compile(r"\[\d+\]")


@cache
def structural(kind: type[Object]) -> Schema:
    """The whole object's schema, without rules; the CRD leaves `metadata` to Kubernetes. Shared: never change it."""
    raw = kind.model_json_schema(by_alias=True, mode="validation")
    whole = _convert(raw, raw.pop("$defs"), "")
    whole["properties"] |= {
        "apiVersion": {"type": "string", "description": "Always paceline.dev/v1alpha1."},
        "kind": {"type": "string", "description": f"Always {kind.__name__}."},
    }
    order = ("apiVersion", "kind", "metadata", "spec", "status")
    return {**whole, "required": ["spec"], "properties": {name: whole["properties"][name] for name in order}}


def _convert(raw: Schema, defs: Schema, path: str) -> Schema:
    raw = _flatten(raw, defs)
    if unknown := set(raw) - _KNOWN:
        raise ValueError(f"{path}: a structural schema cannot express {', '.join(sorted(unknown))}")
    out = {key: raw[key] for key in _COPIED if key in raw}
    if "description" in out:
        out["description"] = " ".join(out["description"].split())
    if "exclusiveMinimum" in raw:
        out |= {"minimum": raw["exclusiveMinimum"], "exclusiveMinimum": True}
    if "const" in raw:
        out["enum"] = [raw["const"]]
    if "properties" in raw:
        children = raw["properties"].items()
        out["properties"] = {name: _convert(child, defs, _join(path, name)) for name, child in children}
    if "items" in raw:
        out["items"] = _convert(raw["items"], defs, f"{path}[]")
    if isinstance(raw.get("additionalProperties"), dict):
        out["additionalProperties"] = _convert(raw["additionalProperties"], defs, f"{path}{{}}")
    return _with_default(out, raw, path)


def _flatten(raw: Schema, defs: Schema) -> Schema:
    """Follow `$ref` and `X | None` to a plain schema; the keys beside them take precedence."""
    while "$ref" in raw or "anyOf" in raw:
        beside = {key: value for key, value in raw.items() if key not in ("$ref", "anyOf")}
        choices = [choice for choice in raw.get("anyOf", ()) if choice != {"type": "null"}]
        if "$ref" not in raw and len(choices) != 1:
            raise ValueError("a structural schema cannot express a choice of types")
        raw = {**(defs[raw["$ref"].rpartition("/")[2]] if "$ref" in raw else choices[0]), **beside}
    return raw


def _with_default(out: Schema, raw: Schema, path: str) -> Schema:
    if raw.get("default") is None or path.startswith(NO_DEFAULTS):
        return out
    default = raw["default"]
    if isinstance(default, (str, bool)):
        out["default"] = default
    elif "properties" in out and any("default" in child for child in out["properties"].values()):
        out["default"] = {}
    return out


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def child(node: Schema, part: str | int) -> Schema | None:
    """One step down a structural schema; None if the schema has no such path."""
    if isinstance(part, int):
        found = node.get("items")
    else:
        found = node.get("properties", {}).get(part) or node.get("additionalProperties")
    return found if isinstance(found, dict) else None


def at(schema: Schema, loc: Loc) -> Schema | None:
    node: Schema | None = schema
    for part in loc:
        node = child(node, part) if node is not None else None
    return node


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every node with its path: `spec.pools[].name`, and `{}` for the values of a map."""
    yield path, schema
    for name, node in schema.get("properties", {}).items():
        yield from walk(node, _join(path, name))
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from walk(schema["additionalProperties"], f"{path}{{}}")


def field_path(schema: Schema, loc: Loc) -> str:
    """`spec.pools[0].nodeSelector[zone]`: the path as Kubernetes writes it."""
    path, node = "", schema
    for part in loc:
        in_map = "properties" not in node and "additionalProperties" in node
        path = f"{path}[{part}]" if isinstance(part, int) or in_map else _join(path, part)
        node = child(node, part) or {}
    return path


def elsewhere(kind: type[Object], parent: Loc, name: str) -> list[str]:
    """Paths of the fields of this name, up to three: those below `parent`, or else any that users write."""
    schema = structural(kind)
    found = _paths_by_name(kind).get(one_spelling(name), ())
    below = [path for path in found if path.startswith(f"{_INDEX.sub('[]', field_path(schema, parent))}.")]
    places = below or [path for path in found if not parent and path.startswith(_WRITTEN[1])] or found
    if len(places) > _MOST_PLACES:
        return []
    indices = [count for count, part in enumerate(parent, start=1) if isinstance(part, int)]
    entry = field_path(schema, parent[: indices[-1]] if indices else ())
    shared = _INDEX.sub("[]", entry)
    return [entry + path.removeprefix(shared) if path.startswith(shared) else path for path in places]


@cache
def _paths_by_name(kind: type[Object]) -> Mapping[str, Sequence[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path, _ in walk(structural(kind)):
        if path.startswith(_WRITTEN) and not path.endswith("]") and "{}" not in path:
            found[one_spelling(path.rpartition(".")[2])].append(path)
    return found
