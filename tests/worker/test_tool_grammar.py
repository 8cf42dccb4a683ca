"""Structured output beside tools: the grammar takes the answer that is asked for, or calls in the model's form."""

import json
from functools import cache

import pytest
from llguidance import LLTokenizer

from paceline_workers.engine.sampling import grammar
from paceline_workers.server.tools.formats import Hermes, Llama, Mistral
from paceline_workers.server.tools.grammar import alternative
from paceline_workers.server.tools.parser import Syntax

ADD = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
NODE = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
SCHEMAS = {"add": ADD, "now": {}, "walk": NODE}
ANSWER = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": False}
ASKED = f"json_schema:{json.dumps(ANSWER)}"
CALLS = [
    (Hermes().syntax, '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>', "\n"),
    (Llama().syntax, '{"name": "%s", "parameters": %s}', "; "),
    (Mistral(named=True).syntax, "[TOOL_CALLS]%s[ARGS]%s", ""),
    (Mistral().syntax, '[TOOL_CALLS][{"name": "%s", "arguments": %s}]', None),
]
EXPRESSIONS = [(r"a\/b", "a/b"), (r"\\/", "\\/"), ("a\nb", "a\nb"), ("\\\n", "\n"), ("a\u2028b", "a\u2028b"),
               ("x%json y", "x%json y"), (r"x\%json y", "x%json y")]  # fmt: skip
"""With what ends an expression or a line in Lark, or begins a schema, escaped or not."""


@cache
def letters() -> LLTokenizer:
    return LLTokenizer("byte")


def fits(made: str, text: str) -> bool:
    assert grammar.check(made) == ""
    matcher = grammar.matcher(letters(), made)
    tokens = list(text.encode())
    return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())


def made(syntax: Syntax, most: int, answer: str = ASKED) -> str:
    return alternative(answer, syntax, SCHEMAS, lambda _: None, most=most)


@pytest.mark.parametrize(("syntax", "form", "between"), CALLS)
def test_an_answer_or_calls_in_the_models_form_and_nothing_else(syntax: Syntax, form: str, between: str | None) -> None:
    both = made(syntax, 9)
    call = form % ("add", '{"a": 1}')
    assert fits(both, '{"x": "hi"}')
    assert fits(both, call)
    assert fits(both, form % ("now", '{"any": [1]}'))
    assert fits(both, form % ("walk", '{"next": {"next": {}}}'))
    wrong = ["hello", "{}", form % ("add", '{"a": "x"}'), form % ("rm", "{}"), '{"x": "hi"}' + call]
    assert [text for text in wrong if fits(both, text)] == []
    if between is not None:
        assert fits(both, call + between + call)
        assert not fits(made(syntax, 1), call + between + call)


def test_a_list_of_one_call_is_one_call() -> None:
    one = '{"name": "add", "arguments": {"a": 1}}'
    assert fits(made(Mistral().syntax, 2), f"[TOOL_CALLS][{one}, {one}]")
    assert not fits(made(Mistral().syntax, 1), f"[TOOL_CALLS][{one}, {one}]")


def test_an_expression_may_be_the_answer_and_a_grammar_may_not() -> None:
    assert fits(made(Hermes().syntax, 1, "regex:[a-z/]+"), "a/b")
    assert fits(made(Hermes().syntax, 1, "json"), '{"any": 1}')
    for expression, text in EXPRESSIONS:
        assert fits(f"regex:{expression}", text)
        assert fits(made(Hermes().syntax, 1, f"regex:{expression}"), text)
    for wrong in ("", "a\\", "a\\\\\\"):
        with pytest.raises(ValueError, match="empty, or ends within an escape"):
            made(Hermes().syntax, 1, f"regex:{wrong}")
    with pytest.raises(ValueError, match="only JSON and regular expressions"):
        made(Hermes().syntax, 1, 'lark:start: "a"')


def test_a_marker_that_is_a_special_token_is_named_by_its_id() -> None:
    text = alternative(ASKED, Mistral(named=True).syntax, SCHEMAS, {"[TOOL_CALLS]": 5, "[ARGS]": 7}.get, most=1)
    assert "<[5]>" in text
    assert "<[7]>" in text
    assert "TOOL_CALLS" not in text


def test_costly_schemas_are_refused_here_too() -> None:
    bomb = {"add": {"type": "integer", "multipleOf": 4999999}}
    text = alternative(ASKED, Hermes().syntax, bomb, lambda _: None, most=1)
    assert "multipleOf" in grammar.check(text)
