"""`/v1/messages`: blocks, events, tools, thinking, refusals in Anthropic's form, and streams that go on."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.harness import Rig, events, resuming, running
from tests.worker.scripted_engine import Script
from tests.worker.test_reasoning_routes import TEMPLATE
from tests.worker.test_tool_routes import CALL

from paceline_core.clock import SystemClock
from paceline_workers.server.chat import ChatTemplate
from paceline_workers.server.openai.anthropic.request import MessagesRequest
from paceline_workers.server.openai.requests import parse
from paceline_workers.server.tokenizer import Tokenizer

ROUTE = "/v1/messages"
TOOL: dict[str, Any] = {"name": "get_weather", "input_schema": {"type": "object"}}
THOUGHT, SAID = "I should look.", "Let me see."
REPLY = f"<think>{THOUGHT}</think>{SAID}\n{CALL}"
USER = [{"role": "user", "content": "hello"}]
BODY: dict[str, Any] = {"model": "chat", "messages": USER, "max_tokens": 900, "tools": [TOOL]}
CONTENT = [
    {"type": "thinking", "thinking": THOUGHT, "signature": ""},
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
            name = {"text_delta": "text", "thinking_delta": "thinking"}.get(delta["type"], "partial")
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


async def test_a_stream_goes_on_after_any_piece(rig: Rig, script: Script) -> None:
    body = BODY | {"stream": True}
    first = (await rig.http.post(ROUTE, json=body, headers=rig.hop)).content
    begun, ids = b"", 0
    for part in first.split(b"\n: p ")[1:-1]:
        line, _, shown = part.partition(b"\n")
        ids += len(line.split()[1].split(b","))
        begun += shown + b"\n"
        sent, headers = resuming(body, {"ids": script.reply[:ids]}, id="msg_1", created=0)
        rest = (await rig.http.post(ROUTE, content=sent, headers={**rig.hop, **headers})).content
        assert told(begun + rest)[0] == CONTENT
    assert ids > len(script.reply) / 2


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": [{"role": "system", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"tool_choice": {"type": "tool", "name": "other"}}, "tool_choice"),
        ({"output_config": {"a": 1}}, "output_config"),
        ({"temperature": -1}, "temperature"),
    ],
)
async def test_what_is_refused_is_told_in_anthropics_form(rig: Rig, fields: dict[str, Any], param: str) -> None:
    answer = await rig.http.post(ROUTE, json=BODY | fields)
    assert (answer.status_code, answer.json()["type"]) == (400, "error")
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
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
