"""Published chat templates give the prompts that `transformers` gives, byte for byte, or refuse what it refuses."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.published_templates import templates

from paceline_core.clock import SystemClock
from paceline_core.errors import RequestError
from paceline_workers.server.text.chat import ChatTemplate, Rendering

pytestmark = pytest.mark.real

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
USER = {"role": "user", "content": 'Hi é "q" <b>'}
ASSISTANT = {"role": "assistant", "content": "Hello."}
SYSTEM = {"role": "system", "content": "Be brief."}
DEVELOPER = {"role": "developer", "content": "Be brief."}
ARGUMENTS = {"city": "Osló", "more": [1, 2.5, None, True]}
FUNCTION = {"name": "weather", "arguments": ARGUMENTS}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "abcdefghi", "type": "function", "function": FUNCTION}],
}
RESULT = {"role": "tool", "content": json.dumps({"degrees": 3}), "name": "weather", "tool_call_id": "abcdefghi"}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "description": "é"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "It's hot?", "parameters": PARAMETERS}}
CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "user": ([USER], []),
    "system": ([SYSTEM, USER], []),
    "system alone": ([SYSTEM], []),
    "turns": ([USER, ASSISTANT, USER], []),
    "two users": ([USER, USER], []),
    "assistant first": ([ASSISTANT, USER], []),
    "assistant last": ([USER, ASSISTANT], []),
    "nothing said": ([{"role": "user", "content": ""}], []),
    "blanks": ([{"role": "user", "content": "  a \n"}], []),
    "tools": ([USER], [WEATHER]),
    "system and tools": ([SYSTEM, USER], [WEATHER, WEATHER]),
    "call": ([USER, CALL, RESULT], [WEATHER]),
    "after a call": ([SYSTEM, USER, CALL, RESULT, ASSISTANT, USER], [WEATHER]),
    "developer": ([DEVELOPER, USER], []),
}
KNOWS_DEVELOPER = {
    "MiniMax-M3",
    "Reka-Edge",
    "deepseek-ai-DeepSeek-V3.2",
    "deepseek-ai-DeepSeek-V4",
    "deepseek-ai-DeepSeek-V4-Flash-0731",
    "google-gemma-4-31B-it",
    "google-gemma-4-31B-it-interleaved",
    "llm-jp-llm-jp-4.1-8b-thinking",
    "openai-gpt-oss-120b",
}


def theirs(source: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], *, generation: bool) -> str | None:
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        texts, _ = render_jinja_template(
            [list(messages)],
            tools=list(tools) or None,
            chat_template=source,
            add_generation_prompt=generation,
            **SPECIAL,
        )
    except Exception:  # noqa: BLE001 - templates raise what they like
        return None
    text: str = texts[0]
    return text


def ours(template: ChatTemplate, messages: Sequence[Any], tools: Sequence[Any], *, generation: bool) -> str | None:
    try:
        return template.render(messages, tools, Rendering(generation=generation))
    except RequestError:
        return None


def test_all_published_templates_load_and_write_what_transformers_writes() -> None:
    different, written, refused = [], 0, 0
    for path in sorted(templates().glob("*.jinja")):
        source = path.read_text()
        template = ChatTemplate(source, SPECIAL, lambda: SystemClock().utc().astimezone(), path.name)
        for name, (messages, tools) in CONVERSATIONS.items():
            known = path.stem in KNOWS_DEVELOPER
            meant = [SYSTEM if message is DEVELOPER and not known else message for message in messages]
            generation = messages[-1]["role"] != "assistant"
            expected = theirs(source, meant, tools, generation=generation)
            got = ours(template, messages, tools, generation=generation)
            written, refused = written + (got is not None), refused + (got is None)
            if got != expected:
                different.append((path.stem, name))
    assert different == []
    assert written > 10 * refused
