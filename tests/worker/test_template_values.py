"""What a request hands to the chat template is bounded by its values, also where JSON lies within a text."""

import json
from typing import Any

import pytest

from paceline_core.clock import SystemClock
from paceline_core.errors import Code, RequestError
from paceline_workers.server.openai.chat_fields import VALUES, check_arguments, check_values
from paceline_workers.server.openai.requests import ChatRequest
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.openai.validation import parse
from paceline_workers.server.text.chat import ChatTemplate
from paceline_workers.server.text.tokenizer import Tokenizer

WIDE = [0] * (VALUES + 1)
DEEP: Any = WIDE
for _ in range(60):
    DEEP = {"a": [DEEP]}


def called(arguments: str, count: int = 1) -> Any:
    calls = [{"id": "a", "function": {"name": "f", "arguments": arguments}}] * count
    return [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": calls}]


def rendered(tokenizer: Tokenizer, messages: Any, **fields: Any) -> str:
    template = ChatTemplate("{{ messages | tojson }}{{ tools | tojson(indent=4) }}", {}, SystemClock().utc, "here")
    model = ServedModel(("m",), tokenizer, template, SystemClock())
    request = parse(ChatRequest, json.dumps({"model": "m", "messages": messages} | fields).encode())
    return model.render(request.messages, request)


def test_values_are_counted_wherever_they_lie() -> None:
    check_values("tools", {"a": [0] * (VALUES - 1)})
    for value in (WIDE, DEEP, {"a": WIDE}, [[0] * 300] * 110):
        with pytest.raises(RequestError, match=f"`tools` hold more than {VALUES}") as caught:
            check_values("tools", value)
        assert (caught.value.code, caught.value.param) == (Code.INVALID_REQUEST, "tools")


def test_arguments_are_counted_together_and_before_they_are_parsed() -> None:
    check_arguments(["[" + "1," * 1000 + "1]"] * 30)
    check_arguments(['{"text": "' + "a, b [c] " * VALUES + '"}'])
    for texts in (["[" + "[]," * VALUES], ["[" + "1," * 1000 + "1]"] * 40, ["[" * 5_000_000]):
        with pytest.raises(RequestError, match="arguments of the calls in `messages`"):
            check_arguments(texts)


def test_a_template_is_not_given_more(tokenizer: Tokenizer) -> None:
    wide = {"type": "function", "function": {"name": "f", "parameters": {"enum": WIDE}}}
    refused: list[tuple[str, dict[str, Any]]] = [
        ("messages", {"messages": called(json.dumps(WIDE))}),
        ("messages", {"messages": called(json.dumps(WIDE[:1000]), 40)}),
        ("tools", {"messages": called("{}"), "tools": [wide]}),
        ("documents", {"messages": called("{}"), "documents": [{"a": WIDE}]}),
        ("chat_template_kwargs", {"messages": called("{}"), "chat_template_kwargs": {"a": WIDE}}),
    ]
    for field, given in refused:
        with pytest.raises(RequestError, match="JSON values") as caught:
            rendered(tokenizer, **given)
        assert caught.value.param == field
    assert "[1, 2]" in rendered(tokenizer, called('{"a": [1, 2]}'))
