"""YAML as far as JSON can say it, refused with its line where it says more.

Keys are text and stand once, a bare `2026-01-31` stays text, and tags beyond JSON's types are refused. Aliases
count as what they stand for: ten lines of ten aliases each are ten thousand million values.
"""

import math
from typing import Any, Final

import yaml

from paceline_core.words import cut

MOST_VALUES: Final = 100_000
"""Of one document."""
_PREFIX: Final = "tag:yaml.org,2002:"
_TAGS: Final = ("null", "bool", "int", "float", "str", "seq", "map")


def _refuse_tag(_: yaml.SafeLoader, node: yaml.Node) -> None:
    tag = node.tag.replace(_PREFIX, "!!")
    raise _refusal(f"the tag {cut(tag)} is not for manifests; leave it out", node)


class JSONLoader(yaml.SafeLoader):
    """SafeLoader without timestamps and tags of its own."""

    yaml_implicit_resolvers: Final = {  # type: ignore[misc]  # a class attribute that its parent means to be replaced
        first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_PREFIX}timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors: Final = {  # type: ignore[misc]  # as above
        **{f"{_PREFIX}{tag}": yaml.SafeLoader.yaml_constructors[f"{_PREFIX}{tag}"] for tag in _TAGS},
        None: _refuse_tag,
    }

    def construct_document(self, node: yaml.Node) -> Any:
        """As its parent; raises ConstructorError for a document of too many values."""
        if (values := _values(node, {})) == math.inf:
            raise _refusal("an alias stands within what it stands for; write it out", node)
        if values > MOST_VALUES:
            raise _refusal(f"holds more than {MOST_VALUES} values, aliases counted; write fewer", node)
        return super().construct_document(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """As its parent; raises ConstructorError for what is not of its own type."""
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, KeyError, IndexError):
            raise _refusal(
                f"{cut(node.value)} cannot be read as what it seems to be; write it in quotes", node
            ) from None

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """As its parent; raises ConstructorError for half a character."""
        if isinstance(node, yaml.ScalarNode) and any("\ud800" <= letter <= "\udfff" for letter in node.value):
            raise _refusal(f"{cut(ascii(node.value))} is no text that can be written; leave it out", node)
        return super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As its parent; raises ConstructorError for keys that are no text or stand twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == f"{_PREFIX}merge":
                continue
            if key.tag != f"{_PREFIX}str":
                raise _refusal(f"{_named(key)} is not text; write it in quotes", key)
            if key.value in seen:
                raise _refusal(f"{cut(key.value)} stands twice in one map", key)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _named(key: yaml.Node) -> str:
    if not isinstance(key, yaml.ScalarNode):
        return "a key"
    return f"the key {cut(key.value)}" if key.value else "an empty key"


def _values(node: yaml.Node, counted: dict[int, float]) -> float:
    """Values below a node and itself, without end where it stands below itself."""
    if id(node) not in counted:
        counted[id(node)] = math.inf
        below = node.value if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            below = [part for pair in node.value for part in pair]
        counted[id(node)] = 1 + sum(_values(part, counted) for part in below)
    return counted[id(node)]


def _refusal(message: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, message, node.start_mark)
