"""Grammars are read before a request is queued: what is wrong is said in words, and nothing can be smuggled in."""

import json

import pytest
from llguidance import LLMatcher, LLTokenizer
from tests.every import cases

from paceline_workers.engine.sampling import grammar
from paceline_workers.engine.sampling.grammar import LONGEST, check

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}

LOOP = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}


def nested(levels: int) -> str:
    return '{"type": "array", "items": ' * levels + "true" + "}" * levels


@pytest.mark.parametrize(
    "text",
    [
        "json",
        f"json_schema:{json.dumps(PERSON)}",
        f"json_schema:{nested(30)}",
        "regex:(a)?",
        'lark:start: ""',
        "regex:[a-z]+@[a-z]+\\.(org|net)",
        'lark:start: expr\nexpr: NUMBER | "(" expr "+" expr ")"\nNUMBER: /[0-9]+/',
    ],
)
def test_a_good_grammar_has_nothing_against_it(text: str) -> None:
    assert check(text) == ""


@cases(
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
        ("lark:start: start", "matches no text"),
        ("regex:[^\\x00-\\x{10FFFF}]", "matches no text"),
        (f"json_schema:{json.dumps(LOOP)}", "matches no text"),
        ("regex:" + "a" * LONGEST, "at most 65536"),
    ],
)
def test_a_bad_grammar_is_told_what_is_wrong(text: str, words: str) -> None:
    assert words in check(text)


def fits(text: str, words: str) -> bool:
    matcher = LLMatcher(LLTokenizer("byte"), grammar.source(text))
    return bool(matcher.consume_tokens(list(words.encode())) and matcher.is_accepting())


@pytest.mark.parametrize("text", ["json", f"json_schema:{json.dumps(PERSON)}"])
def test_json_has_one_blank_at_most(text: str) -> None:
    assert fits(text, '{"name":"a","age":1}')
    assert fits(text, '{ "name": "a", "age": 1 }')
    assert not fits(text, '{"name":  "a", "age": 1}')
    assert not fits(text, '{"name":\n"a", "age": 1}')


def test_a_schema_may_say_what_blanks_it_has() -> None:
    own = PERSON | {"x-guidance": {"whitespace_pattern": "\n*"}}
    assert fits(f"json_schema:{json.dumps(own)}", '{\n\n"name":"a","age":1}')
    assert not fits(f"json_schema:{json.dumps(own)}", '{"name": "a","age":1}')


def test_a_schema_cannot_close_the_document_that_it_is_put_into() -> None:
    smuggled = '{"type": "object"}}, {"json_schema": {"type": "string"}'
    assert "the schema is not JSON" in check(f"json_schema:{smuggled}")
    assert len(json.loads(grammar.source(f"json_schema:{json.dumps(PERSON)}"))["grammars"]) == 1
