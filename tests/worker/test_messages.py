"""`/v1/messages`: blocks, events, tools, thinking, refusals in Anthropic's form, and streams that go on."""

import json
from collections.abc import AsyncIterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from tests.worker.harness import Rig, events, running
from tests.worker.scripted_engine import Script
from tests.worker.test_reasoning_routes import TEMPLATE
from tests.worker.test_tool_routes import CALL

from paceline_core.clock import SystemClock
from paceline_workers.server.openai.anthropic.request import MessagesRequest
from paceline_workers.server.openai.validation import parse
from paceline_workers.server.text.chat import ChatTemplate
from paceline_workers.server.text.tokenizer import Tokenizer

ROUTE = "/v1/messages"
TOOL: dict[str, Any] = {"name": "get_weather", "input_schema": {"type": "object"}}
THOUGHT, SAID = "I should look.", "Let me see."
REPLY = f"<think>{THOUGHT}</think>{SAID}\n{CALL}"
USER = [{"role": "user", "content": "hello"}]
BODY: dict[str, Any] = {"model": "chat", "messages": USER, "max_tokens": 900, "tools": [TOOL]}
RESULT = {"type": "tool_result", "tool_use_id": "1"}
USE: dict[str, Any] = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
SCHEMA = {"type": "json_schema", "schema": {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}}
UNIQUE = {"type": "json_schema", "schema": {"type": "array", "uniqueItems": True}}
SIGNATURE = blake2b(THOUGHT.encode(), digest_size=16).hexdigest()
CONTENT = [
    {"type": "thinking", "thinking": THOUGHT, "signature": SIGNATURE},
    {"type": "text", "text": SAID},
    {"type": "tool_use", "name": "get_weather", "input": {"city": "漢字"}},
]


@pytest.fixture
def script(tokenizer: Tokenizer) -> Script:
    return Script(reply=tokenizer.encode_now(REPLY, special=False), pause_s=0.001)


@pytest.fixture
async def rig(script: Script, folder: Path) -> AsyncIterator[Rig]:
    async with running(script, folder=folder) as rig:
        template = ChatTemplate(TEMPLATE, {}, SystemClock().utc, "test")
        object.__setattr__(rig.worker.parts.model, "template", template)
        yield rig


DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial",
}


def told(body: bytes) -> tuple[list[Any], Any, list[str]]:
    """The blocks that a stream tells, its last delta, and the kinds of its events."""
    blocks: list[Any] = []
    last, kinds = None, []
    for event in events(body):
        if event == "[DONE]":
            continue
        kinds.append(event["type"])
        if event["type"] == "content_block_start":
            blocks.append(event["content_block"] | {"partial": ""})
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            name = DELTAS[delta["type"]]
            blocks[event["index"]][name] += delta["partial_json" if name == "partial" else name]
        elif event["type"] == "message_delta":
            last = event
    return [settled(block) for block in blocks], last, kinds


def settled(block: dict[str, Any]) -> dict[str, Any]:
    partial = block.pop("partial", "")
    own = block | ({"input": json.loads(partial)} if partial else {})
    return {name: value for name, value in own.items() if name != "id"}


async def test_an_answer_has_blocks_of_thinking_text_and_call(rig: Rig) -> None:
    answer = (await rig.http.post(ROUTE, json=BODY)).json()
    assert [settled(block) for block in answer["content"]] == CONTENT
    assert (answer["type"], answer["role"], answer["stop_reason"]) == ("message", "assistant", "tool_use")
    assert answer["usage"]["output_tokens"] > 0


async def test_a_stream_tells_the_same(rig: Rig) -> None:
    blocks, last, kinds = told((await rig.http.post(ROUTE, json=BODY | {"stream": True})).content)
    assert blocks == CONTENT
    assert last["delta"]["stop_reason"] == "tool_use"
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])


async def test_a_stop_sequence_is_named(rig: Rig) -> None:
    answer = (await rig.http.post(ROUTE, json=BODY | {"stop_sequences": ["me"]})).json()
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "me")
    short = (await rig.http.post(ROUTE, json=BODY | {"max_tokens": 3})).json()
    assert (short["stop_reason"], short["stop_sequence"]) == ("max_tokens", None)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
        (
            {"messages": [{"role": "system", "content": [{"type": "thinking", "thinking": "a"}]}]},
            "messages[0].content[0]",
        ),
        ({"thinking": {"type": "between_tools"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "display": "short"}}, "thinking.display"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"tool_choice": {"type": "tool", "name": "other"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [{"name": "f", "input_schema": {"type": "objekt"}}]}, "tools[0].input_schema"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
        ({"output_config": {"format": UNIQUE}}, "output_config.format"),
        ({"output_format": SCHEMA}, "output_format"),
        ({"n": 2}, "n"),
        ({"seed": 5}, "seed"),
        ({"thinking": {"type": "enabled"}, "chat_template_kwargs": [1]}, "chat_template_kwargs"),
        (
            {"messages": [*USER, {"role": "user", "content": [RESULT | {"content": [{"type": "image"}]}]}]},
            "messages[1].content[0].content",
        ),
        (
            {"messages": [*USER, {"role": "user", "content": [RESULT | {"is_error": "yes"}]}]},
            "messages[1].content[0].is_error",
        ),
        ({"temperature": -1}, "temperature"),
    ],
)
async def test_what_is_refused_is_told_in_anthropics_form(rig: Rig, fields: dict[str, Any], param: str) -> None:
    answer = await rig.http.post(ROUTE, json=BODY | fields)
    assert (answer.status_code, answer.json()["type"]) == (400, "error")
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert f"`{param}`" in error["message"]


@pytest.mark.parametrize(
    ("role", "blocks", "param"),
    [
        ("assistant", [USE | {"id": "i" * 129}], "messages[1].content[0].id"),
        ("assistant", [USE | {"name": "n" * 65}], "messages[1].content[0].name"),
        ("assistant", [USE | {"name": ""}], "messages[1].content[0].name"),
        ("assistant", [USE] * 129, "messages[1].content"),
        ("user", [RESULT | {"tool_use_id": "i" * 129}], "messages[1].content[0].tool_use_id"),
    ],
)
async def test_what_is_too_long_in_a_message_is_named_by_its_place_there(
    rig: Rig, role: str, blocks: list[Any], param: str
) -> None:
    """Behind a system turn, and before results that become turns, a chat's places are others."""
    sent = [*USER, {"role": role, "content": blocks}, *USER]
    answer = await rig.http.post(ROUTE, json=BODY | {"messages": sent, "system": "be brief"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert f"`{param}`" in error["message"]


def test_messages_become_the_turns_of_a_chat() -> None:
    use = {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "one"}]}
    sent = [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, use]},
        {"role": "user", "content": [{"type": "text", "text": "more"}, result]},
    ]
    body = BODY | {"messages": sent, "system": "be brief", "tool_choice": {"type": "any"}}
    chat = parse(MessagesRequest, json.dumps(body).encode()).chat()
    function = {"name": "f", "arguments": '{"a": 1}'}
    assert chat["tool_choice"] == "required"
    assert chat["messages"] == [
        {"role": "system", "content": "be brief"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "one", "name": "f"},
        {"role": "user", "content": "more"},
    ]


def asked(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The chat that a body asks for."""
    body = BODY | {"messages": list(messages)} | fields
    return parse(MessagesRequest, json.dumps(body).encode()).chat()


def test_a_failed_call_is_told_as_an_error() -> None:
    use = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
    turns = [
        asked(*USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [RESULT | result]})[
            "messages"
        ]
        for result in ({"content": "no", "is_error": True}, {"is_error": True}, {"content": "no", "is_error": False})
    ]
    assert [own[-1]["content"] for own in turns] == ["Error: no", "Error", "no"]


def test_what_a_client_tells_of_itself_is_no_part_of_the_prompt() -> None:
    """Its own words change with each request, at the very begin."""
    own = [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={number};"} for number in (1, 2)]
    first, second = (asked(*USER, system=[block, {"type": "text", "text": "be brief"}])["messages"] for block in own)
    assert first == second == [{"role": "system", "content": "be brief"}, *USER]


def test_system_messages_stand_where_they_came_and_neighbours_are_one() -> None:
    """Many templates take one system turn at the begin, and refuse a second one."""
    more = {"role": "system", "content": [{"type": "text", "text": "be kind"}]}
    turns = asked(more, *USER, more, system="be brief")["messages"]
    assert [turn["role"] for turn in turns] == ["system", "user", "system"]
    assert [turns[0]["content"], turns[2]["content"]] == ["be brief\n\nbe kind", "be kind"]


async def test_thinking_is_counted_and_omitted_at_wish(rig: Rig) -> None:
    told, omitted = [
        (await rig.http.post(ROUTE, json=BODY | {"thinking": {"type": "adaptive", "display": display}})).json()
        for display in ("summarized", "omitted")
    ]
    assert [block["type"] for block in told["content"]] == ["thinking", "text", "tool_use"]
    assert [block["type"] for block in omitted["content"]] == ["text", "tool_use"]
    assert told["usage"] == omitted["usage"]
    details = told["usage"]["output_tokens_details"]
    assert 0 < details["thinking_tokens"] < told["usage"]["output_tokens"]


def test_thinking_that_was_redacted_is_left_out() -> None:
    blocks = [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "Rome"}]
    chat = asked(*USER, {"role": "assistant", "content": blocks}, *USER)
    assert chat["messages"][1] == {"role": "assistant", "content": "Rome"}


async def test_an_answer_goes_on_with_the_assistants_last_text(rig: Rig) -> None:
    begun = {"role": "assistant", "content": "The capital is"}
    plain, chat = (await counted(rig, messages=[*USER, begun])), "/v1/chat/completions"
    tool = {"type": "function", "function": {"name": TOOL["name"], "parameters": TOOL["input_schema"]}}
    fields = {"continue_final_message": True, "max_tokens": 3}
    body = {"model": "chat", "messages": [*USER, begun], "tools": [tool], **fields}
    assert plain == (await rig.http.post(chat, json=body)).json()["usage"]["prompt_tokens"]
    called = {"type": "tool_use", "id": "1", "name": "get_weather", "input": {}}
    assert "continue_final_message" not in asked(*USER, {"role": "assistant", "content": [called]})


async def counted(rig: Rig, **fields: Any) -> int:
    """Tokens of a prompt, as its answer tells them; asking for the count alone tells the same."""
    body = BODY | {"max_tokens": 3} | fields
    told = (await rig.http.post(ROUTE, json=body)).json()["usage"]["input_tokens"]
    only = {name: value for name, value in body.items() if name not in {"max_tokens", "stop_sequences"}}
    answer = await rig.http.post(f"{ROUTE}/count_tokens", json=only)
    assert answer.json() == {"input_tokens": told}
    return int(told)


async def test_a_prompt_is_counted_as_its_answer_counts_it(rig: Rig) -> None:
    plain = await counted(rig)
    with_system = await counted(rig, system=[{"type": "text", "text": "be brief"}])
    without_tools = await counted(rig, tools=[])
    silent = await counted(rig, thinking={"type": "disabled"})
    assert without_tools < plain < min(with_system, silent)
    assert await counted(rig, tool_choice={"type": "none"}) == without_tools
    assert rig.worker.parts.gate.open == 0


@pytest.mark.parametrize(
    ("fields", "status", "kind"),
    [
        ({"model": "other"}, 404, "not_found_error"),
        ({"messages": []}, 400, "invalid_request_error"),
        ({"tool_choice": {"type": "tool", "name": "other"}}, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": "a" * (1 << 19)}]}, 400, "invalid_request_error"),
    ],
)
async def test_a_count_is_refused_in_anthropics_form(rig: Rig, fields: dict[str, Any], status: int, kind: str) -> None:
    answer = await rig.http.post(f"{ROUTE}/count_tokens", json={"model": "chat", "messages": USER} | fields)
    assert (answer.status_code, answer.json()["type"], answer.json()["error"]["type"]) == (status, "error", kind)


@pytest.mark.parametrize("path", [ROUTE, f"{ROUTE}/count_tokens"])
async def test_what_no_route_takes_is_told_in_anthropics_form_too(rig: Rig, path: str) -> None:
    answer = await rig.http.get(path)
    assert (answer.status_code, answer.json()["error"]["type"]) == (405, "invalid_request_error")
    foreign = await rig.http.post(path, json=BODY, headers={"origin": "https://elsewhere.example"})
    assert (foreign.status_code, foreign.json()["type"]) == (400, "error")


async def test_an_answer_follows_the_schema_of_its_output_config(rig: Rig) -> None:
    chat = asked(*USER, output_config={"format": SCHEMA, "effort": "high"})
    assert chat["response_format"]["json_schema"]["schema"] == SCHEMA["schema"]
    assert chat["reasoning_effort"] == "high"
    answer = await rig.http.post(ROUTE, json=BODY | {"tools": [], "output_config": {"format": SCHEMA}})
    assert answer.status_code == 200, answer.text
