"""Grammars are read before a request is queued: what is wrong is said in words, and nothing can be smuggled in."""

import json

import pytest

from paceline_workers.engine.sampling import grammar
from paceline_workers.engine.sampling.grammar import LONGEST, check

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def nested(levels: int) -> str:
    return '{"type": "array", "items": ' * levels + "true" + "}" * levels


@pytest.mark.parametrize(
    "text",
    [
        "json",
        f"json_schema:{json.dumps(PERSON)}",
        f"json_schema:{nested(30)}",
        "regex:[a-z]+@[a-z]+\\.(org|net)",
        'lark:start: expr\nexpr: NUMBER | "(" expr "+" expr ")"\nNUMBER: /[0-9]+/',
    ],
)
def test_a_good_grammar_has_nothing_against_it(text: str) -> None:
    assert check(text) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a grammar is json, json_schema:"),
        ("yaml:a", "a grammar is json, json_schema:"),
        ("json:x", "a grammar is json, json_schema:"),
        ("regex:", "a grammar is json, json_schema:"),
        ("json_schema:", "the schema is not JSON"),
        ("json_schema:{", "the schema is not JSON"),
        ("json_schema:[1]", "the schema must be a JSON object"),
        ("json_schema:true", "the schema must be a JSON object"),
        ('json_schema:{"type": "objct"}', "Invalid type: objct"),
        ('json_schema:{"type": "array", "minContains": 2}', "minContains"),
        ('json_schema:{"$ref": "http://example.org/schema"}', "http://example.org/schema"),
        (f"json_schema:{nested(200)}", "nested deeper than 64 levels"),
        (f"json_schema:{nested(2000)}", "the schema"),
        ("regex:a(b", "unclosed group"),
        ("regex:(?=a)b", "look-ahead"),
        ("lark:start: a", 'unknown name: "a"'),
        ("lark:a: b", "start"),
        ("lark:start: <|end|>", "special tokens"),
        ("regex:" + "a" * LONGEST, "at most 65536"),
    ],
)
def test_a_bad_grammar_is_told_what_is_wrong(text: str, words: str) -> None:
    assert words in check(text)


def test_a_schema_cannot_close_the_document_that_it_is_put_into() -> None:
    smuggled = '{"type": "object"}}, {"json_schema": {"type": "string"}'
    assert "the schema is not JSON" in check(f"json_schema:{smuggled}")
    assert len(json.loads(grammar.source(f"json_schema:{json.dumps(PERSON)}"))["grammars"]) == 1
