"""The table of request fields: it has every field that clients know, and says of each what really happens to it."""

import json
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from openai.types import embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.completion_create_params import CompletionCreateParamsBase
from openai.types.responses import response_create_params
from tests.every import cases
from tests.worker.harness import running
from tests.worker.scripted_engine import Script
from tests.worker.vllm_fields import VLLM_FIELDS

from paceline_core import __version__
from paceline_core.errors import Code, RequestError
from paceline_gateway.api.handlers import find_route
from paceline_workers.server.openai.anthropic.request import CountTokensRequest, MessagesRequest
from paceline_workers.server.openai.embeddings import EmbeddingRequest
from paceline_workers.server.openai.fields import FIELDS, Api, FieldRoute, RequestField, Support, field_of
from paceline_workers.server.openai.fields.table import PATHS
from paceline_workers.server.openai.requests import ChatRequest, CompletionRequest
from paceline_workers.server.openai.responses.request import ResponsesRequest
from paceline_workers.server.openai.scoring import RerankRequest, ScoreRequest
from paceline_workers.server.openai.tokenizing import DetokenizeRequest, TokenizeRequest
from paceline_workers.server.openai.validation import Body, parse

MODELS: dict[str, type[Body]] = {
    kind.route: kind
    for kind in (
        ChatRequest,
        CompletionRequest,
        CountTokensRequest,
        EmbeddingRequest,
        ScoreRequest,
        RerankRequest,
        MessagesRequest,
        ResponsesRequest,
        TokenizeRequest,
        DetokenizeRequest,
    )
}
BODIES: dict[str, dict[str, Any]] = {
    FieldRoute.CHAT: {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    FieldRoute.COMPLETIONS: {"model": "m", "prompt": "hi"},
    FieldRoute.EMBEDDINGS: {"model": "m", "input": "hi"},
    FieldRoute.SCORE: {"model": "m", "text_1": "hi", "text_2": "hi"},
    FieldRoute.RERANK: {"model": "m", "query": "hi", "documents": ["hi"]},
    FieldRoute.RESPONSES: {"model": "m", "input": "hi"},
    FieldRoute.MESSAGES: {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
    FieldRoute.COUNT_TOKENS: {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    FieldRoute.TOKENIZE: {"prompt": "hi"},
    FieldRoute.DETOKENIZE: {"tokens": [1]},
}
OPENAI_FIELDS: dict[str, set[str]] = {
    FieldRoute.CHAT: {*get_type_hints(chat_create_params.CompletionCreateParamsBase), "stream"},
    FieldRoute.COMPLETIONS: {*get_type_hints(CompletionCreateParamsBase), "stream"},
    FieldRoute.RESPONSES: {*get_type_hints(response_create_params.ResponseCreateParamsBase), "stream"},
    FieldRoute.EMBEDDINGS: set(get_type_hints(embedding_create_params.EmbeddingCreateParams)),
}
ODD: list[Any] = [[{"something": "else"}], "else", 7, {"else": 1}]
"""Values that no field has as its neutral one."""


def rows(route: str, support: Support) -> list[RequestField]:
    return [row for row in FIELDS if route in row.routes and row.support is support]


@cases("route", FieldRoute)
def test_every_field_of_openai_and_of_vllm_is_in_the_table(route: FieldRoute) -> None:
    for api, known in ((Api.OPENAI, OPENAI_FIELDS.get(route, set())), (Api.VLLM, VLLM_FIELDS[route])):
        told = {row.name for row in FIELDS if route in row.routes and api in row.apis}
        assert known - told == set(), f"{api}'s, and not in the table"
        if api is Api.VLLM:
            assert told - known == set(), "vLLM has no such field"


def test_a_field_stands_once_for_a_route() -> None:
    places = [(route, row.name) for row in FIELDS for route in row.routes]
    assert len(places) == len(set(places))


@cases("route", FieldRoute)
def test_what_is_served_is_what_a_model_reads(route: FieldRoute) -> None:
    assert {row.name for row in rows(route, Support.SERVED)} == MODELS[route].model_fields.keys()


@cases("route", FieldRoute)
def test_what_is_refused_is_refused_by_name_and_its_neutral_values_pass(route: FieldRoute) -> None:
    for row in rows(route, Support.REFUSED):
        for value in ODD:
            with pytest.raises(RequestError) as caught:
                read(route, {row.name: value})
            assert (caught.value.code, caught.value.param) == (Code.INVALID_REQUEST, row.name)
            assert f"`{row.name}` is not supported here: {row.note}. Leave it out" in caught.value.message
            assert all(json.dumps(neutral) in caught.value.message for neutral in row.neutral)
        for value in (*row.neutral, None):
            read(route, {row.name: value})


@cases("route", FieldRoute)
def test_what_is_ignored_passes_with_any_value(route: FieldRoute) -> None:
    plain = read(route, {})
    for row in rows(route, Support.IGNORED):
        for value in ODD:
            assert values(read(route, {row.name: value})) == values(plain)


@pytest.mark.parametrize("route", [FieldRoute.RESPONSES, FieldRoute.MESSAGES])
def test_a_chats_field_that_another_form_of_it_does_not_read_passes_with_its_default_alone(route: FieldRoute) -> None:
    own = {row.name for row in FIELDS if route in row.routes}
    reports = {"stream_options", "return_prompt_text"}
    others = {row.name for row in rows(FieldRoute.CHAT, Support.SERVED)} - own - reports
    assert {"n", "stop_token_ids", "bad_words", "min_tokens"} <= others
    for name in others:
        for value in ODD:
            with pytest.raises(RequestError, match=f"`{name}` is for /v1/chat/completions") as caught:
                read(route, {name: value})
            assert caught.value.param == name
        default = ChatRequest.model_fields[name]
        read(route, {name: None if default.is_required() else default.default})
    with pytest.raises(RequestError, match="`web_search_options`"):
        read(route, {"web_search_options": {"a": 1}})


def test_a_refusal_says_what_to_send_in_its_place() -> None:
    for route, field, words in (
        (FieldRoute.CHAT, "functions", "send `tools`, its newer form. Leave it out, or send `[]`."),
        (FieldRoute.CHAT, "function_call", 'Leave it out, or send `"none"` or `"auto"`.'),
        (FieldRoute.RESPONSES, "previous_response_id", "send the earlier items as `input`. Leave it out."),
    ):
        with pytest.raises(RequestError) as caught:
            read(route, {field: "x"})
        assert caught.value.message.endswith(words)


def test_zero_and_one_are_not_false_and_true() -> None:
    with pytest.raises(RequestError, match="watermarking"):
        read(FieldRoute.CHAT, {"watermarking": 0})


def test_what_no_api_knows_has_no_row() -> None:
    assert field_of(FieldRoute.CHAT, "x_vendor") is None
    assert values(read(FieldRoute.CHAT, {"x_vendor": 1})) == values(read(FieldRoute.CHAT, {}))


async def test_the_table_of_routes_is_that_of_the_worker_and_of_the_gateway(folder: Path) -> None:
    async with running(Script(), folder=folder) as rig:
        for row in PATHS:
            path = row.path.replace("{name}", "chat")
            answers = [await rig.http.get(path), await rig.http.post(path, json={})]
            assert any(found(answer.text) for answer in answers) is row.worker, path
            assert takes(path) is row.gateway, path
        assert (await rig.http.get("/version")).json() == {"version": __version__}


def found(text: str) -> bool:
    return not any(code in text for code in (Code.ROUTE_NOT_FOUND, Code.METHOD_NOT_ALLOWED))


def takes(path: str) -> bool:
    try:
        find_route("GET", path)
    except RequestError as error:
        return error.code is Code.METHOD_NOT_ALLOWED
    return True


def read(route: str, fields: dict[str, Any]) -> Body:
    return parse(MODELS[route], json.dumps(BODIES[route] | fields).encode())


def values(body: Body) -> dict[str, Any]:
    """What a model has read."""
    return {name: getattr(body, name) for name in type(body).model_fields}
