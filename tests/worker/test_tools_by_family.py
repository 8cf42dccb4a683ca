"""Tools with the chat templates that model makers publish: what each family writes is read, streamed and whole."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.published_templates import published
from tests.worker.harness import Rig, events, running
from tests.worker.scripted_engine import Script
from tokenizers import AddedToken
from tokenizers import Tokenizer as Files

from paceline_workers import demo

pytestmark = pytest.mark.real
CHAT = "/v1/chat/completions"
SPECIAL = ("<|python_tag|>", "<|end_header_id|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")
PLAIN = ("<tool_call>", "</tool_call>")
"""As in the vocabularies of Qwen and Hermes: one token each, and not special."""
OSLO, ROME = {"city": "Oslo"}, {"city": 'Rome "}]}'}
HERMES = "".join(
    f"\n<tool_call>\n{json.dumps({'name': 'weather', 'arguments': place})}\n</tool_call>" for place in (OSLO, ROME)
)
LLAMA = "; ".join(json.dumps({"name": "weather", "parameters": place}) for place in (OSLO, ROME))
NEMO = [{"name": "weather", "arguments": place, "id": f"abcdefgh{at}"} for at, place in enumerate((OSLO, ROME))]
SMALL = "".join(
    f"[TOOL_CALLS]weather[CALL_ID]abcdefgh{at}[ARGS]{json.dumps(one)}" for at, one in enumerate((OSLO, ROME))
)


@dataclass(frozen=True)
class Family:
    """A published template, what its model writes for two calls, and how it shows a call of an earlier turn."""

    template: str
    reply: str
    shown: str
    said: str = ""
    tool_use: bool = False


_TAGGED = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
_BARE = '{"name": "weather", "parameters": {"city": "Oslo"}}'
_LISTED = '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Oslo"}, "id": "abcdefgh0"}]'
_NAMED = '[TOOL_CALLS]weather[CALL_ID]abcdefgh0[ARGS]{"city": "Oslo"}'
FAMILIES = [
    Family("Qwen-Qwen2.5-7B-Instruct", f"Let me look.{HERMES}", _TAGGED, "Let me look."),
    Family("Qwen-Qwen3-0.6B", f"Let me look.{HERMES}", _TAGGED, "Let me look."),
    Family("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", HERMES[1:], _TAGGED, tool_use=True),
    Family("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", HERMES[1:], _TAGGED, tool_use=True),
    Family("meta-llama-Llama-3.1-8B-Instruct", f"<|python_tag|>{LLAMA}", _BARE),
    Family("meta-llama-Llama-3.2-3B-Instruct", LLAMA, _BARE),
    Family("meta-llama-Llama-3.3-70B-Instruct", LLAMA, _BARE),
    Family("mistralai-Mistral-Nemo-Instruct-2407", f"[TOOL_CALLS]{json.dumps(NEMO)}", _LISTED),
    Family("Mistral-Small-3.2-24B-Instruct-2506", SMALL, _NAMED),
]
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
BODY: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}], "tools": [WEATHER]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
FAMILY = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.template)


def model_of(family: Family, folder: Path) -> tuple[str, list[int]]:
    """The demo model with the family's template and tokens, and its reply as ids."""
    place = folder / "model"
    shutil.copytree(demo.FOLDER, place)
    tokenizer = Files.from_file(str(place / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(text, special=text in SPECIAL, normalized=False) for text in SPECIAL + PLAIN])
    tokenizer.save(str(place / "tokenizer.json"))
    settings = json.loads((place / "tokenizer_config.json").read_text())
    text = published(family.template)
    greeting = "{% for message in messages %}{{ message.content }}{% endfor %}"
    named = [{"name": "default", "template": greeting}, {"name": "tool_use", "template": text}]
    settings |= {"bos_token": "<s>", "eos_token": "</s>", "chat_template": named if family.tool_use else text}
    (place / "tokenizer_config.json").write_text(json.dumps(settings))
    return f"file://{place}", tokenizer.encode(family.reply, add_special_tokens=False).ids


def told(calls: list[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


async def streamed(rig: Rig, body: Mapping[str, Any]) -> tuple[str, list[Any], list[str]]:
    answer = await rig.http.post(CHAT, json={**body, "stream": True})
    choices = [event["choices"][0] for event in events(answer.content) if event != "[DONE]"]
    content = "".join(choice["delta"].get("content") or "" for choice in choices)
    calls = [call for choice in choices for call in choice["delta"].get("tool_calls", [])]
    return content, calls, [choice["finish_reason"] for choice in choices if choice["finish_reason"]]


@FAMILY
async def test_calls_are_read_whole_and_streamed_with_every_choice(family: Family, folder: Path) -> None:
    model, ids = model_of(family, folder)
    async with running(Script(reply=ids), folder=folder, model=model) as rig:
        for more in ({}, {"tool_choice": "auto"}, {"response_format": FORMAT}, {"parallel_tool_calls": False}):
            expected = [("weather", place) for place in (OSLO, ROME)][: 1 if "parallel_tool_calls" in more else 2]
            answer = (await rig.http.post(CHAT, json=BODY | more)).json()
            [choice] = answer["choices"]
            assert told(choice["message"]["tool_calls"]) == expected, more
            assert (choice["message"]["content"] or "", choice["finish_reason"]) == (family.said, "tool_calls")
            content, calls, reasons = await streamed(rig, BODY | more)
            assert (content, told(calls), reasons) == (family.said, expected, ["tool_calls"])
            assert [call["index"] for call in calls] == list(range(len(expected)))
        without = (await rig.http.post(CHAT, json=BODY | {"tool_choice": "none"})).json()["choices"][0]
        assert "tool_calls" not in without["message"]


@FAMILY
async def test_an_earlier_call_and_its_result_stand_in_the_prompt_as_the_template_writes_them(
    family: Family, folder: Path
) -> None:
    model, _ = model_of(family, folder)
    call = {"id": "abcdefgh0", "type": "function", "function": {"name": "weather", "arguments": json.dumps(OSLO)}}
    turns = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefgh0", "content": "sunny"},
    ]
    async with running(Script(), folder=folder, model=model) as rig:
        asked = {"messages": turns, "tools": [WEATHER]}
        ids = (await rig.http.post("/tokenize", json=asked)).json()["tokens"]
        prompt = (await rig.http.post("/detokenize", json={"tokens": ids})).json()["prompt"]
        assert family.shown in prompt
        assert "sunny" in prompt
        bare = {"type": "function", "function": {"name": "now"}}
        answer = await rig.http.post("/tokenize", json={"messages": turns[:1], "tools": [bare]})
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("name", ["GLM-4.6", "Qwen3-Coder", "deepseek-ai-DeepSeek-V3.1", "google-gemma-2-2b-it"])
async def test_a_template_of_an_unknown_form_takes_no_tools_and_says_so(name: str, folder: Path) -> None:
    model, _ = model_of(Family(name, "", ""), folder)
    async with running(Script(), folder=folder, model=model) as rig:
        error = (await rig.http.post(CHAT, json=BODY)).json()["error"]
    assert error["param"] == "tools"


@FAMILY
async def test_what_comes_out_does_not_depend_on_where_a_stream_is_cut(family: Family, folder: Path) -> None:
    model, ids = model_of(family, folder)
    for size in (1, 2, 5, len(ids)):
        async with running(Script(reply=ids, per_frame=size), folder=folder, model=model) as rig:
            content, calls, _ = await streamed(rig, BODY)
        assert (content, told(calls)) == (family.said, [("weather", OSLO), ("weather", ROME)])
