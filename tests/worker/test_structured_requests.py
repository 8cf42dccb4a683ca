"""Structured output: from OpenAI's and vLLM's fields to the engine's grammar, and what cannot be followed."""

import json
from typing import Any

import pytest
from msgspec import structs

from paceline_core.clock import SystemClock
from paceline_core.errors import Code, RequestError
from paceline_workers.messages import Started
from paceline_workers.server.http.caller import Caller
from paceline_workers.server.openai.chat_job import chat_job
from paceline_workers.server.openai.completion_job import completion_job
from paceline_workers.server.openai.jobs import JobInput
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.text.chat import ChatTemplate
from paceline_workers.server.text.tokenizer import Tokenizer

SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
TEXT = json.dumps(SCHEMA)
STARTED = Started(8, 16, 1, 1000, 8, [0], False, {})
ADD = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
NOW = {"type": "function", "function": {"name": "now"}}


TOOLS = (
    "{% for m in messages %}{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}"
    "</tool_call>{% endfor %}{% endfor %}{% if tools %}<tool_call>{{ tools | tojson }}</tool_call>{% endif %}"
)


async def grammar(tokenizer: Tokenizer, **fields: Any) -> str:
    model = ServedModel(("m",), tokenizer, None, SystemClock())
    body = json.dumps({"model": "m", "prompt": [1, 2]} | fields).encode()
    job = await completion_job(model, JobInput(body, Caller("r"), STARTED))
    return job.choices[0].submit.sampling.grammar


async def chat(tokenizer: Tokenizer, started: Started = STARTED, **fields: Any) -> str:
    template = ChatTemplate(TOOLS, {}, SystemClock().utc, "test")
    model = ServedModel(("m",), tokenizer, template, SystemClock())
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1} | fields
    job = await chat_job(model, JobInput(json.dumps(body).encode(), Caller("r"), started))
    return job.choices[0].submit.sampling.grammar


def spaced(schema: Any, **spaces: Any) -> str:
    return f"json_schema:{json.dumps(schema | {'x-guidance': spaces})}"


def json_schema(schema: Any) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, ""),
        ({"response_format": None}, ""),
        ({"response_format": {"type": "text"}}, ""),
        ({"response_format": {"type": "json_object"}}, "json"),
        ({"response_format": json_schema(SCHEMA)}, f"json_schema:{TEXT}"),
        ({"guided_json": SCHEMA}, f"json_schema:{TEXT}"),
        ({"guided_json": TEXT}, f"json_schema:{TEXT}"),
        ({"guided_regex": "[ab]+"}, "regex:[ab]+"),
        ({"guided_choice": ["yes", 'n"ö']}, 'lark:start: "yes" | "n\\"ö"'),
        ({"guided_grammar": 'start: "a"'}, 'lark:start: "a"'),
        ({"structured_outputs": {"json": SCHEMA, "regex": None}}, f"json_schema:{TEXT}"),
        ({"structured_outputs": {"json_object": True}}, "json"),
        ({"structured_outputs": {"choice": ["a"]}}, 'lark:start: "a"'),
        ({"structured_outputs": {"json": SCHEMA, "whitespace_pattern": None}}, f"json_schema:{TEXT}"),
        ({"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": False}}, f"json_schema:{TEXT}"),
        ({"structured_outputs": {"json": TEXT, "whitespace_pattern": "x"}}, spaced(SCHEMA, whitespace_pattern="x")),
        ({"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
         spaced(SCHEMA, whitespace_flexible=False)),
        ({"structured_outputs": {"json_object": True, "disable_any_whitespace": True}},
         spaced({"type": "object"}, whitespace_flexible=False)),
    ],
)  # fmt: skip
async def test_each_field_is_one_grammar(tokenizer: Tokenizer, fields: dict[str, Any], asked: str) -> None:
    assert await grammar(tokenizer, **fields) == asked


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"response_format": "json"}, "response_format", "must be"),
        ({"response_format": {"type": "xml"}}, "response_format", "must be"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "must be"),
        ({"response_format": json_schema({"type": "nope"})}, "response_format", "nope"),
        ({"guided_json": 5}, "guided_json", "JSON schema"),
        ({"guided_json": "{"}, "guided_json", "cannot be followed"),
        ({"guided_regex": "("}, "guided_regex", "cannot be followed"),
        ({"guided_regex": ""}, "guided_regex", "not empty"),
        ({"guided_choice": []}, "guided_choice", "1 to 256"),
        ({"guided_choice": [""]}, "guided_choice", "not empty"),
        ({"guided_choice": "yes"}, "guided_choice", "a list"),
        ({"guided_grammar": "start: nothing"}, "guided_grammar", "cannot be followed"),
        ({"structured_outputs": {}}, "structured_outputs", "one of"),
        ({"structured_outputs": "json"}, "structured_outputs", "one of"),
        ({"structured_outputs": {"json": SCHEMA, "regex": "a"}}, "structured_outputs", "one of"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object", "must be true"),
        ({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}}, "structured_outputs", "JSON alone"),
        ({"structured_outputs": {"json": SCHEMA, "whitespace_pattern": 5}}, "structured_outputs", "regular expression"),
        ({"structured_outputs": {"json": SCHEMA, "whitespace_pattern": "("}}, "structured_outputs", "unclosed group"),
        ({"structured_outputs": {"json": SCHEMA, "whitespace_pattern": " ", "disable_any_whitespace": True}},
         "structured_outputs", "not together"),
        ({"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": "no"}}, "structured_outputs", "true or fal"),
        ({"guided_grammar": "start: start"}, "guided_grammar", "matches no text"),
        ({"guided_regex": "[^\\x00-\\x{10FFFF}]"}, "guided_regex", "matches no text"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex", "both"),
    ],
)  # fmt: skip
async def test_what_cannot_be_followed_is_refused_by_name(
    tokenizer: Tokenizer, fields: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        await grammar(tokenizer, **fields)
    assert (caught.value.code, caught.value.param) == (Code.INVALID_REQUEST, param)


async def test_a_schema_as_text_that_is_too_long_is_not_parsed(tokenizer: Tokenizer) -> None:
    """8 MB of `[],` would take the loop 1.5 s."""
    text = '{"enum": [' + "[]," * 30_000 + "1]}"
    with pytest.raises(RequestError, match="at most 65536") as caught:
        await grammar(tokenizer, structured_outputs={"json": text, "whitespace_pattern": " "})
    assert "x-guidance" not in str(caught.value)
    assert f"it has {len(text) + len('json_schema:')} characters" in str(caught.value)


async def test_a_named_function_forces_its_arguments(tokenizer: Tokenizer) -> None:
    named = {"type": "function", "function": {"name": "add"}}
    assert await chat(tokenizer, tools=[ADD, NOW], tool_choice=named) == f"json_schema:{TEXT}"


async def test_any_function_forces_a_list_of_calls(tokenizer: Tokenizer) -> None:
    text = await chat(tokenizer, tools=[ADD, NOW], tool_choice="required")
    schema = json.loads(text.removeprefix("json_schema:"))
    calls = [call["properties"] for call in schema["items"]["anyOf"]]
    assert calls == [
        {"name": {"const": "add"}, "parameters": {"$ref": "#/$defs/add"}},
        {"name": {"const": "now"}, "parameters": {"$ref": "#/$defs/now"}},
    ]
    assert schema["$defs"] == {"add": SCHEMA, "now": {"type": "object"}}
    assert (schema["minItems"], schema["maxItems"]) == (1, 128)


async def test_one_call_alone_can_be_forced(tokenizer: Tokenizer) -> None:
    text = await chat(tokenizer, tools=[ADD], tool_choice="required", parallel_tool_calls=False)
    assert json.loads(text.removeprefix("json_schema:"))["maxItems"] == 1


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "rm"}}])
async def test_a_function_that_is_not_there_cannot_be_forced(tokenizer: Tokenizer, choice: Any) -> None:
    with pytest.raises(RequestError) as caught:
        await chat(tokenizer, tools=[ADD] if isinstance(choice, dict) else [], tool_choice=choice)
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize(("choice", "param"), [("required", "tools"), ("auto", "response_format")])
async def test_a_call_that_must_come_stands_above_a_format(tokenizer: Tokenizer, choice: str, param: str) -> None:
    how: Any = {"tools": [ADD], "tool_choice": choice, "response_format": {"type": "json_object"}}
    with pytest.raises(RequestError) as caught:
        await chat(tokenizer, structs.replace(STARTED, grammars=False), **how)
    assert caught.value.param == param
    assert (await chat(tokenizer, **how)).startswith("json_schema:" if choice == "required" else "calls:")
