"""Loads YAML as kubectl does, limited to JSON's types; other values are refused with their line.

Plain words follow the rules of kubectl's own parser (go-yaml 2, then JSON): `y`, `on` and `no` are booleans, `1e9` is
an integer, `0o17` and `017` are octal, `1:30` and `2026-01-31` stay text. A test compares both on a table. No value is
read differently; some that kubectl accepts are refused: keys that are not text or occur twice, tags beyond JSON's
types, a merge that overwrites an earlier key. Known hole: a `%YAML` directive is accepted here and refused there.

Aliases count as the values that they stand for: ten lines of ten aliases each are ten thousand million values.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from paceline_core.units import truncate

MOST_VALUES: Final = 100_000
"""The most values of one document."""
_PREFIX: Final = "tag:yaml.org,2002:"
_NULLS: Final = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE: Final = frozenset(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE: Final = frozenset(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"))
_INFINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WHOLE: Final = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_DECIMAL: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_FIRST: Final = frozenset("+-.0123456789")
_LOOSE: Final = re.compile(r"(?<![0-9])_|_(?![0-9])")
_LEAST, _MOST, _DIGITS = -(2**63), 2**64 - 1, 99
_EXACT: Final = 1e21
"""From this value on, Go writes a float with an exponent, so that JSON reads no integer."""


def _refuse_tag(_: yaml.SafeLoader, node: yaml.Node) -> None:
    tag = node.tag.replace(_PREFIX, "!!")
    raise _refusal(f"the tag {truncate(tag)} is not for manifests; leave it out", node)


class JSONLoader(yaml.SafeLoader):
    """SafeLoader with kubectl's rules for plain words and without other tags."""

    yaml_implicit_resolvers: Final = {}  # type: ignore[misc]  # a class attribute that its parent means to be replaced

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        """The tag of a node without an explicit one."""
        if kind is yaml.ScalarNode and implicit[0]:
            return _PREFIX + _kind(value)
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]

    def construct_document(self, node: yaml.Node) -> Any:
        """As in the parent class; raises ConstructorError for a document with too many values."""
        if (values := _values(node, {})) == math.inf:
            raise _refusal("an alias stands within what it stands for; write it out", node)
        if values > MOST_VALUES:
            raise _refusal(f"holds more than {MOST_VALUES} values, aliases counted; write fewer", node)
        return super().construct_document(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """As in the parent class; raises ConstructorError for a value that does not have its tag's type."""
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, KeyError, IndexError):
            raise _refusal(
                f"{truncate(node.value)} cannot be read as what it seems to be; write it in quotes", node
            ) from None

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """As in the parent class; raises ConstructorError for a text with a surrogate, which UTF-8 cannot encode."""
        if isinstance(node, yaml.ScalarNode) and any("\ud800" <= letter <= "\udfff" for letter in node.value):
            raise _refusal(f"{truncate(ascii(node.value))} is no text that can be written; leave it out", node)
        return super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As in the parent class; raises ConstructorError for keys that are not text or occur twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == f"{_PREFIX}merge":
                continue
            if key.tag != f"{_PREFIX}str":
                name = "a key"
                if isinstance(key, yaml.ScalarNode):
                    name = f"the key {truncate(key.value)}" if key.value else "an empty key"
                raise _refusal(f"{name} is not text; write it in quotes{_read_as(key)}", key)
            if key.value in seen:
                raise _refusal(f"{truncate(key.value)} stands twice in one map", key)
            seen.add(key.value)
        for name in _overwritten(node):
            raise _refusal(f"<< stands behind {truncate(name)}, which it would overwrite; write << first", node)
        return super().construct_mapping(node, deep=deep)

    def read_null(self, node: yaml.ScalarNode) -> None:
        """`~` and the like."""
        if str(self.construct_scalar(node)) not in _NULLS:
            raise ValueError

    def read_bool(self, node: yaml.ScalarNode) -> bool:
        """`yes`, `off` and the like."""
        word = str(self.construct_scalar(node))
        if word not in _TRUE | _FALSE:
            raise ValueError
        return word in _TRUE

    def read_number(self, node: yaml.ScalarNode) -> int | float:
        """A number as JSON passes it on: an integral one is an int, however it is written."""
        found = _number(str(self.construct_scalar(node)))
        if found is None:
            raise ValueError
        return found

    def read_whole(self, node: yaml.ScalarNode) -> int:
        """A node with the tag of an integer."""
        if isinstance(found := self.read_number(node), int):
            return found
        raise ValueError


JSONLoader.yaml_constructors = {
    f"{_PREFIX}null": JSONLoader.read_null,
    f"{_PREFIX}bool": JSONLoader.read_bool,
    f"{_PREFIX}int": JSONLoader.read_whole,
    f"{_PREFIX}float": JSONLoader.read_number,
    **{f"{_PREFIX}{tag}": yaml.SafeLoader.yaml_constructors[f"{_PREFIX}{tag}"] for tag in ("str", "seq", "map")},
    f"{_PREFIX}merge": yaml.SafeLoader.yaml_constructors[f"{_PREFIX}str"],
    None: _refuse_tag,
}


def _kind(word: str) -> str:
    if word in _NULLS:
        return "null"
    if word in _TRUE or word in _FALSE:
        return "bool"
    if word == "<<":
        return "merge"
    return "float" if _INFINITE.fullmatch(word) or _number(word) is not None else "str"


def _number(word: str) -> int | float | None:
    """None if the word is no number; underscores may be anywhere, but after a leading dot only between digits."""
    if word[:1] not in _FIRST or (word.startswith(".") and _LOOSE.search(word)):
        return None
    plain = word.replace("_", "")
    if len(plain) <= _DIGITS and (found := _WHOLE.fullmatch(plain)) is not None:
        sign, *digits = found.groups()
        base, text = next((base, text) for base, text in zip((16, 2, 8, 10), digits, strict=True) if text)
        whole = -int(text, base) if sign == "-" else int(text, base)
        if _LEAST <= whole <= _MOST:
            return whole
    value = float(plain) if _DECIMAL.fullmatch(plain) else math.inf
    if math.isinf(value):
        return None
    return int(value) if value.is_integer() and abs(value) < _EXACT else value


def _overwritten(node: yaml.MappingNode) -> Iterator[str]:
    """Keys that a later merge also has; kubectl takes the merge's value there, other parsers the key's."""
    seen: set[str] = set()
    for key, value in node.value:
        if key.tag == f"{_PREFIX}merge":
            yield from seen & set(_merged_keys(value))
        elif isinstance(key, yaml.ScalarNode):
            seen.add(key.value)


def _merged_keys(node: yaml.Node) -> Iterator[str]:
    if isinstance(node, yaml.SequenceNode):
        for part in node.value:
            yield from _merged_keys(part)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag == f"{_PREFIX}merge":
                yield from _merged_keys(value)
            elif isinstance(key, yaml.ScalarNode):
                yield key.value


def _read_as(key: yaml.Node) -> str:
    if not isinstance(key, yaml.ScalarNode) or not key.value:
        return ""
    match key.tag.removeprefix(_PREFIX):
        case "bool":
            return f", since YAML reads it as {'true' if key.value in _TRUE else 'false'}"
        case "null":
            return ", since YAML reads it as nothing"
        case "int" | "float":
            return ", since YAML reads it as a number"
    return ""


def _values(node: yaml.Node, counted: dict[int, float]) -> float:
    """The number of values below a node, itself included; infinite if it contains itself."""
    if id(node) not in counted:
        counted[id(node)] = math.inf
        below = node.value if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            below = [part for pair in node.value for part in pair]
        counted[id(node)] = 1 + sum(_values(part, counted) for part in below)
    return counted[id(node)]


def _refusal(message: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, message, node.start_mark)
