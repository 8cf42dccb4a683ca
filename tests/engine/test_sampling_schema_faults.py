"""What the grammar library refuses of a schema is told by its place there, in the schema's words."""

import json
from typing import Any

from paceline_workers.engine.sampling.grammar import check
from paceline_workers.engine.sampling.json_schema import in_words

JUST_ONE = {"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]}
LEAKS = ("coerce", "f64", "Some(", "Unsatisfiable", "digits:", "Unimplemented")
FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"properties": {"v": JUST_ONE}}, "just one alternative of `properties.v.oneOf` fits", "send `anyOf`"),
    (
        {"properties": {"a": {"minimum": 1}, "b": {"type": "number", "minimum": "x"}}},
        "`properties.b.minimum` must",
        "x",
    ),
    ({"properties": {"a": {"minLength": -1}}}, "`properties.a.minLength` must be a whole number, 0 or more", "not -1"),
    ({"required": 3}, "`required` must be a list, not 3", ""),
    (
        {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer", "minimum": 5, "maximum": 3}}},
        "`$defs.n.minimum` (5)",
        "(3)",
    ),
    ({"items": {"type": "integer", "minimum": 1e30}}, "`items.minimum` is 1e+30", "up to 999999999999999872"),
    ({"type": "integer", "minimum": 2**63 - 2}, "`minimum` is 9223372036854775806", "up to 999999999999999872"),
    ({"type": "integer", "minimum": 1.2, "maximum": 1.5}, "contains no integer values", ""),
    ({"properties": {"p": {"type": "number", "multipleOf": 0.57}}}, "`properties.p.multipleOf` (0.57)", "smaller unit"),
    ({"type": "integer", "maximum": 10**400}, "a number in the schema is beyond 1.8e308", "send a smaller one"),
    ({"properties": {"p": {"not": {}}}}, "`properties.p.not`", "leave it out"),
]


def test_a_fault_is_told_by_its_place_and_in_the_words_of_the_schema() -> None:
    for schema, place, fix in FAULTS:
        words = check(f"json_schema:{json.dumps(schema)}")
        assert place in words
        assert fix in words
        assert not [leak for leak in LEAKS if leak in words], words


def test_the_largest_bound_that_is_named_is_followed() -> None:
    assert check(f"json_schema:{json.dumps({'type': 'integer', 'minimum': 10**18 - 128})}") == ""


def test_what_is_not_known_passes_as_the_library_said_it() -> None:
    assert in_words("Pointer '/$defs/x' does not exist", {}) == "Pointer '/$defs/x' does not exist"
    assert in_words("integer range", {"minimum": 3}) == "integer range"
