"""The grammar of a forced call: what a function's schema refers to is found, wherever the schema stands."""

import json
from typing import Any

import pytest
import tokenizers
from llguidance import LLMatcher, LLTokenizer

from paceline_workers import demo
from paceline_workers.engine.sampling import grammar
from paceline_workers.server.tools.grammar import schema_of

TEXT = (demo.FOLDER / "tokenizer.json").read_text()
TOKENIZER: Any = tokenizers.Tokenizer.from_str(TEXT)
COLOUR = {"enum": ["red", "blue"]}
SIZE = {"enum": ["big"]}
TREE = {
    "type": "object",
    "properties": {"colour": {"$ref": "#/$defs/Kind"}, "below": {"$ref": "#"}},
    "required": ["colour"],
    "additionalProperties": False,
    "$defs": {"Kind": COLOUR},
}
BOX = {
    "type": "object",
    "properties": {
        "size": {"$ref": "#/definitions/Kind"},
        "const": {"const": {"$ref": "#/x"}},
        "enum": {"$ref": "#/definitions/Kind"},
    },
    "required": ["size"],
    "additionalProperties": False,
    "definitions": {"Kind": SIZE},
}
SCHEMAS = {"tree": TREE, "box-2": BOX, "none": {}}


def follows(schema: Any, text: str) -> bool:
    """Whether the grammar of `schema` takes `text` as a whole."""
    source = grammar.source(f"json_schema:{json.dumps(schema)}")
    matcher = LLMatcher(LLTokenizer(TEXT, n_vocab=TOKENIZER.get_vocab_size()), source, log_level=0)
    return matcher.consume_tokens(TOKENIZER.encode(text, add_special_tokens=False).ids) and matcher.is_accepting()


def call(name: str, parameters: Any) -> dict[str, Any]:
    return {"name": name, "parameters": parameters}


@pytest.mark.parametrize(
    "calls",
    [
        [call("tree", {"colour": "red", "below": {"colour": "blue", "below": {"colour": "red"}}})],
        [call("box-2", {"size": "big"}), call("tree", {"colour": "blue"})],
        [call("box-2", {"size": "big", "const": {"$ref": "#/x"}, "enum": "big"})],
        [call("none", {"anything": [1]})],
    ],
)
def test_references_of_every_offered_function_resolve(calls: list[Any]) -> None:
    assert follows(schema_of("", SCHEMAS, 4), json.dumps(calls))


@pytest.mark.parametrize(
    "calls",
    [
        [call("tree", {"colour": "big"})],
        [call("box-2", {"size": "red"})],
        [call("tree", {"colour": "red", "below": {"colour": "green"}})],
        [call("box-2", {"size": "big", "const": {"$ref": "#/$defs/box-2/x"}})],
        [],
    ],
)
def test_each_function_keeps_its_own_definitions(calls: list[Any]) -> None:
    assert not follows(schema_of("", SCHEMAS, 4), json.dumps(calls))


def test_one_forced_function_resolves_its_references_itself() -> None:
    assert follows(schema_of("tree", SCHEMAS, 1), '{"colour": "red", "below": {"colour": "blue"}}')
    assert not follows(schema_of("tree", SCHEMAS, 1), '{"colour": "big"}')
