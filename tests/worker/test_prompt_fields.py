"""Fields that change the prompt: what the chat template is told, what is cut off, with whom it is cached."""

import json
from dataclasses import replace
from typing import Any

import pytest
import tokenizers
from jinja2 import TemplateError
from tests.every import cases
from tokenizers import models, pre_tokenizers, processors
from transformers.utils.chat_template_utils import render_jinja_template

from paceline_core.clock import SystemClock
from paceline_core.errors import Code, RequestError
from paceline_workers.messages import Started, Submit
from paceline_workers.server.http.caller import Caller
from paceline_workers.server.openai.chat_fields import ChatFields
from paceline_workers.server.openai.chat_job import chat_job
from paceline_workers.server.openai.completion_job import completion_job
from paceline_workers.server.openai.embeddings import embedding_job
from paceline_workers.server.openai.inputs import Truncation
from paceline_workers.server.openai.jobs import GenerationJob, JobInput
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.openai.validation import parse
from paceline_workers.server.prefix_warmup import WarmPrefixes
from paceline_workers.server.text.chat import ChatTemplate, Rendering
from paceline_workers.server.text.tokenizer import Tokenizer

CONTEXT = 100
STARTED = Started(8, 16, 1, CONTEXT, 8, [0], False, {}, embedding=4)
SOURCE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}"
    "{% for d in documents or [] %}[{{ d.title }}]{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
    "{% if enable_thinking is defined %}thinks={{ enable_thinking }}{% endif %}"
    "{% if reasoning_effort %}effort={{ reasoning_effort }}{% endif %}"
)
TURNS = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Well, "}]
HALF = {"continue_final_message": True}


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> ServedModel:
    clock = SystemClock()
    template = ChatTemplate(SOURCE, {}, clock.utc, "test")
    return ServedModel(("m",), tokenizer, template, clock, warm=WarmPrefixes(((1, 2),)))


@pytest.fixture(scope="module")
def bracketed() -> Tokenizer:
    """Letters, with `<s>` before a text and `</s>` behind it."""
    inner = tokenizers.Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, **{c: n for n, c in enumerate("abcdefgh", 2)}}))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    return Tokenizer(inner, {})


async def job(model: ServedModel, caller: Caller | None = None, **fields: Any) -> GenerationJob:
    make = completion_job if "prompt" in fields else chat_job
    body = {"model": "m"} | ({} if "prompt" in fields else {"messages": TURNS[:1]}) | fields
    return await make(model, JobInput(json.dumps(body).encode(), caller or Caller("r"), STARTED))


async def prompt(model: ServedModel, **fields: Any) -> str:
    return model.tokenizer.decode_all((await job(model, **fields)).choices[0].submit.prompt)


async def refused(model: ServedModel, **fields: Any) -> tuple[str | None, str]:
    with pytest.raises(RequestError) as caught:
        await job(model, **fields)
    assert caught.value.code is Code.INVALID_REQUEST
    return caught.value.param, caught.value.message


async def test_add_generation_prompt_ends_the_prompt_before_or_in_the_assistants_turn(model: ServedModel) -> None:
    assert await prompt(model) == "<user>hello</s><assistant>"
    assert await prompt(model, add_generation_prompt=True) == "<user>hello</s><assistant>"
    assert await prompt(model, add_generation_prompt=False) == "<user>hello</s>"


async def test_continue_final_message_leaves_the_last_turn_open(model: ServedModel) -> None:
    for more in (HALF, HALF | {"add_generation_prompt": False}):
        assert await prompt(model, messages=TURNS, **more) == "<user>hello</s><assistant>Well,"
    field, words = await refused(model, messages=TURNS, **HALF, add_generation_prompt=True)
    assert field == "continue_final_message"
    assert "`add_generation_prompt`" in words


@cases("content", ["Well", "Well, ", " Well", "hello", "a CONTINUE b", ""])
@cases("written", ["{{ m.content }}", "{{ m.content | trim }}"])
def test_a_continued_message_ends_as_transformers_ends_it(content: str, written: str) -> None:
    source = "{% for m in messages %}<{{ m.role }}>" + written + "</s>\n{% endfor %}"
    turns = [TURNS[0], {"role": "assistant", "content": content}]
    (expected,), _ = render_jinja_template([turns], chat_template=source, continue_final_message=True)
    ours = ChatTemplate(source, {}, SystemClock().utc, "test")
    assert ours.render(turns, (), Rendering(generation=False, continues=True)) == expected


def test_a_template_that_does_not_write_the_last_message_cannot_continue_it() -> None:
    ours = ChatTemplate("{% for m in messages %}{{ m.role }}{% endfor %}", {}, SystemClock().utc, "test")
    with pytest.raises(RequestError) as caught:
        ours.render(TURNS, (), Rendering(generation=False, continues=True))
    assert caught.value.param == "continue_final_message"


async def test_chat_template_kwargs_reach_the_template(model: ServedModel) -> None:
    text = await prompt(model, chat_template_kwargs={"enable_thinking": False, "unread": [1]})
    assert text == "<user>hello</s><assistant>thinks=False"


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "chat_template"])
async def test_chat_template_kwargs_do_not_take_the_place_of_fields(model: ServedModel, name: str) -> None:
    field, words = await refused(model, chat_template_kwargs={name: False})
    assert (field, f"`{name}`" in words) == ("chat_template_kwargs", True)


async def test_what_a_template_cannot_do_with_its_variables_is_the_clients_fault(model: ServedModel) -> None:
    template = ChatTemplate("{% if depth %}{{ 1 // depth }}{% endif %}", {}, SystemClock().utc, "test")
    with pytest.raises(RequestError) as caught:
        template.render(TURNS, (), Rendering(variables={"depth": "deep"}))
    assert caught.value.code is Code.INVALID_REQUEST
    assert not isinstance(caught.value, TemplateError)


async def test_documents_reach_a_template_that_reads_them(model: ServedModel) -> None:
    text = await prompt(model, documents=[{"title": "one", "text": "x"}, {"title": "two", "text": "y"}])
    assert text == "<user>hello</s>[one][two]<assistant>"


async def test_reasoning_effort_reaches_the_template_and_turns_thinking_on_or_off(model: ServedModel) -> None:
    begin = "<user>hello</s><assistant>"
    assert await prompt(model, reasoning_effort="low") == f"{begin}thinks=Trueeffort=low"
    assert await prompt(model, reasoning_effort="none") == f"{begin}thinks=Falseeffort=none"
    own = {"enable_thinking": False, "reasoning_effort": "ignored"}
    assert await prompt(model, reasoning_effort="high", chat_template_kwargs=own) == f"{begin}thinks=Falseeffort=high"
    assert (await refused(model, reasoning_effort="much"))[0] == "reasoning_effort"


async def test_echo_of_a_chat_begins_the_answer_with_the_message_that_it_continues(model: ServedModel) -> None:
    for fields, echoed in (
        ({"messages": TURNS, "echo": True} | HALF, "Well, "),
        ({"messages": TURNS, "echo": True}, "Well, "),
        ({"messages": TURNS[:1], "echo": True}, ""),
        ({"messages": TURNS} | HALF, ""),
    ):
        (opening,) = (await job(model, **fields)).choices[0].shape.opening()
        assert opening.delta.content == echoed


async def test_special_tokens_around_a_prompt_are_added_as_asked(bracketed: Tokenizer) -> None:
    clock = SystemClock()
    model = ServedModel(("m",), bracketed, ChatTemplate("abc", {}, clock.utc, "test"), clock)

    async def ids(**fields: Any) -> list[int]:
        return (await job(model, **fields)).choices[0].submit.prompt

    assert await ids(prompt="abc") == await ids(prompt="abc", add_special_tokens=True) == [0, 2, 3, 4, 1]
    assert await ids(prompt="abc", add_special_tokens=False) == [2, 3, 4]
    assert await ids() == await ids(add_special_tokens=False) == [2, 3, 4]
    assert await ids(add_special_tokens=True) == [0, 2, 3, 4, 1]


async def test_truncate_prompt_tokens_keeps_the_end_and_the_tokens_around_it(bracketed: Tokenizer) -> None:
    clock = SystemClock()
    model = ServedModel(("m",), bracketed, ChatTemplate("abcdef", {}, clock.utc, "test"), clock)

    async def ids(**fields: Any) -> list[int]:
        return (await job(model, **fields)).choices[0].submit.prompt

    assert await ids(prompt="abcdef", truncate_prompt_tokens=4) == [0, 6, 7, 1]
    assert await ids(prompt="abcdef", truncate_prompt_tokens=4, truncation_side="right") == [0, 2, 3, 1]
    assert await ids(prompt="abcdef", truncate_prompt_tokens=4, add_special_tokens=False) == [4, 5, 6, 7]
    assert await ids(prompt=[2, 3, 4, 5], truncate_prompt_tokens=3) == [3, 4, 5]
    assert await ids(truncate_prompt_tokens=2) == [6, 7]
    assert await ids(prompt="abc", truncate_prompt_tokens=50) == [0, 2, 3, 4, 1]


async def test_minus_one_keeps_what_the_context_leaves_beside_the_answer(model: ServedModel) -> None:
    long = "one two " * 200
    assert len((await job(model, prompt=long, truncate_prompt_tokens=-1, max_tokens=20)).choices[0].submit.prompt) == 80
    assert (await refused(model, prompt=long, truncate_prompt_tokens=81, max_tokens=20))[0] == "truncate_prompt_tokens"
    assert (await refused(model, prompt=long, truncate_prompt_tokens=0))[0] == "truncate_prompt_tokens"
    for fields in ({"truncate_prompt_tokens": 0}, {"truncate_prompt_tokens": -1, "max_tokens": 100}):
        assert (await refused(model, **fields))[0] == "truncate_prompt_tokens"
    words = (await refused(model, prompt=long, truncate_prompt_tokens=-1, max_tokens=500))[1]
    assert "500 tokens of output" in words


def test_a_prompt_is_cut_to_its_length_whatever_stands_around_it() -> None:
    ids = list(range(10))
    for tokens in range(12):
        for around in (((), ()), ((0,), ()), ((0, 1), (9,))):
            for side in ("left", "right"):
                assert len(Truncation(tokens, side).truncate(ids, *around)) == min(tokens, 10)


async def test_cache_salt_parts_pages_within_a_tenant(model: ServedModel) -> None:
    async def told(tenant: str, **fields: Any) -> Submit:
        return (
            (await job(model, Caller("r", trusted=True, tenant=tenant), prompt=[1, 2, 3], **fields)).choices[0].submit
        )

    salts = [(await told(tenant, **fields)).salt for tenant in ("a", "b") for fields in ({}, {"cache_salt": "x"})]
    assert len(set(salts)) == 4
    assert (await told("a")).unsalted == 2
    assert (await told("a", cache_salt="x")).unsalted == 0
    assert (await told("a", cache_salt="x")).salt == salts[1]
    for wrong in ("", "x" * 1025, 5):
        assert (await refused(model, prompt="a", cache_salt=wrong))[0] == "cache_salt"


async def test_inputs_of_embeddings_are_cut_and_cached_apart_too(bracketed: Tokenizer) -> None:
    model = ServedModel(("m",), bracketed, None, SystemClock())

    async def told(**fields: Any) -> Submit:
        body = json.dumps({"model": "m", "input": "abcdef"} | fields).encode()
        return (await embedding_job(model, JobInput(body, Caller("r"), STARTED))).submits[0]

    assert (await told()).prompt == [0, 2, 3, 4, 5, 6, 7, 1]
    assert (await told(truncate_prompt_tokens=4)).prompt == [0, 6, 7, 1]
    assert (await told(truncate_prompt_tokens=4, truncation_side="right", add_special_tokens=False)).prompt == [
        2,
        3,
        4,
        5,
    ]
    assert (await told(cache_salt="x")).salt != (await told()).salt


async def test_a_chat_template_of_a_request_is_rendered_only_where_it_is_trusted(model: ServedModel) -> None:
    field, words = await refused(model, chat_template="{{ messages[0].content }}!")
    assert (field, "trust_request_chat_template" in words) == ("chat_template", True)
    trusting = replace(model, trusts_templates=True)
    assert await prompt(trusting, chat_template="{{ messages[0].content }}!") == "hello!"
    assert await prompt(trusting) == await prompt(model)
    assert await prompt(replace(trusting, template=None), chat_template="a chat") == "a chat"
    for broken in ("{% for %}", "{{ messages.append(1) }}"):
        assert (await refused(trusting, chat_template=broken))[0] in {"chat_template", "messages"}
    for wrong in ("", "x" * 65_537, 5):
        assert (await refused(trusting, chat_template=wrong))[0] == "chat_template"


def test_a_chat_that_is_counted_is_rendered_by_the_same_fields() -> None:
    read = parse(ChatFields, json.dumps(HALF | {"chat_template_kwargs": {"a": 1}}).encode())
    assert read.rendering() == Rendering(generation=False, continues=True, variables={"a": 1})
