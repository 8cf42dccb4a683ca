"""Each field that the table calls served changes what the engine is told or what the client gets; none is left out."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from paceline_core.clock import SystemClock
from paceline_core.errors import RequestError
from paceline_workers import demo
from paceline_workers.messages import Started, Tokens
from paceline_workers.server.app import GENERATING
from paceline_workers.server.handlers.embed import POOLED
from paceline_workers.server.http.caller import Caller
from paceline_workers.server.openai.fields import FIELDS, FieldRoute, Support
from paceline_workers.server.openai.jobs import Events, GenerationJob, JobInput
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.text.chat import ChatTemplate
from paceline_workers.server.text.tokenizer import Tokenizer

STARTED = Started(8, 16, 1, 100, 8, [0], False, {}, embedding=4)
SAID = "one two<|assistant|> three"
TURNS = [{"role": "user", "content": "hello you"}, {"role": "assistant", "content": "Well"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SOURCE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>"
    "{{ call.function | tojson }}</tool_call>{% endfor %}</s>{% endfor %}{{ documents }}{{ reasoning_effort }}"
    "{{ extra }}{% if tools %}<tool_call>{{ tools | tojson }}</tool_call>{% endif %}"
    "{% if add_generation_prompt %}<turn>{% endif %}"
)
HALF = {"continue_final_message": True}
BEAMS = {"use_beam_search": True, "n": 2}
Case = tuple[Any, Mapping[str, Any]]
"""A value, and what else the request has, with it and without it."""

UNPAIRED = {"text_1": None, "text_2": None}
SCORED: dict[str, Case] = {
    "model": ("other", {}),
    "max_tokens_per_query": (1, {}),
    "max_tokens_per_doc": (1, {}),
    "truncate_prompt_tokens": (2, {}),
    "truncation_side": ("right", {"truncate_prompt_tokens": 2}),
    "cache_salt": ("s", {}),
}
BOTH: dict[str, Case] = {
    "model": ("other", {}),
    "max_tokens": (7, {}),
    "max_completion_tokens": (7, {}),
    "min_tokens": (2, {}),
    "stop": ("two", {}),
    "stop_token_ids": ([5], {}),
    "include_stop_str_in_output": (True, {"stop": "two"}),
    "skip_special_tokens": (False, {}),
    "ignore_eos": (True, {}),
    "stream": (True, {}),
    "stream_options": ({"include_usage": True}, {"stream": True}),
    "n": (2, {}),
    "best_of": (2, {}),
    "prompt_logprobs": (1, {}),
    "return_token_ids": (True, {}),
    "temperature": (0.5, {}),
    "top_p": (0.5, {}),
    "top_k": (5, {}),
    "min_p": (0.5, {}),
    "repetition_penalty": (1.5, {}),
    "presence_penalty": (0.5, {}),
    "frequency_penalty": (0.5, {}),
    "logit_bias": ({"5": 1}, {}),
    "allowed_token_ids": ([5, 6], {}),
    "bad_words": (["two"], {}),
    "seed": (5, {}),
    "use_beam_search": (True, {"n": 2}),
    "length_penalty": (2, BEAMS),
    "early_stopping": (True, BEAMS),
    "response_format": ({"type": "json_object"}, {}),
    "structured_outputs": ({"regex": "a+"}, {}),
    "guided_json": ({"type": "object"}, {}),
    "guided_regex": ("a+", {}),
    "guided_choice": (["a", "b"], {}),
    "guided_grammar": ("start: /a+/", {}),
    "truncate_prompt_tokens": (2, {}),
    "truncation_side": ("right", {"truncate_prompt_tokens": 2}),
    "cache_salt": ("s", {}),
}
CASES: dict[str, dict[str, Case]] = {
    FieldRoute.CHAT: BOTH
    | {
        "messages": (TURNS, {}),
        "add_generation_prompt": (False, {}),
        "continue_final_message": (True, {"messages": TURNS}),
        "add_special_tokens": (True, {}),
        "chat_template": ("{{ messages[0].content }}", {}),
        "chat_template_kwargs": ({"extra": "more"}, {}),
        "documents": ([{"title": "one"}], {}),
        "reasoning_effort": ("low", {}),
        "logprobs": (True, {}),
        "top_logprobs": (1, {"logprobs": True}),
        "return_tokens_as_token_ids": (True, {"logprobs": True}),
        "return_prompt_text": (True, {}),
        "echo": (True, {"messages": TURNS} | HALF),
        "tools": ([TOOL], {}),
        "tool_choice": ("required", {"tools": [TOOL]}),
        "include_reasoning": (False, {"chat_template": "{{ messages[0].content }}</think><think>"}),
        "parallel_tool_calls": (False, {"tools": [TOOL], "tool_choice": "required"}),
    },
    FieldRoute.COMPLETIONS: BOTH
    | {
        "prompt": ("another text", {}),
        "add_special_tokens": (False, {}),
        "logprobs": (1, {}),
        "return_tokens_as_token_ids": (True, {"logprobs": 1}),
        "echo": (True, {}),
    },
    FieldRoute.EMBEDDINGS: {
        "model": ("other", {}),
        "input": ("another text", {}),
        "encoding_format": ("base64", {}),
        "dimensions": (5, {}),
        "truncate_prompt_tokens": (2, {}),
        "truncation_side": ("right", {"truncate_prompt_tokens": 2}),
        "add_special_tokens": (False, {}),
        "cache_salt": ("s", {}),
    },
    FieldRoute.SCORE: SCORED
    | {
        "text_1": ("another text", {}),
        "text_2": ("another text", {}),
        "queries": ("a text", UNPAIRED | {"documents": "a text"}),
        "documents": ("a text", UNPAIRED | {"queries": "a text"}),
        "items": ("a text", UNPAIRED | {"queries": "a text"}),
        "data_1": ("a text", UNPAIRED | {"data_2": "a text"}),
        "data_2": ("a text", UNPAIRED | {"data_1": "a text"}),
    },
    FieldRoute.RERANK: SCORED
    | {
        "query": ("another text", {}),
        "documents": ("another text", {}),
        "top_n": (1, {}),
        "return_documents": (False, {}),
    },
}
BODIES: dict[str, dict[str, Any]] = {
    FieldRoute.CHAT: {"model": "m", "messages": TURNS[:1], "seed": 1},
    FieldRoute.COMPLETIONS: {"model": "m", "prompt": "hello you and them", "seed": 1},
    FieldRoute.EMBEDDINGS: {"model": "m", "input": "hello you and them"},
    FieldRoute.SCORE: {"model": "m", "text_1": "hello you and them", "text_2": ["one", "two and three"]},
    FieldRoute.RERANK: {"model": "m", "query": "hello you and them", "documents": ["one", "two and three"]},
}


class Surrounded(Tokenizer):
    """The demo model's, with a token before each text where special tokens are wanted."""

    def encode_now(self, text: str, *, special: bool) -> list[int]:
        ids = super().encode_now(text, special=False)
        return [1, *ids] if special else ids


@pytest.fixture(scope="module")
def model() -> ServedModel:
    tokenizer, clock = Surrounded.load(demo.FOLDER), SystemClock()
    template = ChatTemplate(SOURCE, {}, clock.utc, "test")
    return ServedModel(("m", "other"), tokenizer, template, clock, trusts_templates=True)


@pytest.mark.parametrize("route", CASES)
def test_every_served_field_has_its_case(route: str) -> None:
    served = {row.name for row in FIELDS if route in row.routes and row.support is Support.SERVED}
    assert CASES[route].keys() == served


@pytest.mark.parametrize("route", CASES)
async def test_every_served_field_changes_what_is_asked_or_told(route: str, model: ServedModel) -> None:
    for name, (value, beside) in CASES[route].items():
        body = {**BODIES[route], **beside}
        without, within = await made(model, route, body), await made(model, route, body | {name: value})
        assert within != without, name
        assert within == await made(model, route, body | {name: value}), f"{name}: made twice"


@pytest.mark.parametrize("route", CASES)
async def test_what_is_ignored_changes_neither(route: str, model: ServedModel) -> None:
    plain = await made(model, route, BODIES[route])
    for row in FIELDS:
        if route in row.routes and row.support is Support.IGNORED:
            assert await made(model, route, BODIES[route] | {row.name: {"any": [1]}}) == plain, row.name


async def made(model: ServedModel, route: str, body: Mapping[str, Any]) -> Any:
    """What becomes of a request: what the engine is told, and the answer to what it says; or the refusal."""
    asked = JobInput(json.dumps(body).encode(), Caller("r", trusted=True, tenant="t"), STARTED)
    try:
        if route in POOLED:
            pooled = await POOLED[route](model, asked)
            told = [structs.replace(submit, id="") for submit in pooled.submits]
            pooled.take([Tokens("", 0, [], "stop", vector=b"\0" * 16)] * len(told))
            return told, json.loads(pooled.answer()) | {"id": "", "created": 0}
        return answered(model, await GENERATING[route](model, asked))
    except RequestError as error:
        return error.message


def answered(model: ServedModel, job: GenerationJob) -> Any:
    """With ids of its own for each answer left out."""
    ids = model.tokenizer.encode_now(SAID, special=False)
    pieces = []
    for choice in job.choices:
        scores = [(-1.0, 2, [(5, -0.5)])] * (len(choice.submit.prompt) - 1)
        logprobs = [(-1.0, [(5, -0.5)])] * len(ids)
        last = Tokens("", 0, [*ids, 0], "stop", logprobs=logprobs, prompt_logprobs=scores)
        piece = choice.output.feed([last])
        assert piece is not None
        pieces.append(piece)
    asked = [structs.replace(choice.submit, id="", group="", answers=[]) for choice in job.choices]
    if job.stream:
        told = Events(job, trusted=False).pieces(enumerate(pieces)) + Events(job, trusted=False).end({})
    else:
        told = job.whole([[piece] for piece in pieces])
    return asked, told.replace(job.writer.id.encode(), b"").replace(str(job.writer.created).encode(), b"")
