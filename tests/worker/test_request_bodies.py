"""Bodies of the generating routes: what is taken, what is ignored, what is refused and in which words."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases

from paceline_core.errors import Code, RequestError
from paceline_workers.server.openai.fields import FIELDS
from paceline_workers.server.openai.inputs import Encoding, room
from paceline_workers.server.openai.requests import ChatRequest, CompletionRequest
from paceline_workers.server.openai.validation import parse
from paceline_workers.server.text.tokenizer import Tokenizer

CALL = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f"}}
MESSAGES = [{"role": "user", "content": "hi"}]


def chat(**fields: Any) -> ChatRequest:
    return parse(ChatRequest, json.dumps({"model": "m", "messages": MESSAGES} | fields).encode())


def completion(**fields: Any) -> CompletionRequest:
    return parse(CompletionRequest, json.dumps({"model": "m", "prompt": "hi"} | fields).encode())


def refused(**fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        chat(**fields)
    return caught.value


def test_absent_and_null_fields_have_the_defaults() -> None:
    nulls = dict.fromkeys(("stop", "temperature", "n", "max_tokens", "seed", "stream_options", "logit_bias"))
    assert chat(**nulls) == chat()


def test_unknown_fields_are_ignored() -> None:
    assert chat(store=True, metadata={"a": 1}, reasoning_effort="low", x_vendor=[1]).messages[0].content == "hi"


def test_how_tokens_are_chosen_is_read_as_openai_and_vllm_write_it() -> None:
    how = {"min_p": 0.1, "repetition_penalty": 1.2, "presence_penalty": -2, "frequency_penalty": 0.5}
    read = chat(**how, logit_bias={"15": -100, "2": 0.5})
    assert {name: getattr(read, name) for name in how} == how
    assert read.logit_bias == {15: -100.0, 2: 0.5}


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert chat(messages=[{"role": "user", "content": parts}]).messages[0].content == "ab"


@cases(
    ("fields", "param", "words"),
    [
        ({"messages": []}, "messages", "must not be empty"),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "is required"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content", "text only"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "text or a list of parts"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}, "messages[0].tool_calls[0].function", ""),
        ({"messages": [{"role": "user", "content": "", "tool_calls": [CALL]}]}, "messages[0].tool_calls", "alone"),
        ({"messages": [{"role": "tool", "tool_call_id": "1"}]}, "messages[0].content", "is required"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "is required"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}]},
            "tools[0].function.parameters",
            "schema of an object",
        ),
        ({"tools": [{"type": "retrieval", "function": {"name": "f"}}]}, "tools[0].type", "function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "must match"),
        ({"tools": [TOOL] * 129}, "tools", "at most 128"),
        ({"tools": [TOOL], "tool_choice": "perhaps"}, "tool_choice", '"auto"'),
        ({"messages": [*MESSAGES, {"role": "user", "content": None}]}, "messages[1].content", "is required"),
        ({"messages": [{"role": "system"}]}, "messages[0].content", "is required"),
        ({"messages": MESSAGES * 2049}, "messages", "at most 2048"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "`stream` is true"),
        ({"stream_options": {}, "stream": False}, "stream_options", "`stream` is true"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens", "`max_completion_tokens`"),
        ({"temperature": -1}, "temperature", "must be 0 or more"),
        ({"temperature": 101}, "temperature", "must be 100 or less"),
        ({"temperature": True}, "temperature", "must be a number"),
        ({"temperature": "1"}, "temperature", "must be a number"),
        ({"max_tokens": "4"}, "max_tokens", "must be a whole number"),
        ({"max_tokens": 4.0}, "max_tokens", "must be a whole number"),
        ({"n": "2"}, "n", "must be a whole number"),
        ({"n": True}, "n", "must be a whole number"),
        ({"stream": "yes"}, "stream", "must be true or false"),
        ({"stream": 1}, "stream", "must be true or false"),
        ({"top_k": 1 << 31}, "top_k", "must be less than"),
        ({"stop_token_ids": ["1"]}, "stop_token_ids[0]", "must be a whole number"),
        ({"top_logprobs": 2}, "top_logprobs", "`logprobs` is true"),
        ({"early_stopping": "often"}, "early_stopping", 'true, false or "never"'),
        ({"messages": [{"role": "", "content": "x"}]}, "messages[0].role", "must not be empty"),
        ({"temperature": "hot"}, "temperature", "must be a number"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"top_k": -2}, "top_k", "must be -1 or more"),
        ({"min_p": 1.1}, "min_p", "must be 1 or less"),
        ({"min_p": -0.1}, "min_p", "must be 0 or more"),
        ({"repetition_penalty": 0}, "repetition_penalty", "greater than 0"),
        ({"presence_penalty": 2.1}, "presence_penalty", "must be 2 or less"),
        ({"frequency_penalty": -2.1}, "frequency_penalty", "must be -2 or more"),
        ({"logit_bias": [1]}, "logit_bias", "token ids and their biases"),
        ({"logit_bias": {"a": 1}}, "logit_bias", "no token id"),
        ({"logit_bias": {"-1": 1}}, "logit_bias", "no token id"),
        ({"logit_bias": {"1": "much"}}, "logit_bias", "from -100 to 100"),
        ({"logit_bias": {"1": 100.5}}, "logit_bias", "from -100 to 100"),
        ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias", "at most 1024"),
        ({"n": 33}, "n", "must be 32 or less"),
        ({"max_tokens": 0}, "max_tokens", "must be 1 or more"),
        ({"max_tokens": -1}, "max_tokens", "must be 1 or more"),
        ({"max_completion_tokens": 0}, "max_completion_tokens", "must be 1 or more"),
        ({"top_logprobs": 21}, "top_logprobs", "20"),
        ({"stop": ""}, "stop", "none of them empty"),
        ({"stop": ["a", 1]}, "stop", "list of texts"),
        ({"stop": ["a"] * 17}, "stop", "at most 16"),
        ({"stop": "a" * 257}, "stop", "256 characters"),
        ({"seed": 1 << 63}, "seed", "less than"),
        (
            {"stream": True, "stream_options": {"include_usage": "perhaps"}},
            "stream_options.include_usage",
            "true or false",
        ),
    ],
)
def test_a_wrong_field_is_named_with_the_reason(fields: dict[str, Any], param: str, words: str) -> None:
    error = refused(**fields)
    assert (error.code, error.param) == (Code.INVALID_REQUEST, param)
    assert words in error.message


def test_an_assistants_turn_may_be_without_content() -> None:
    turns = [*MESSAGES, {"role": "assistant", "content": None}, *MESSAGES]
    assert chat(messages=turns).messages[1].content == ""


def test_turns_of_tools_reach_the_template_with_arguments_as_objects() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    turns = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "42"}]
    said, answered = (message.plain() for message in chat(messages=turns).messages)
    function = {"name": "f", "arguments": {"a": 1}}
    assert said == {"role": "assistant", "content": "", "tool_calls": [call | {"function": function}]}
    assert answered == {"role": "tool", "content": "42", "tool_call_id": "c1"}


@pytest.mark.parametrize("arguments", ["", "[1]", "{broken", "[" * 100_000])
def test_arguments_that_are_no_object_stay_as_they_are(arguments: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    (turn,) = chat(messages=[{"role": "assistant", "tool_calls": [call]}]).messages
    assert turn.plain()["tool_calls"] == [call]


def test_both_limits_may_stand_where_they_agree() -> None:
    assert chat(max_tokens=5, max_completion_tokens=5).max_completion_tokens == 5


def test_a_completion_without_a_stream_has_no_stream_options() -> None:
    with pytest.raises(RequestError, match="`stream` is true") as caught:
        completion(stream_options={"include_usage": True})
    assert caught.value.param == "stream_options"


def test_a_missing_model_is_named() -> None:
    with pytest.raises(RequestError, match="`model` is required") as caught:
        parse(ChatRequest, b'{"messages": [{"role": "user", "content": "hi"}]}')
    assert caught.value.param == "model"


@pytest.mark.parametrize("body", [b"", b"{", b'{"model": "\\ud800"}'])
def test_what_is_no_json_is_invalid_json(body: bytes) -> None:
    with pytest.raises(RequestError, match="not valid JSON") as caught:
        parse(ChatRequest, body)
    assert caught.value.code is Code.INVALID_JSON


def test_what_is_no_text_is_said_to_be_none() -> None:
    with pytest.raises(RequestError, match="not UTF-8: its byte 11 begins no character") as caught:
        parse(ChatRequest, b'{"model": "\xff"}')
    assert caught.value.code is Code.INVALID_JSON


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("levels", [128, 250, 5000])
def test_what_is_nested_too_deep_is_no_broken_json(levels: int) -> None:
    assert chat(unknown=nested(127)).model == "m"
    body = b'{"model": "m", "unknown": ' + b'{"a": ' * levels + b"1" + b"}" * levels + b"}"
    with pytest.raises(RequestError, match="nested deeper than 128 levels") as caught:
        parse(ChatRequest, body)
    assert caught.value.code is Code.INVALID_REQUEST


def test_what_costs_too_much_to_parse_is_refused_before_a_parser_sees_it() -> None:
    with pytest.raises(RequestError, match="more than 32768 objects and lists"):
        parse(ChatRequest, b'{"model": "m", "messages": [' + b"{}," * 40_000 + b"this is no JSON")


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'"x"'])
def test_json_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError, match="The body") as caught:
        parse(ChatRequest, body)
    assert (caught.value.code, caught.value.param) == (Code.INVALID_REQUEST, None)


@pytest.mark.parametrize(
    ("given_prompt", "taken"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1, 2], [3]], [[1, 2], [3]]), ([], [[]])],
)
def test_prompts_that_are_taken(given_prompt: Any, taken: Any) -> None:
    assert completion(prompt=given_prompt).prompt == taken


@pytest.mark.parametrize("prompt", [[1, "a"], 5, {"a": 1}, [True], [["a"]], ["a"] * 129])
def test_what_is_no_prompt_is_refused(prompt: Any) -> None:
    with pytest.raises(RequestError, match=r"`prompt` (must be a text|holds at most 128)") as caught:
        completion(prompt=prompt)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize("fields", [{"n": 13}, {"best_of": 13}])
def test_many_answers_to_many_prompts_are_counted_together(fields: Any) -> None:
    with pytest.raises(RequestError, match="10 prompts of 13 answers each; at most 128") as caught:
        completion(prompt=["a"] * 10, **fields)
    assert caught.value.param == "prompt"


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_body_does_more_than_raise_a_request_error(body: bytes) -> None:
    with pytest.raises(RequestError):
        parse(ChatRequest, body)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*(row.name for row in FIELDS), "other"]), json_values, max_size=6))
def test_any_field_values_are_taken_or_refused_with_a_reason(fields: dict[str, Any]) -> None:
    words = said(lambda: chat(**fields))
    assert words is None or words.endswith(".")


def said(act: Callable[[], object]) -> str | None:
    """The message of the RequestError that `act` raises, None without one."""
    try:
        act()
    except RequestError as error:
        return error.message
    return None


contexts = st.integers(1, 300)


@given(prompt=contexts, asked=st.none() | st.integers(1, 300), default=st.none() | st.just(16))
def test_prompt_and_answer_fit_the_context_or_are_refused(prompt: int, asked: int | None, default: int | None) -> None:
    if prompt + (asked or 1) > 200:
        with pytest.raises(RequestError) as caught:
            room(prompt, asked, default, 200, "messages")
        assert caught.value.code is Code.CONTEXT_LENGTH_EXCEEDED
    else:
        assert room(prompt, asked, default, 200, "messages") == (asked or min(default or 200, 200 - prompt))


def test_a_too_long_prompt_is_told_its_numbers() -> None:
    with pytest.raises(RequestError, match=r"maximum context length is 100 tokens.*resulted in 120 tokens"):
        room(120, None, None, 100, "messages")


def test_a_prompt_as_long_as_the_context_is_told_that_no_answer_fits_behind_it(tokenizer: Tokenizer) -> None:
    words = r"length is 100 tokens.*resulted in (at least )?100 tokens, and one at least must remain"
    with pytest.raises(RequestError, match=words):
        room(100, None, None, 100, "messages")
    with pytest.raises(RequestError, match=words):
        Encoding().check([5] * 100, tokenizer, 100, "messages")
    assert room(100, 0, 16, 100, "prompt") == 0


def test_a_hopeless_prompt_is_told_the_least_it_can_be(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match=r"maximum context length is 100 tokens.*resulted in at least 100 tokens"):
        Encoding().check([5] * 100, tokenizer, 100, "messages")
    Encoding().check([5] * 99, tokenizer, 100, "messages")


def test_a_too_long_wish_is_told_its_numbers() -> None:
    with pytest.raises(RequestError, match=r"you requested 130 tokens \(90 in the prompt, 40 in the completion\)"):
        room(90, 40, 16, 100, "prompt")
