"""Several choices of one request: merged streams, one usage, one end."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.conftest import TEXT
from tests.worker.harness import Rig, events, eventually, resuming, running
from tests.worker.scripted_engine import EOS, Script

from paceline_workers.server.openai.jobs import best
from paceline_workers.server.text.output import Piece
from paceline_workers.server.text.tokenizer import Tokenizer

CHAT = "/v1/chat/completions"
TEXTS = "/v1/completions"
THREE: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}], "n": 3}
PROMPT: dict[str, Any] = {"model": "chat", "prompt": "hello", "max_tokens": 100}
OTHERS = ["Short.", "A third answer, which is rather longer than both of the others together, and then some more."]
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture
def script(tokenizer: Tokenizer, reply: list[int]) -> Script:
    """Three choices with texts of their own."""
    others = [tokenizer.encode_now(text, special=False) for text in OTHERS]
    return Script(reply=reply, others=others, pause_s=0.001, cached=2)


@pytest.fixture
async def rig(script: Script, folder: Path) -> AsyncIterator[Rig]:
    async with running(script, folder=folder) as rig:
        yield rig


def length(script: Script) -> int:
    return sum(len(reply) + 1 for reply in (script.reply, *script.others))


def texts(chunks: list[Any]) -> list[str]:
    told = ["", "", ""]
    for chunk in chunks:
        for choice in chunk["choices"]:
            told[choice["index"]] += choice["delta"].get("content", "")
    return told


async def test_an_answer_has_all_choices_in_order_and_the_prompt_counts_once(rig: Rig, script: Script) -> None:
    one = (await rig.http.post(CHAT, json=THREE | {"n": 1})).json()
    answer = (await rig.http.post(CHAT, json=THREE)).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert [choice["message"]["content"] for choice in answer["choices"]] == [TEXT, *OTHERS]
    assert answer["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]
    assert answer["usage"]["completion_tokens"] == length(script)
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}


async def test_streams_of_choices_are_merged_with_their_index(rig: Rig, script: Script) -> None:
    *chunks, usage, done = events((await rig.http.post(CHAT, json=THREE | STREAM)).content)
    assert texts(chunks) == [TEXT, *OTHERS]
    for index in range(3):
        own = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + ["stop"]
    assert usage["usage"]["completion_tokens"] == length(script)
    assert done == "[DONE]"


async def test_a_completion_streams_its_choices_too(rig: Rig) -> None:
    *chunks, _ = events((await rig.http.post(TEXTS, json=PROMPT | {"n": 2, "stream": True})).content)
    told = ["", ""]
    for chunk in chunks:
        told[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert told == [TEXT, OTHERS[0]]


async def test_a_stop_string_ends_its_own_choice_and_frees_it_at_once(folder: Path, script: Script) -> None:
    log = folder / "engine.log"
    slow = Script(reply=script.reply, others=script.others, log=str(log), fault="hold", phase="decode")
    async with running(slow, folder=folder) as rig:
        call = rig.call(CHAT, THREE | {"stream": True, "stop": "Sho"})
        await eventually(lambda: log.exists() and "Abort" in log.read_text())
        assert log.read_text().split() == ["Submit"] * 3 + ["Abort"]
        assert not call.task.done()
        call.leave()
        await call.done()


async def test_a_client_that_leaves_frees_all_choices(folder: Path, script: Script) -> None:
    log = folder / "engine.log"
    async with running(Script(fault="hold", phase="prefill", log=str(log)), folder=folder) as rig:
        call = rig.call(CHAT, THREE | {"stream": True})
        await eventually(lambda: log.exists() and log.read_text().split() == ["Submit"] * 3)
        call.leave()
        await call.done()
        await eventually(lambda: log.read_text().split() == ["Submit"] * 3 + ["Abort"] * 3)


async def test_one_choice_that_fails_fails_the_request(folder: Path, script: Script) -> None:
    failing = Script(reply=script.reply, others=script.others, fault="error", phase="prefill")
    async with running(failing, folder=folder) as rig:
        response = await rig.http.post(CHAT, json=THREE)
    assert (response.status_code, response.json()["error"]["code"]) == (500, "engine_failed")


async def test_several_choices_resume_each_at_its_place(rig: Rig, script: Script) -> None:
    whole = (await rig.http.post(CHAT, json=THREE | STREAM, headers=rig.gateway_headers)).content
    second = [*script.others[0], EOS]
    so_far: list[Any] = [{"ids": script.reply[:4]}, {"ids": second, "ended": True}, {"ids": []}]
    content, headers = resuming(THREE | STREAM, *so_far)
    rest = (await rig.http.post(CHAT, content=content, headers={**rig.gateway_headers, **headers})).content
    *chunks, usage, _ = events(rest)
    told = texts(chunks)
    assert TEXT.endswith(told[0])
    assert told[1:] == ["", OTHERS[1]]
    assert usage["usage"] == events(whole)[-2]["usage"]
    assert {line.split(b" ")[2] for line in rest.split(b"\n") if line.startswith(b": c ")} == {b"0", b"2"}
    assert b": p " not in rest


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"n": 0}, "n"),
        (CHAT, {"n": 33}, "n"),
        (CHAT, {"best_of": 2}, "best_of"),
        (CHAT, {"best_of": 4, "stream": True}, "best_of"),
        (TEXTS, {"best_of": 33}, "best_of"),
        (TEXTS, {"n": 3, "best_of": 2}, "best_of"),
        (TEXTS, {"best_of": 2, "stream": True}, "best_of"),
    ],
)
async def test_wrong_counts_of_choices_are_refused(rig: Rig, path: str, fields: Any, param: str) -> None:
    body = (THREE if path == CHAT else PROMPT) | fields
    response = await rig.http.post(path, json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_the_best_of_a_chat_are_told_without_their_logprobs(folder: Path, script: Script) -> None:
    async with running(Script(reply=script.reply, others=script.others, logprobs=True), folder=folder) as rig:
        answer = (await rig.http.post(CHAT, json=THREE | {"n": 1, "best_of": 3})).json()
    assert [(choice["index"], choice["logprobs"]) for choice in answer["choices"]] == [(0, None)]
    assert answer["usage"]["completion_tokens"] == length(script)


async def test_best_of_counts_all_candidates_and_tells_n(folder: Path, script: Script) -> None:
    async with running(Script(reply=script.reply, others=script.others, logprobs=True), folder=folder) as rig:
        answer = (await rig.http.post(TEXTS, json=PROMPT | {"n": 2, "best_of": 3})).json()
    assert [(choice["index"], choice["logprobs"]) for choice in answer["choices"]] == [(0, None), (1, None)]
    assert answer["usage"]["completion_tokens"] == length(script)


def test_the_best_have_the_highest_mean_logprob() -> None:
    def candidate(*values: float) -> list[Piece]:
        return [Piece("x", at, [1], "", [(value, [])]) for at, value in enumerate(values)]

    long, short, sure, empty = candidate(-1, -1, -1), candidate(-2), candidate(-0.5), [Piece("", 0, [2], "stop", [])]
    assert best([long, short, sure, empty], 2) == [sure, long]
    assert best([empty, short], 1) == [short]
    assert best([short, candidate(-2.0, -2.0)], 1) == [short]
