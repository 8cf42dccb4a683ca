"""`/v1/responses` by the official client: items, events, tools, reasoning, formats, refusals, resumptions."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from openai import AsyncOpenAI, BadRequestError
from pydantic import BaseModel
from tests.worker.conftest import TEXT
from tests.worker.harness import Rig, events, listening, openai_client, resuming, running
from tests.worker.scripted_engine import Script
from tests.worker.test_reasoning_routes import TEMPLATE
from tests.worker.test_tool_routes import CALL

from paceline_core.clock import SystemClock
from paceline_core.errors import RequestError
from paceline_workers.server.openai.responses.request import ResponsesRequest, located_turns
from paceline_workers.server.openai.validation import parse
from paceline_workers.server.text.chat import ChatTemplate
from paceline_workers.server.text.tokenizer import Tokenizer

ROUTE = "/v1/responses"
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
THOUGHT, SAID = "I should look.", "Let me see."
REPLY = f"<think>{THOUGHT}</think>{SAID}\n{CALL}"
BODY: dict[str, Any] = {"model": "chat", "input": "hello", "max_output_tokens": 900, "tools": [TOOL]}


@pytest.fixture
def script(tokenizer: Tokenizer) -> Script:
    return Script(reply=tokenizer.encode_now(REPLY, special=False), pause_s=0.001, logprobs=True)


@pytest.fixture
async def rig(script: Script, folder: Path) -> AsyncIterator[Rig]:
    async with running(script, folder=folder) as rig:
        model = rig.worker.parts.model
        template = ChatTemplate(TEMPLATE, {}, SystemClock().utc, "test")
        object.__setattr__(model, "template", template)
        yield rig


@pytest.fixture
async def client(rig: Rig) -> AsyncIterator[AsyncOpenAI]:
    async with listening(rig) as address, openai_client(address) as client:
        yield client


async def test_an_answer_has_an_item_for_reasoning_text_and_call(client: AsyncOpenAI) -> None:
    response = await client.responses.create(**BODY, metadata={"a": "b"})
    reasoning, message, call = response.output
    assert reasoning.type == "reasoning"
    assert [part.text for part in reasoning.content or []] == [THOUGHT]
    assert response.output_text == SAID
    assert message.type == "message"
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "get_weather", {"city": "漢字"})
    assert (response.status, response.object, response.metadata) == ("completed", "response", {"a": "b"})
    usage = response.usage
    assert usage is not None
    assert 0 < usage.output_tokens_details.reasoning_tokens < usage.output_tokens
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


async def test_reasoning_is_left_out_at_wish_and_counted(client: AsyncOpenAI) -> None:
    response = await client.responses.create(**BODY, extra_body={"include_reasoning": False})
    assert [item.type for item in response.output] == ["message", "function_call"]
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens > 0


async def test_a_stream_tells_the_same_items_in_numbered_events(client: AsyncOpenAI) -> None:
    async with client.responses.stream(**BODY) as stream:
        told = [event async for event in stream]
        final = await stream.get_final_response()
    numbers = [event.sequence_number for event in told]
    assert numbers == list(range(len(told)))
    kinds = [event.type for event in told]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    steps = list(dict.fromkeys(kinds))
    assert steps == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.completed",
    ]
    deltas = [event.delta for event in told if event.type == "response.output_text.delta"]
    assert "".join(deltas) == final.output_text == SAID
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]


async def test_a_limit_leaves_it_incomplete(client: AsyncOpenAI) -> None:
    response = await client.responses.create(**BODY | {"max_output_tokens": 12})
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    stream = await client.responses.create(**BODY | {"max_output_tokens": 12}, stream=True)
    told = [event async for event in stream]
    assert told[-1].type == "response.incomplete"


class City(BaseModel):
    city: str


async def test_a_parsed_format_comes_back_as_its_class(folder: Path, tokenizer: Tokenizer) -> None:
    reply = tokenizer.encode_now('{"city":"Rome"}', special=False)
    async with (
        running(Script(reply=reply), folder=folder) as rig,
        listening(rig) as address,
        openai_client(address) as client,
    ):
        response = await client.responses.parse(model="chat", input="hello", text_format=City)
    assert response.output_parsed == City(city="Rome")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"truncation": "never"}, "truncation"),
        ({"tool_choice": {"type": "function", "name": ""}}, "tool_choice"),
        ({"extra_body": {"n": 2}}, "n"),
        ({"extra_body": {"max_tokens": 5}}, "max_tokens"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "f", "parameters": {"type": "string"}}]}, "tools[0].parameters"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
        ({"max_output_tokens": 10_000_000}, "input"),
        ({"input": [{"role": "", "content": "a"}]}, "input[0].role"),
        ({"instructions": "be brief", "input": [{"role": "r" * 65, "content": "a"}]}, "input[0].role"),
        (
            {"input": [{"type": "function_call", "call_id": "c" * 129, "name": "f", "arguments": "{}"}]},
            "input[0].call_id",
        ),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f" * 65, "arguments": "{}"}]}, "input[0].name"),
        ({"input": [{"type": "function_call_output", "call_id": "c" * 129, "output": ""}]}, "input[0].call_id"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "x"}}}}, "text.format"),
        (
            {"text": {"format": {"type": "json_object"}}, "extra_body": {"structured_outputs": {"regex": "a"}}},
            "structured_outputs",
        ),
        ({"text": {"format": {"type": "x"}}}, "text.format"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"temperature": -1}, "temperature"),
        ({"extra_body": {"stop": 5}}, "stop"),
    ],
)
async def test_what_is_refused_names_its_field(client: AsyncOpenAI, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        await client.responses.create(**BODY | fields)
    assert caught.value.param == param
    assert f"`{param}`" in str(caught.value) or param in str(caught.value)
    for name in ('json_schema": {', "response_format", "messages[", "max_completion_tokens", "tool_calls"):
        assert name not in caught.value.message, "a chat's name for it"


async def test_a_template_that_knows_no_results_of_calls_is_told_by_the_item(rig: Rig) -> None:
    picky = "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('role tool is unknown') }}{% endif %}"
    template = ChatTemplate(picky + "{% endfor %}", {}, SystemClock().utc, "test")
    object.__setattr__(rig.worker.parts.model, "template", template)
    items = [{"role": "user", "content": "a"}, {"type": "function_call_output", "call_id": "1", "output": "b"}]
    response = await rig.http.post(ROUTE, json={"model": "chat", "instructions": "be brief", "input": items})
    error = response.json()["error"]
    words = "role tool is unknown (`input[1]`, the result of a call, has the role `tool`)"
    assert (error["param"], error["message"].endswith(words)) == ("input", True)
    body = {"model": "chat", "instructions": "be brief", "input": items, "truncation": "auto"}
    message = (await rig.http.post(ROUTE, json=body)).json()["error"]["message"]
    assert "`input`, the result of a call" in message, "turns may have gone, so no place is told"


async def test_log_probabilities_come_with_the_text_at_wish(client: AsyncOpenAI) -> None:
    include: Any = ["message.output_text.logprobs"]
    response = await client.responses.create(**BODY | {"tools": []}, include=include, top_logprobs=0)
    (message,) = [item for item in response.output if item.type == "message"]
    assert message.content[0].type == "output_text"
    assert message.content[0].logprobs


def test_items_become_the_turns_of_a_chat() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c", "annotations": []}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "2", "output": "two"},
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "one"}]},
    ]
    calls = [
        {"id": str(at), "type": "function", "function": {"name": name, "arguments": "{}"}}
        for at, name in ((1, "f"), (2, "g"))
    ]
    located = located_turns("be brief", items)
    assert [place for place, _ in located] == ["instructions", "input[0]", "input[1]", "input[5]", "input[6]"]
    assert [turn for _, turn in located] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "c", "reasoning_content": "hm", "tool_calls": calls},
        {"role": "tool", "content": "two", "tool_call_id": "2", "name": "g"},
        {"role": "tool", "content": "one", "tool_call_id": "1", "name": "f"},
    ]


def settled(told: list[Any]) -> Any:
    """What a client holds at the end, by its deltas and by the last event."""
    events_told = [event for event in told if event != "[DONE]"]
    deltas = "".join(event["delta"] for event in events_told if event["type"].endswith(".delta"))
    kinds = [event["type"] for event in events_told if not event["type"].endswith(".delta")]
    return deltas, kinds, events_told[-1]["response"]


def test_a_body_of_many_items_is_bounded() -> None:
    items = [{"role": "user", "content": "a"}] * 4097
    with pytest.raises(RequestError, match="at most 4096 items"):
        parse(ResponsesRequest, json.dumps(BODY | {"input": items}).encode())


async def test_a_plain_text_is_told_whole(folder: Path, tokenizer: Tokenizer) -> None:
    script = Script(reply=tokenizer.encode_now(TEXT, special=False))
    async with running(script, folder=folder) as rig:
        answer = (await rig.http.post(ROUTE, json={"model": "chat", "input": "hello"})).json()
    assert [part["text"] for item in answer["output"] for part in item["content"]] == [TEXT]
    assert answer["store"] is False


def test_text_behind_a_call_belongs_to_the_turn_that_calls() -> None:
    """As in a chat, whose message has one text: an assistant's turn between a call and its result fits no template."""
    items = [
        {"role": "user", "content": "a", "type": None},
        {"type": "message", "role": "assistant", "content": "b"},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "message", "role": "assistant", "content": "c"},
        {"type": "function_call_output", "call_id": "1", "output": "d"},
    ]
    turns = [turn for _, turn in located_turns(None, items)]
    assert [(turn["role"], turn["content"]) for turn in turns] == [("user", "a"), ("assistant", "bc"), ("tool", "d")]
    assert len(turns[1]["tool_calls"]) == 1


async def test_an_engines_error_within_a_stream_is_an_event_that_clients_raise(
    folder: Path, tokenizer: Tokenizer
) -> None:
    reply = tokenizer.encode_now(TEXT, special=False)
    async with running(Script(reply=reply, fault="error", phase="decode", pause_s=0.01), folder=folder) as rig:
        body = {"model": "chat", "input": "hello", "stream": True}
        told = events((await rig.http.post(ROUTE, json=body)).content)
    *_, before, error, done = told
    assert (done, error["type"], error["code"]) == ("[DONE]", "error", "engine_failed")
    assert error["error"]["message"] == error["message"]
    assert error["sequence_number"] > before["sequence_number"]


async def test_a_resumed_texts_scores_are_those_of_its_deltas_or_none(rig: Rig, script: Script) -> None:
    """Ids are all that is known of the first life: half of the scores would look like those of other tokens."""
    include = ["message.output_text.logprobs"]
    body: dict[str, Any] = {"model": "chat", "input": "hello", "stream": True, "include": include}
    ids = script.reply[: len(script.reply) // 2]
    assert "Let" in rig.worker.parts.model.tokenizer.decode(ids)
    sent, headers = resuming(body, {"ids": ids}, id="resp_1", created=0)
    told = events((await rig.http.post(ROUTE, content=sent, headers={**rig.gateway_headers, **headers})).content)
    done = [event for event in told if event["type"] == "response.output_text.done"] if told.pop() == "[DONE]" else []
    (message,) = [item for item in told[-1]["response"]["output"] if item["type"] == "message"]
    assert [event["logprobs"] for event in done] == [message["content"][0]["logprobs"]] == [[]]
    assert any(event["logprobs"] for event in told if event["type"] == "response.output_text.delta")


async def test_a_response_tells_the_temperature_that_it_was_written_with(rig: Rig) -> None:
    started = rig.worker.parts.engine.started
    assert started is not None
    rig.worker.parts.engine.started = structs.replace(started, defaults={"temperature": 0.6, "top_p": 0.9})
    for fields, expected in (({}, (0.6, 0.9)), ({"temperature": 0.0, "top_p": 1}, (0.0, 1.0))):
        answer = (await rig.http.post(ROUTE, json={"model": "chat", "input": "hello"} | fields)).json()
        assert (answer["temperature"], answer["top_p"]) == expected
