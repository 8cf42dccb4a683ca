import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases

from paceline_core.errors import Code, RequestError
from paceline_core.json_limits import CHOICES_PER_PROMPT, CHOICES_PER_REQUEST
from paceline_gateway.request.body import MAX_INT64, TEXTS, ParsedBody, limit_tokens, limit_under, parse, rename_model
from paceline_workers.server.openai.scoring import TEXTS_LIMIT


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ({"model": "m"}, ParsedBody("m", False, None, "max_tokens")),
        ({"model": "m", "stream": True}, ParsedBody("m", True, None, "max_tokens")),
        ({"model": "m", "stream": None, "max_tokens": None}, ParsedBody("m", False, None, "max_tokens")),
        ({"model": "m", "max_tokens": 7}, ParsedBody("m", False, 7, "max_tokens")),
        ({"model": "m", "max_tokens": 0}, ParsedBody("m", False, 0, "max_tokens")),
        (
            {"model": "m", "max_tokens": 7, "max_completion_tokens": 9},
            ParsedBody("m", False, 9, "max_completion_tokens"),
        ),
        ({"model": "m", "whatever": [1]}, ParsedBody("m", False, None, "max_tokens")),
    ],
)
def test_what_the_gateway_reads(body: object, asked: ParsedBody) -> None:
    assert parse(json.dumps(body).encode()) == asked


@cases(
    ("body", "code", "param"),
    [
        (b"", Code.INVALID_JSON, None),
        (b'{"model": "m"', Code.INVALID_JSON, None),
        (b'{"model": "\xff"}', Code.INVALID_JSON, None),
        (b"[" * 5000, Code.INVALID_REQUEST, None),
        (b'{"model": "m", "unknown": ' + b"[" * 128 + b"]" * 128 + b"}", Code.INVALID_REQUEST, None),
        (b"[]", Code.INVALID_REQUEST, None),
        (b"{}", Code.INVALID_REQUEST, "model"),
        (b'{"model": ""}', Code.INVALID_REQUEST, "model"),
        (b'{"model": 3}', Code.INVALID_REQUEST, "model"),
        (b'{"model": "m", "stream": "yes"}', Code.INVALID_REQUEST, "stream"),
        (b'{"model": "m", "max_tokens": -1}', Code.INVALID_REQUEST, "max_tokens"),
        (b'{"model": "m", "max_tokens": 1.5}', Code.INVALID_REQUEST, "max_tokens"),
        (b'{"model": "m", "max_completion_tokens": true}', Code.INVALID_REQUEST, "max_completion_tokens"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, code: Code, param: str | None) -> None:
    with pytest.raises(RequestError) as caught:
        parse(body)
    assert (caught.value.code, caught.value.param) == (code, param)


@cases("field", ["n", "best_of"])
@cases("number", [CHOICES_PER_PROMPT + 1, 10**15, 2**63 - 1, 10**19, 1e300])
def test_so_many_choices_are_refused_by_the_name_of_their_field(field: str, number: float) -> None:
    with pytest.raises(
        RequestError, match=f"`{field}` must be a whole number from 1 to {CHOICES_PER_PROMPT}"
    ) as caught:
        parse(json.dumps({"model": "m", field: number}).encode())
    assert caught.value.param == field


def test_so_many_choices_of_so_many_prompts_are_refused() -> None:
    body = {"model": "m", "n": CHOICES_PER_PROMPT, "prompt": ["a"] * (CHOICES_PER_REQUEST // CHOICES_PER_PROMPT)}
    assert parse(json.dumps(body).encode()).choices == CHOICES_PER_REQUEST
    with pytest.raises(RequestError, match="holds 5 prompts of 32 answers each; at most 128"):
        parse(json.dumps(body | {"prompt": ["a"] * 5}).encode())


@pytest.mark.parametrize("asked", [0, -5, True, "3", None, [2]])
def test_choices_that_make_no_sense_are_left_to_the_worker(asked: object) -> None:
    assert parse(json.dumps({"model": "m", "n": asked}).encode()).choices == 1


@cases(
    ("more", "least"),
    [({}, 0), ({"min_tokens": 9}, 9), ({"min_tokens": -1}, 0), ({"min_tokens": "9"}, 0), ({"min_tokens": True}, 0),
     ({"ignore_eos": True}, MAX_INT64), ({"ignore_eos": 1}, 0), ({"min_tokens": 1e300}, MAX_INT64)],
)  # fmt: skip
def test_what_each_answer_has_for_certain_is_read(more: dict[str, object], least: int) -> None:
    assert parse(json.dumps({"model": "m", **more}).encode()).min_tokens == least


@pytest.mark.parametrize("number", [b"-1", b"1.5", b"-1e300", b"true", b'"5"'])
def test_a_limit_that_is_none_hears_what_its_route_takes(number: bytes) -> None:
    for path, least in (("/v1/completions", 0), ("/v1/chat/completions", 1), ("/v1/messages", 1)):
        with pytest.raises(RequestError, match=f"`max_tokens` must be a whole number, {least} or more"):
            parse(b'{"model": "m", "max_tokens": ' + number + b"}", path)


@pytest.mark.parametrize("number", [b"%d" % 10**30, b"%d" % 2**63, b"%d" % 2**70])
def test_a_limit_that_is_too_large_is_left_to_the_class(number: bytes) -> None:
    assert parse(b'{"model": "m", "max_tokens": ' + number + b"}").max_tokens == MAX_INT64


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/v1/chat/completions", 1),
        ("/v1/messages", 900),
        ("/v1/messages/count_tokens", None),
        ("/v1/responses", 30),
    ],
)
def test_the_limit_is_read_from_the_field_that_the_route_reads(path: str, limit: int | None) -> None:
    """One of another route would reserve a token where the worker writes 900."""
    body = {"model": "m", "max_completion_tokens": 1, "max_tokens": 900, "max_output_tokens": 30}
    assert parse(json.dumps(body).encode(), path).max_tokens == limit


def test_what_is_no_text_is_said_to_be_none() -> None:
    with pytest.raises(RequestError, match="not UTF-8: its byte 11 begins no character"):
        parse(b'{"model": "\xff"}')


def test_a_body_may_be_nested_as_deep_as_a_worker_takes_it() -> None:
    assert parse(b'{"model": "m", "unknown": ' + b"[" * 127 + b"]" * 127 + b"}").model == "m"
    with pytest.raises(RequestError, match="nested deeper than 128 levels"):
        parse(b'{"model": "m", "unknown": ' + b"[" * 128 + b"]" * 128 + b"}")


def test_what_costs_too_much_to_parse_is_refused_before_a_parser_sees_it() -> None:
    body = b'{"model": "m", "messages": [' + b"{}," * 40_000 + b"this is no JSON"
    with pytest.raises(RequestError, match="more than 32768 objects and lists"):
        parse(body)


def test_a_syntax_error_names_its_place() -> None:
    with pytest.raises(RequestError, match="line 2, column"):
        parse(b'{"model": "m",\n oops}')


def test_renaming_touches_the_name_and_nothing_else() -> None:
    body = b'{ "stream":true,  "model" : "public", "seed": 12345678901234567890, "x": "\\"model\\": \\"public\\"" }'
    assert rename_model(body, "public", "default/chat") == body.replace(
        b'"model" : "public"', b'"model" : "default/chat"'
    )


def test_a_name_that_stands_twice_is_renamed_where_it_counts() -> None:
    body = b'{"tools": [{"model": "m"}], "model": "m"}'
    assert json.loads(rename_model(body, "m", "n")) == {"tools": [{"model": "m"}], "model": "n"}


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()), st.text(min_size=1), st.text(min_size=1))
def test_a_renamed_body_is_the_same_but_for_the_model(fields: dict[str, object], old: str, new: str) -> None:
    fields = {k: v for k, v in fields.items() if not isinstance(v, int) or -(2**63) <= v < 2**64}
    body = json.dumps(fields | {"model": old}, ensure_ascii=False).encode("utf-8", "replace")
    before = json.loads(body)
    assert json.loads(rename_model(body, before["model"], new.encode("utf-8", "replace").decode())) == before | {
        "model": new.encode("utf-8", "replace").decode()
    }


@cases(
    ("more", "choices"),
    [
        ({}, 1),
        ({"n": 3}, 3),
        ({"n": 2, "best_of": 4}, 4),
        ({"n": 0}, 1),
        ({"n": "many"}, 1),
        ({"prompt": "one"}, 1),
        ({"prompt": ["one", "two"], "n": 2}, 4),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1, 2], [3]]}, 2),
        ({"prompt": []}, 1),
    ],
)
def test_every_answer_that_is_asked_for_counts(more: dict[str, object], choices: int) -> None:
    assert parse(json.dumps({"model": "m"} | more).encode()).choices == choices


def test_a_field_that_a_route_does_not_read_counts_for_nothing() -> None:
    stray = {"model": "m", "n": 10**15, "best_of": "x", "max_tokens": -1, "prompt": ["a"] * 100}
    for path in ("/v1/embeddings", "/tokenize", "/detokenize"):
        asked = parse(json.dumps(stray | {"stream": "x", "max_completion_tokens": 10**30}).encode(), path)
        assert (asked.choices, asked.max_tokens, asked.stream) == (1, None, False)
    asked = parse(json.dumps(stray | {"max_output_tokens": 5}).encode(), "/v1/responses")
    assert (asked.choices, asked.max_tokens) == (1, 5)
    chat = parse(json.dumps({"model": "m", "n": 2, "prompt": ["a"] * 100}).encode(), "/v1/chat/completions")
    assert chat.choices == 2


@pytest.mark.parametrize(("path", "field"), [("/v1/rerank", "documents"), ("/v2/rerank", "query"), ("/score", "items")])
def test_more_texts_to_score_than_a_worker_takes_are_refused_by_their_field(path: str, field: str) -> None:
    assert TEXTS == TEXTS_LIMIT
    assert parse(json.dumps({"model": "m", field: ["a"] * TEXTS}).encode(), path).model == "m"
    too_many = json.dumps({"model": "m", field: [{"text": "a"}] * (TEXTS + 1)}).encode()
    with pytest.raises(RequestError, match=f"at most {TEXTS} at a time") as caught:
        parse(too_many, path)
    assert (caught.value.code, caught.value.param) == (Code.INVALID_REQUEST, field)
    assert parse(too_many, "/v1/embeddings").model == "m"


@given(st.integers(1, 10**6), st.none() | st.integers(0, 10**6))
def test_a_cap_never_falls_below_what_the_request_must_have(most: int, least: int | None) -> None:
    asked = parse(json.dumps({"model": "m", "min_tokens": least, "ignore_eos": True}).encode())
    assert limit_under(asked, most) == max(most, least or 0)


def test_a_limit_is_written_into_the_body_and_nothing_else_changes() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "\u00e4"}], "max_completion_tokens": 99, "n": 2}
    assert json.loads(limit_tokens(json.dumps(body).encode(), "max_completion_tokens", 9)) == {
        **body, "max_completion_tokens": 9
    }  # fmt: skip
    assert json.loads(limit_tokens(b'{"model": "m"}', "max_tokens", 9)) == {"model": "m", "max_tokens": 9}
