"""Tools over HTTP: offered through the chat template, called in the answer, streamed or not, resumed in the middle."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from tests.worker.harness import Rig, demo_with, events, resuming, running
from tests.worker.processes import LIMIT_S, worker_process
from tests.worker.scripted_engine import Script

from paceline_workers.server.text.tokenizer import Tokenizer

CHAT = "/v1/chat/completions"
TEMPLATE = """{% for tool in tools or [] %}<tool_call> {{ tool | tojson }}{% endfor %}
{% for message in messages %}{{ message.role }}: {{ message.content }}
{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endfor %}"""
SAID = "Let me look."
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "漢字"}}\n</tool_call>'
REPLY = f"{SAID}\n{CALL}\n{CALL.replace('漢字', 'Rome')}"
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
BODY: dict[str, Any] = {
    "model": "chat",
    "messages": [{"role": "user", "content": "hello"}],
    "tools": [WEATHER],
    "max_tokens": 500,
}


@pytest.fixture
def model(folder: Path) -> str:
    """The demo model with a template that takes tools."""
    return demo_with(TEMPLATE, folder)


@pytest.fixture
def script(tokenizer: Tokenizer) -> Script:
    return Script(reply=tokenizer.encode_now(REPLY, special=False), pause_s=0.001, logprobs=True)


@pytest.fixture
async def rig(model: str, script: Script, folder: Path) -> AsyncIterator[Rig]:
    async with running(script, folder=folder, model=model) as rig:
        yield rig


def streamed(body: bytes) -> tuple[str, list[Any], list[str]]:
    """Content, calls, finish reasons."""
    choices = [event["choices"][0] for event in events(body) if event != "[DONE]"]
    content = "".join(choice["delta"].get("content", "") for choice in choices)
    calls = [call for choice in choices for call in choice["delta"].get("tool_calls", [])]
    return content, calls, [choice["finish_reason"] for choice in choices if choice["finish_reason"]]


async def test_an_answer_has_its_calls_beside_its_content(rig: Rig) -> None:
    (choice,) = (await rig.http.post(CHAT, json=BODY)).json()["choices"]
    assert choice["message"]["content"] == SAID
    assert choice["finish_reason"] == "tool_calls"
    calls = choice["message"]["tool_calls"]
    assert [(call["type"], call["function"]["name"]) for call in calls] == [("function", "get_weather")] * 2
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"city": "漢字"}, {"city": "Rome"}]
    assert len({call["id"] for call in calls}) == 2


async def test_a_stream_brings_each_call_as_a_delta_with_its_index(rig: Rig) -> None:
    content, calls, reasons = streamed((await rig.http.post(CHAT, json=BODY | {"stream": True})).content)
    assert (content, reasons) == (SAID, ["tool_calls"])
    assert [call["index"] for call in calls] == [0, 1]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"city": "漢字"}, {"city": "Rome"}]


@pytest.mark.parametrize("fields", [{"tool_choice": "none"}, {"tools": []}, {"tools": None}])
async def test_without_a_choice_the_text_stays_a_text(rig: Rig, fields: dict[str, Any]) -> None:
    (choice,) = (await rig.http.post(CHAT, json=BODY | fields)).json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (REPLY, "stop")
    assert "tool_calls" not in choice["message"]


async def test_an_unfinished_call_is_content(rig: Rig, script: Script) -> None:
    (choice,) = (await rig.http.post(CHAT, json=BODY | {"max_tokens": 20})).json()["choices"]
    assert choice["finish_reason"] == "length"
    assert REPLY.startswith(choice["message"]["content"].rstrip("\ufffd"))
    assert "<tool_call>" in choice["message"]["content"]


async def test_no_logprob_is_lost_where_calls_are_held_back(rig: Rig, script: Script) -> None:
    body = (await rig.http.post(CHAT, json=BODY | {"stream": True, "logprobs": True})).content
    lists = [event["choices"][0]["logprobs"] for event in events(body) if event != "[DONE]"]
    told = bytes(byte for entry in lists if entry for token in entry["content"] for byte in token["bytes"])
    assert told.decode() == REPLY
    whole = (await rig.http.post(CHAT, json=BODY | {"logprobs": True})).json()["choices"][0]
    assert len(whole["logprobs"]["content"]) == len(script.reply)


async def test_tools_and_earlier_calls_stand_in_the_prompt(rig: Rig, tokenizer: Tokenizer) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    turns = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    asked = {"messages": turns, "tools": [WEATHER]}
    ids = (await rig.http.post("/tokenize", json=asked)).json()["tokens"]
    prompt = (await rig.http.post("/detokenize", json={"tokens": ids})).json()["prompt"]
    assert json.dumps(WEATHER) in prompt
    assert '{"name": "get_weather", "arguments": {"city": "Rome"}}' in prompt
    assert "tool: sunny" in prompt
    used = (await rig.http.post(CHAT, json=BODY | asked)).json()["usage"]
    assert used["prompt_tokens"] == len(ids)


async def test_a_stream_resumed_at_any_token_brings_every_call_once(rig: Rig, script: Script) -> None:
    body = BODY | {"stream": True}
    arguments = ['{"city": "漢字"}', '{"city": "Rome"}']
    for cut in range(1, len(script.reply), 3):
        content, headers = resuming(body, {"ids": script.reply[:cut]})
        rest = (await rig.http.post(CHAT, content=content, headers={**rig.gateway_headers, **headers})).content
        text, calls, reasons = streamed(rest)
        first = calls[0]["index"] if calls else 2
        assert SAID.endswith(text)
        assert [(call["index"], call["function"]["arguments"]) for call in calls] == list(enumerate(arguments))[first:]
        assert reasons == ["tool_calls"]


async def test_a_model_whose_template_takes_no_tools_says_so(folder: Path, script: Script) -> None:
    async with running(script, folder=folder) as rig:
        response = await rig.http.post(CHAT, json=BODY)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "tools")
    assert "takes no tools" in response.json()["error"]["message"]


@pytest.mark.real
def test_the_official_client_reads_calls(model: str, script: Script, folder: Path) -> None:
    with worker_process(folder, script, model=model) as worker:
        worker.ready()
        client = OpenAI(base_url=f"{worker.url}/v1", api_key="none", timeout=LIMIT_S, max_retries=0)
        answer = client.chat.completions.create(**BODY)
        assert [call.function.name for call in answer.choices[0].message.tool_calls] == ["get_weather"] * 2
        with client.chat.completions.stream(**BODY) as stream:
            final = stream.get_final_completion().choices[0]
        assert final.finish_reason == "tool_calls"
        arguments = [call.function.arguments for call in final.message.tool_calls or []]
        assert [json.loads(text) for text in arguments] == [{"city": "漢字"}, {"city": "Rome"}]
