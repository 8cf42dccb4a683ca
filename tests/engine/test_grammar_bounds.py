"""What is known to take the grammar library seconds is refused by name before it looks; what people send passes."""

import json
from typing import Any

import pytest
from tests.every import cases

from paceline_workers.engine.sampling import grammar
from paceline_workers.engine.sampling.grammar import FIRST_S, LITERAL, MULTIPLE, check, repeats


def schema(value: Any) -> str:
    return f"json_schema:{json.dumps(value)}"


BIG = {"type": "integer", "multipleOf": 4_999_999}
WIDE: dict[str, Any] = {str(number): {"type": "integer"} for number in range(600)}
COSTLY = [
    (schema(BIG), "`multipleOf` is 4999999, and at most 10000"),
    (
        schema({"type": "object", "properties": {"price": {"multipleOf": 10.0007}}}),
        "`properties.price.multipleOf` is 1",
    ),
    (schema({"properties": {"default": BIG, "enum": {"properties": {"examples": BIG}}}}), "properties.examples.multi"),
    (schema({"anyOf": [{"items": {"multipleOf": 99_991}}]}), "`anyOf[0].items.multipleOf`"),
    (schema({"type": "integer", "allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}), "no common multiple"),
    (schema({"multipleOf": 97, "$ref": "#/$defs/a", "$defs": {"a": {"multipleOf": 1009}}}), "no common multiple"),
    (schema({"multipleOf": 1e300}), "`multipleOf` is 1e+300"),
    (schema({"type": "string", "pattern": "^(a{1000}){1000}$"}), "`pattern` is too costly"),
    (schema({"properties": {"a": {"multipleOf": 0}}}), "`properties.a.multipleOf` is 0, and must be more than 0"),
    (schema({"type": "integer", "multipleOf": -3}), "`multipleOf` is -3, and must be more than 0"),
    (schema({"patternProperties": {"((a{99}){99}){99}": {}}}), "970299 times"),
    (schema({"const": "x" * (LITERAL + 1)}), "`const` spells out"),
    (schema({"enum": ["a", "x" * (LITERAL + 1)]}), "`enum` spells out"),
    (schema({"properties": {"x" * (LITERAL + 1): {}}}), "spells out"),
    (
        schema({"items": {"properties": WIDE, "required": ["1", "x"]}}),
        "`items.properties` has 599 that are not required",
    ),
    ("regex:(a{1000}){1000}", "1000000 times"),
    ("regex:" + "a" * (LITERAL + 1), "spells out"),
    ('lark:start: a\na: %json {"type":"integer","multipleOf":4999999}', "`multipleOf` in it"),
    ('lark:start: a\na: %json {"allOf":[{"multipleOf":9973},{"multipleOf":9967}]}', "several together"),
    (schema({"multipleOf": 9_990_000.0}), "`multipleOf` is 9990000.0"),
    (f'lark:start: %json {{"multipleOf": {"9" * 5000}}}', "`multipleOf` in it"),
    ('lark:start: %json {"multipleOf": 1e99999999999999999999}', "`multipleOf` in it"),
    ("lark:start: X\nX: /(a{1000}){1000}/", "1000000 times"),
    (f'lark:start: "{"x" * (LITERAL + 1)}"', "spells out"),
]
FINE = [
    schema({"properties": WIDE, "required": [*WIDE][:200], "additionalProperties": False}),
    schema({"properties": {f"p{size}": {"type": "number", "multipleOf": size} for size in (0.01, 7, 0.25, 365, 1000)}}),
    schema({"type": "object", "properties": {"multipleOf": {"const": {"multipleOf": 4_999_999}}}}),
    schema({"type": "string", "pattern": "^([A-Z]{2}[0-9]{1,30} ?){1,100}$", "description": "x" * 20_000}),
    schema({"type": "integer", "allOf": [{"multipleOf": 12}, {"multipleOf": 18}]}),
    schema({"type": "integer", "multipleOf": MULTIPLE}),
    "regex:(\\x{1000}[{1000}]\\{1000}){1,100}",
    'lark:start: a{1000}\na: "x" | /[0-9]{1,300}/',
]


def test_what_is_known_to_be_too_costly_is_refused_before_the_library_sees_it() -> None:
    for text, words in COSTLY:
        assert words in check(text)
        with pytest.raises(ValueError, match=r".+"):
            grammar.source(text)


def test_a_number_that_is_none_is_the_librarys_to_refuse() -> None:
    assert "expected" in check('lark:start: %json {"multipleOf": 1.2.3}')


def test_what_people_send_is_not_refused() -> None:
    assert [check(text) for text in FINE] == [""] * len(FINE)


@cases(
    ("expression", "product"),
    [("abc", 1), ("a{3}b{4}", 4), ("(a{2}b{3}){2}", 6), ("((a{2,}){3,5}){,7}", 70), ("[{9}]{2}", 2),
     ("\\p{L}{3}\\u{9999}", 3), ("(a{3}|b{2}){2}){5}", 6), ("(a{4})*{3}", 12), ("a{x}", 1), ("[]{5}]{2}", 2)],
)  # fmt: skip
def test_counts_within_counts_are_multiplied(expression: str, product: int) -> None:
    assert repeats(expression) == product


def test_a_first_token_that_takes_long_is_refused() -> None:
    clock = iter([0.0, 2 * FIRST_S])
    assert "first token takes more than 25 ms" in check("regex:a{3}", cpu=lambda: next(clock))
