"""Streams: the shape of every event, what trusted callers see besides, and clients that leave or do not read."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.conftest import TEXT
from tests.worker.harness import Rig, events, eventually, running, text_of
from tests.worker.scripted_engine import EOS, Script

from paceline_core.registry import Outcome
from paceline_workers.server.text.tokenizer import Tokenizer

CHAT = "/v1/chat/completions"
TEXTS = "/v1/completions"
HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}], "stream": True}
PROMPT: dict[str, Any] = {"model": "chat", "prompt": "hello", "max_tokens": 100, "stream": True}
USAGE = {"stream_options": {"include_usage": True}}


@pytest.fixture
async def rig(folder: Path, reply: list[int]) -> AsyncIterator[Rig]:
    async with running(Script(reply=reply, cached=4, pause_s=0.001), folder=folder) as rig:
        yield rig


def noted(body: bytes) -> list[int]:
    """The output tokens that position comments bring, checked to have no gap."""
    ids: list[int] = []
    for line in body.split(b"\n"):
        if line.startswith(b": p "):
            position, tokens, *_ = line.removeprefix(b": p ").split(b" ")
            assert int(position) == len(ids)
            ids += map(int, tokens.split(b","))
    return ids


def outcomes(rig: Rig) -> str:
    return rig.worker.parts.measures.exposition(rig.worker.parts.engine)[0].decode()


def counted(rig: Rig, outcome: Outcome) -> bool:
    return f'paceline_worker_requests_total{{outcome="{outcome}",' in outcomes(rig)


async def test_a_chat_stream_has_role_text_reason_and_done(rig: Rig) -> None:
    response = await rig.http.post(CHAT, json=HELLO)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    first, *middle, last, done = events(response.content)
    assert first["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ]
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in middle) == TEXT
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in middle)
    assert last["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]
    assert done == "[DONE]"
    chunks = [first, *middle, last]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert all("usage" not in chunk for chunk in chunks)


async def test_a_completion_stream_has_text_reason_and_done(rig: Rig) -> None:
    *texts, last, done = events((await rig.http.post(TEXTS, json=PROMPT)).content)
    assert "".join(chunk["choices"][0]["text"] for chunk in texts) == TEXT
    assert last["choices"] == [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}]
    assert done == "[DONE]"


async def test_usage_comes_last_when_asked_for(rig: Rig, reply: list[int]) -> None:
    *chunks, usage, _ = events((await rig.http.post(CHAT, json=HELLO | USAGE)).content)
    assert all(chunk["usage"] is None for chunk in chunks)
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == len(reply) + 1
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}


async def test_usage_grows_with_every_chunk_when_asked_for(rig: Rig, reply: list[int]) -> None:
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    *chunks, _ = events((await rig.http.post(CHAT, json=HELLO | options)).content)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == len(reply) + 1


async def test_a_stream_is_cut_at_max_tokens(rig: Rig) -> None:
    body = (await rig.http.post(CHAT, json=HELLO | {"max_completion_tokens": 2})).content
    assert events(body)[-2]["choices"][0]["finish_reason"] == "length"
    assert TEXT.startswith(text_of(body))


async def test_a_stop_string_over_chunks_is_never_shown(rig: Rig) -> None:
    body = (await rig.http.post(CHAT, json=HELLO | {"stop": ": naïve"})).content
    assert text_of(body) == TEXT[: TEXT.index(": naïve")]
    assert events(body)[-2]["choices"][0]["finish_reason"] == "stop"


async def test_a_stop_string_frees_the_engine(folder: Path, reply: list[int]) -> None:
    log = folder / "engine.log"
    async with running(Script(reply=reply * 100, log=str(log)), folder=folder) as rig:
        await rig.http.post(CHAT, json=HELLO | {"stop": "TTFT"})
        await eventually(lambda: log.read_text().split() == ["Submit", "Abort"])


async def test_logprobs_come_with_their_text(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply, logprobs=True), folder=folder) as rig:
        body = (await rig.http.post(CHAT, json=HELLO | {"logprobs": True})).content
    chunks = [event for event in events(body) if isinstance(event, dict)]
    entries = [entry for chunk in chunks for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert bytes(byte for entry in entries for byte in entry["bytes"]) == TEXT.encode()


async def test_a_trusted_token_can_resume_from_every_event(rig: Rig, reply: list[int], tokenizer: Tokenizer) -> None:
    call = rig.call(CHAT, HELLO, rig.gateway_headers)
    assert await call.status() == 200
    while b"[DONE]" not in call.read:
        await call.write()
        given = text_of(call.read)
        assert tokenizer.decode(noted(call.read)).startswith(given)
    await call.done()
    assert noted(call.read) == [*reply, EOS]


async def test_a_position_comment_stands_right_before_its_event(rig: Rig) -> None:
    body = (await rig.http.post(CHAT, json=HELLO, headers=rig.gateway_headers)).content
    lines = body.split(b"\n")
    comments = [index for index, line in enumerate(lines) if line.startswith(b": p ")]
    assert comments
    assert all(lines[index + 1].startswith(b"data: ") for index in comments)


async def test_a_position_comment_counts_its_events_and_marks_the_end(rig: Rig) -> None:
    body = (await rig.http.post(CHAT, json=HELLO, headers=rig.gateway_headers)).content
    _, *pieces = body.partition(b": usage")[0].split(b": p ")
    told = [piece.split(b"\n")[0].split(b" ")[2:] for piece in pieces]
    counts = [b"%d" % piece.count(b"\ndata: ") for piece in pieces]
    assert told[0] == [b"2"]  # role and text
    assert set(map(tuple, told[1:-1])) <= {()}
    assert [fields[0] if fields else b"1" for fields in told] == counts
    assert told[-1][1:] == [b"end"]


async def test_the_last_comment_of_a_trusted_stream_holds_the_phases(rig: Rig) -> None:
    body = (await rig.http.post(CHAT, json=HELLO, headers=rig.gateway_headers)).content
    (line,) = [line for line in body.split(b"\n") if line.startswith(b": phases ")]
    spent = json.loads(line.removeprefix(b": phases "))
    assert list(spent) == ["tokenize", "queue", "batch_wait", "prefill", "decode", "post"]
    assert (spent["queue"], spent["prefill"], spent["decode"]) == (0.001, 0.002, 0.003)
    assert body.endswith(line + b"\ndata: [DONE]\n\n")


async def test_a_trusted_stream_tells_its_usage_unasked(rig: Rig, reply: list[int]) -> None:
    body = (await rig.http.post(CHAT, json=HELLO, headers=rig.gateway_headers)).content
    (line,) = [line for line in body.split(b"\n") if line.startswith(b": usage ")]
    usage = json.loads(line.removeprefix(b": usage "))
    assert usage["completion_tokens"] == len(reply) + 1
    assert usage["prompt_tokens_details"] == {"cached_tokens": 4}
    assert all("usage" not in event for event in events(body))


async def test_the_first_line_of_a_trusted_stream_is_its_prompt(rig: Rig) -> None:
    body = (await rig.http.post(CHAT, json=HELLO, headers=rig.gateway_headers)).content
    first, *rest = body.split(b"\n")
    (usage,) = [line for line in rest if line.startswith(b": usage ")]
    assert first == b": prompt %d 4" % json.loads(usage.removeprefix(b": usage "))["prompt_tokens"]
    assert not [line for line in rest if line.startswith(b": prompt")]


async def test_the_prompt_of_several_is_that_of_all(rig: Rig) -> None:
    asked = PROMPT | {"prompt": ["hello", "hello there"], "n": 2}
    body = (await rig.http.post(TEXTS, json=asked, headers=rig.gateway_headers)).content
    (usage,) = [line for line in body.split(b"\n") if line.startswith(b": usage ")]
    assert body.split(b" ")[2] == b"%d" % json.loads(usage.removeprefix(b": usage "))["prompt_tokens"]


async def test_anybody_else_sees_no_comment(rig: Rig) -> None:
    for headers in ({}, {"x-paceline-internal-token": "forged.token"}):
        body = (await rig.http.post(CHAT, json=HELLO, headers=headers)).content
        assert b"\n:" not in b"\n" + body


async def test_the_role_comes_in_one_write_with_the_first_text(rig: Rig) -> None:
    call = rig.call(CHAT, HELLO)
    await call.status()
    role, text, *_ = events(await call.write())
    assert role["choices"][0]["delta"]["role"] == "assistant"
    assert text["choices"][0]["delta"]["content"]
    await call.done()


async def test_what_comes_while_a_client_does_not_read_is_one_event(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply), folder=folder) as rig:
        call = rig.call(CHAT, HELLO, rig.gateway_headers)
        await call.status()
        call.stall()
        await eventually(lambda: counted_steps(rig) >= len(reply))
        call._reads.set()
        body = await call.done()
    assert text_of(body) == TEXT
    assert len(events(body)) < len(reply)


def counted_steps(rig: Rig) -> float:
    lines = [line for line in outcomes(rig).splitlines() if line.startswith("paceline_scheduler_steps_total{")]
    return float(lines[0].split()[-1]) if lines else 0.0


async def test_a_client_that_leaves_mid_stream_frees_the_engine(folder: Path, reply: list[int]) -> None:
    log = folder / "engine.log"
    async with running(Script(reply=reply, fault="hold", phase="decode", log=str(log)), folder=folder) as rig:
        call = rig.call(CHAT, HELLO)
        await call.status()
        await call.write()
        call.leave()
        await call.done()
        await eventually(lambda: log.read_text().split() == ["Submit", "Abort"])
        assert counted(rig, Outcome.CANCELLED)
        assert rig.worker.gate.open == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_before_the_first_token_frees_the_engine(folder: Path, stream: bool) -> None:
    log = folder / "engine.log"
    async with running(Script(fault="hold", phase="prefill", log=str(log)), folder=folder) as rig:
        call = rig.call(CHAT, HELLO | {"stream": stream})
        await eventually(log.exists)
        call.leave()
        await call.done()
        await eventually(lambda: log.read_text().split() == ["Submit", "Abort"])
        assert counted(rig, Outcome.CANCELLED)


async def test_a_client_that_reads_nothing_is_given_up(folder: Path, reply: list[int]) -> None:
    log = folder / "engine.log"
    script = Script(reply=reply * 50, fault="hold", phase="decode", log=str(log))
    async with running(script, folder=folder, write_limit_s=0.05) as rig:
        call = rig.call(CHAT, HELLO)
        await call.status()
        call.stall()
        await call.done()
        await eventually(lambda: log.read_text().split() == ["Submit", "Abort"])
        assert counted(rig, Outcome.CANCELLED)


async def test_a_client_too_far_behind_frees_the_engine_while_its_write_still_waits(
    folder: Path, reply: list[int]
) -> None:
    log = folder / "engine.log"
    script = Script(reply=reply, times=4000, per_frame=512, context=1 << 20, log=str(log))
    async with running(script, folder=folder) as rig:
        call = rig.call(CHAT, HELLO)
        call.stall()
        await eventually(lambda: log.exists() and log.read_text().split() == ["Submit", "Abort"])
        assert not call.task.done()
        call._reads.set()
        await call.done()
        await eventually(lambda: log.read_text().split() == ["Submit", "Abort"])


async def test_many_streams_do_not_mix(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply), folder=folder) as rig:
        calls = [rig.call(CHAT, HELLO | {"max_tokens": size}) for size in range(1, 20)]
        bodies = [await call.done() for call in calls]
    sizes = [len(text_of(body)) for body in bodies]
    assert sizes == sorted(sizes)
    assert all(TEXT.startswith(text_of(body).rstrip("\ufffd")) for body in bodies)
