"""A stream that goes on where another worker lost it: at every event, with exactly the rest of the same text."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.every import cases
from tests.worker.conftest import TEXT
from tests.worker.harness import Rig, events, resuming, running, text_of
from tests.worker.scripted_engine import EOS, Script

from paceline_workers.messages import Sampling, Started, Submit
from paceline_workers.server.openai.resume import finish_reason
from paceline_workers.server.text.tokenizer import Tokenizer

CHAT = "/v1/chat/completions"
TEXTS = "/v1/completions"
HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}], "stream": True}
PROMPT: dict[str, Any] = {"model": "chat", "prompt": "hello", "max_tokens": 100, "stream": True}
STARTED = Started(8, 16, 1, 100, 8, [EOS], False, {})


@pytest.fixture
async def rig(folder: Path, reply: list[int]) -> AsyncIterator[Rig]:
    async with running(Script(reply=reply, cached=400, pause_s=0.001), folder=folder) as rig:
        yield rig


async def told(rig: Rig, path: str, body: Any, *choices: Any) -> bytes:
    content, headers = resuming(body, *choices)
    response = await rig.http.post(path, content=content, headers={**rig.gateway_headers, **headers})
    assert response.status_code == 200, response.text
    return response.content


def beginnings(body: bytes) -> list[tuple[list[int], str, bool]]:
    """After each event of a chat stream: the ids so far, the text so far, and whether it has ended."""
    ids: list[int] = []
    seen = []
    for block in body.split(b"\n\n"):
        for line in block.split(b"\n"):
            if line.startswith(b": p "):
                ids = ids + [int(token) for token in line.split(b" ")[3].split(b",")]
        so_far = body[: body.index(block) + len(block)]
        finish = [choice["finish_reason"] for event in events(so_far)[:-1] for choice in event["choices"]]
        seen.append((ids, text_of(so_far), any(finish)))
    return seen[1:-3]  # not before the first tokens, and not after the end


@pytest.mark.parametrize("how", [{}, {"stop": ["漢字 and", "zzz"]}, {"max_tokens": 9}, {"min_tokens": 20, "stop": "a"}])
async def test_from_every_event_on_comes_exactly_the_rest(rig: Rig, how: dict[str, Any]) -> None:
    whole = (await rig.http.post(CHAT, json=HELLO | how, headers=rig.gateway_headers)).content
    text, starts = text_of(whole), beginnings(whole)
    assert starts
    for ids, before, ended in starts:
        rest = await told(rig, CHAT, HELLO | how, {"ids": ids, "ended": ended})
        assert before + text_of(rest) == text
        assert rest.endswith(b"data: [DONE]\n\n")


async def test_from_every_token_on_the_texts_meet_inside_characters_too(
    rig: Rig, reply: list[int], tokenizer: Tokenizer
) -> None:
    """Whoever cuts a stream at any token has at least the text that is certain by then."""
    for cut in range(1, len(reply)):
        certain = tokenizer.decode(reply[:cut]).rstrip("\ufffd")
        rest = text_of(await told(rig, CHAT, HELLO, {"ids": reply[:cut]}))
        assert certain + rest == TEXT


async def test_a_resumed_stream_goes_on_with_id_time_and_positions(rig: Rig, reply: list[int]) -> None:
    body = await told(rig, CHAT, HELLO, {"ids": reply[:5]})
    first, *_ = events(body)
    assert (first["id"], first["created"]) == ("chatcmpl-first", 7)
    assert "role" not in first["choices"][0]["delta"]
    positions = [line.split(b" ")[2] for line in body.split(b"\n") if line.startswith(b": p ")]
    assert positions[0] == b"5"


async def test_usage_counts_every_token_once(rig: Rig, reply: list[int]) -> None:
    options = {"stream_options": {"include_usage": True}}
    *_, usage, _ = events(await told(rig, CHAT, HELLO | options, {"ids": reply[:7]}))
    assert usage["usage"]["completion_tokens"] == len(reply) + 1
    assert usage["usage"]["prompt_tokens_details"]["cached_tokens"] == usage["usage"]["prompt_tokens"]


async def test_offsets_of_logprobs_go_on(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply, logprobs=True), folder=folder) as rig:
        whole = events((await rig.http.post(TEXTS, json=PROMPT | {"logprobs": 0}, headers=rig.gateway_headers)).content)
        rest = events(await told(rig, TEXTS, PROMPT | {"logprobs": 0}, {"ids": reply[:6]}))
    assert offsets(rest) == offsets(whole)[6:]


def offsets(chunks: list[Any]) -> list[int]:
    lists = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk != "[DONE]"]
    return [offset for entry in lists if entry for offset in entry["text_offset"]]


@pytest.mark.parametrize(("ended", "reasons"), [(False, ["stop"]), (True, [])])
async def test_what_had_ended_gets_only_what_was_not_told(
    folder: Path, reply: list[int], ended: bool, reasons: list[str]
) -> None:
    log = folder / "engine.log"
    async with running(Script(reply=reply, log=str(log)), folder=folder) as rig:
        *chunks, done = events(await told(rig, CHAT, HELLO, {"ids": [*reply, EOS], "ended": ended}))
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == reasons
    assert done == "[DONE]"
    assert not log.exists()


@cases(
    ("ids", "fields", "reason"),
    [
        ([5, 6], {}, ""),
        ([5, EOS], {}, "stop"),
        ([5, EOS], {"ignore_eos": True}, ""),
        ([5, EOS], {"min_tokens": 2}, ""),
        ([5, 9], {"stop_ids": [9], "ignore_eos": True}, "stop"),
        ([5] * 10, {}, "length"),
        ([], {}, ""),
        ([5] * 8, {"prompt": [1] * 92}, "length"),
    ],
)
def test_an_end_is_told_from_the_tokens_as_the_engine_would(ids: list[int], fields: Any, reason: str) -> None:
    submit = Submit(**{"id": "s", "prompt": [1], "max_tokens": 10, "sampling": Sampling()} | fields)
    assert finish_reason(submit, ids, STARTED) == reason


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ([{"ids": [1]}, {"ids": [1]}], "holds 2 choices"),
        ([{"ids": [-1]}], "token id"),
        ([{"ids": [10**9]}], "token id"),
        ([{"ids": "x"}], "malformed"),
        ([], "malformed"),
    ],
)
async def test_a_wrong_resumption_is_refused(rig: Rig, choices: list[Any], words: str) -> None:
    content, headers = resuming(HELLO, *choices)
    response = await rig.http.post(CHAT, content=content, headers={**rig.gateway_headers, **headers})
    assert response.status_code == 400
    assert words in response.json()["error"]["message"]


async def test_a_stream_goes_on_only_where_its_ids_mean_the_same(rig: Rig) -> None:
    first = await rig.http.post(CHAT, json=HELLO, headers=rig.gateway_headers)
    own = first.headers["x-paceline-vocabulary"]
    statuses = []
    for vocabulary in (own, "another"):
        content, headers = resuming(HELLO, {"ids": [5]}, vocabulary=vocabulary)
        statuses.append(
            (await rig.http.post(CHAT, content=content, headers={**rig.gateway_headers, **headers})).status_code
        )
    assert statuses == [200, 400]


async def test_choices_that_said_nothing_need_not_be_told(rig: Rig, reply: list[int]) -> None:
    chunks = events(await told(rig, CHAT, HELLO | {"n": 2}, {"ids": reply[:5]}))
    roles = [choice["index"] for chunk in chunks[:-1] for choice in chunk["choices"] if "role" in choice["delta"]]
    assert roles == [1]


async def test_only_streams_are_resumed(rig: Rig) -> None:
    content, headers = resuming(HELLO | {"stream": False}, {"ids": [1]})
    response = await rig.http.post(CHAT, content=content, headers={**rig.gateway_headers, **headers})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "stream")


async def test_a_count_over_the_body_is_refused(rig: Rig) -> None:
    headers = {**rig.gateway_headers, "x-paceline-resume": "100000"}
    response = await rig.http.post(CHAT, content=json.dumps(HELLO), headers=headers)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "x-paceline-resume")


@pytest.mark.parametrize("size", ["abc", "-1", "0", ""])
async def test_a_count_that_is_none_is_refused_by_its_headers_name(rig: Rig, size: str) -> None:
    content, headers = resuming(HELLO, {"ids": [1]})
    response = await rig.http.post(
        CHAT, content=content, headers={**rig.gateway_headers, **headers, "x-paceline-resume": size}
    )
    assert (response.status_code, response.json()["error"]["param"]) == (400, "x-paceline-resume")


async def test_more_output_than_was_asked_for_is_no_resumption(rig: Rig) -> None:
    content, headers = resuming(HELLO | {"max_tokens": 4}, {"ids": [1] * 5})
    response = await rig.http.post(CHAT, content=content, headers={**rig.gateway_headers, **headers})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "x-paceline-resume")
    assert "5 output ids of one choice; the request allows 4" in response.json()["error"]["message"]


async def test_nobody_else_can_resume(rig: Rig) -> None:
    content, headers = resuming(HELLO, {"ids": [1]})
    response = await rig.http.post(CHAT, content=content, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")
