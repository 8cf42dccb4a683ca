"""Reasoning over HTTP: apart from content and calls, streamed as whole, in usage, in history, and not told at wish."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.harness import Rig, demo_with, events, resuming, running
from tests.worker.scripted_engine import Script
from tests.worker.test_tool_routes import CALL, WEATHER

from paceline_workers.server.text.tokenizer import Tokenizer

CHAT = "/v1/chat/completions"
TEMPLATE = """{% for tool in tools or [] %}<tool_call> {{ tool | tojson }}{% endfor %}
{% for message in messages %}{{ message.role }}: {% if message.reasoning_content -%}
<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}
{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endfor %}{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"""
THOUGHT = f"I could call {CALL} or stop."
ANSWER = "Rome. Then stop here."
REPLY = f"<think>{THOUGHT}</think>{ANSWER}"
BODY: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 900}


@pytest.fixture
def model(folder: Path) -> str:
    """The demo model with a template that knows reasoning and tools."""
    return demo_with(TEMPLATE, folder)


@pytest.fixture
def script(tokenizer: Tokenizer) -> Script:
    return Script(reply=tokenizer.encode_now(REPLY, special=False), pause_s=0.001, logprobs=True)


@pytest.fixture
async def rig(model: str, script: Script, folder: Path) -> AsyncIterator[Rig]:
    async with running(script, folder=folder, model=model) as rig:
        yield rig


async def whole(rig: Rig, **fields: Any) -> Any:
    return (await rig.http.post(CHAT, json=BODY | fields)).json()


async def streamed(rig: Rig, **fields: Any) -> dict[str, str]:
    body = (await rig.http.post(CHAT, json=BODY | {"stream": True} | fields)).content
    deltas = [event["choices"][0]["delta"] for event in events(body) if event != "[DONE]"]
    names = ("content", "reasoning_content", "reasoning")
    return {name: "".join(delta.get(name) or "" for delta in deltas) for name in names}


@pytest.mark.parametrize("tools", [[], [WEATHER]])
async def test_reasoning_stands_apart_and_no_call_is_read_in_it(rig: Rig, tools: list[Any]) -> None:
    answer = await whole(rig, tools=tools)
    message, usage = answer["choices"][0]["message"], answer["usage"]
    assert (message["reasoning_content"], message["content"]) == (THOUGHT, ANSWER)
    assert message["reasoning"] == THOUGHT
    assert "tool_calls" not in message
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]
    told = await streamed(rig, tools=tools)
    assert told == {"content": ANSWER, "reasoning_content": THOUGHT, "reasoning": THOUGHT}


async def test_stop_strings_end_the_answer_and_not_the_reasoning(rig: Rig) -> None:
    message = (await whole(rig, stop="stop"))["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (THOUGHT, "Rome. Then ")


async def test_reasoning_need_not_be_told(rig: Rig) -> None:
    answer = await whole(rig, include_reasoning=False)
    message = answer["choices"][0]["message"]
    assert message["content"] == ANSWER
    assert not message.keys() & {"reasoning", "reasoning_content"}
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


async def test_thinking_that_is_turned_off_leaves_the_text_alone(rig: Rig) -> None:
    answer = await whole(rig, chat_template_kwargs={"enable_thinking": False})
    assert answer["choices"][0]["message"]["content"] == REPLY
    assert "completion_tokens_details" not in answer["usage"]


async def test_every_log_probability_is_told_once(rig: Rig, script: Script) -> None:
    for tools in ([], [WEATHER]):
        sent = BODY | {"stream": True, "logprobs": True, "tools": tools}
        body = (await rig.http.post(CHAT, json=sent)).content
        lists = [event["choices"][0]["logprobs"] for event in events(body) if event != "[DONE]"]
        assert sum(len(entry["content"]) for entry in lists if entry) == len(script.reply)


async def test_earlier_reasoning_is_told_to_the_template(rig: Rig) -> None:
    for name in ("reasoning", "reasoning_content"):
        turns = [*BODY["messages"], {"role": "assistant", "content": "hi", name: "so it was"}]
        sent = {"model": "chat", "messages": [*turns, *BODY["messages"]], "return_prompt_text": True}
        prompt = (await rig.http.post(CHAT, json=sent | {"max_tokens": 1})).json()["prompt_text"]
        assert "<think>so it was</think>hi" in prompt
        turns[0] = {"role": "user", "content": "x", name: "mine"}
        refused = (await rig.http.post(CHAT, json=BODY | {"messages": turns})).json()["error"]
        assert refused["param"] == f"messages[0].{name}"


def told_in(answer: bytes) -> str:
    deltas = [event["choices"][0]["delta"] for event in events(answer) if event != "[DONE]"]
    return "".join(delta.get(name) or "" for delta in deltas for name in ("reasoning_content", "content"))


async def test_a_stream_goes_on_after_any_token_of_its_reasoning(rig: Rig, script: Script) -> None:
    body = BODY | {"stream": True}
    first = (await rig.http.post(CHAT, json=body, headers=rig.gateway_headers)).content
    told, ids = b"", 0
    for part in first.split(b"\n: p ")[1:-1]:
        line, _, shown = part.partition(b"\n")
        ids += len(line.split()[1].split(b","))
        told += shown + b"\n"
        sent, headers = resuming(body, {"ids": script.reply[:ids]})
        rest = (await rig.http.post(CHAT, content=sent, headers={**rig.gateway_headers, **headers})).content
        assert told_in(told) + told_in(rest) == THOUGHT + ANSWER
    assert ids > len(script.reply) / 2
