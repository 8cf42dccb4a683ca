"""`/tokenize` and `/detokenize` as vLLM's clients use them."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.conftest import TEXT
from tests.worker.harness import LIMIT_S, Rig, eventually, running
from tests.worker.scripted_engine import Script

from paceline_core.clock import SystemClock
from paceline_workers.server.openai.tokenizing import IDS_LIMIT
from paceline_workers.server.text.chat import ChatTemplate
from paceline_workers.server.text.threads import THREADS

HELLO: list[dict[str, str]] = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def rig(folder: Path, reply: list[int]) -> AsyncIterator[Rig]:
    async with running(Script(reply=reply), folder=folder) as rig:
        yield rig


async def posted(rig: Rig, path: str, **body: Any) -> Any:
    response = await rig.http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_prompt_and_its_ids_are_each_others_inverse(rig: Rig, reply: list[int]) -> None:
    told = await posted(rig, "/tokenize", model="chat", prompt=TEXT, add_special_tokens=False)
    assert told == {"count": len(reply), "max_model_len": 2048, "tokens": reply, "token_strs": None}
    assert await posted(rig, "/detokenize", model="chat", tokens=reply) == {"prompt": TEXT}


async def test_a_prompt_counts_what_the_generating_routes_count(rig: Rig) -> None:
    usage = (await posted(rig, "/v1/completions", model="chat", prompt=TEXT))["usage"]
    assert (await posted(rig, "/tokenize", prompt=TEXT))["count"] == usage["prompt_tokens"]
    usage = (await posted(rig, "/v1/chat/completions", model="chat", messages=HELLO))["usage"]
    assert (await posted(rig, "/tokenize", messages=HELLO))["count"] == usage["prompt_tokens"]


@pytest.mark.parametrize("picky", [False, True])
async def test_a_chat_is_counted_or_refused_as_it_is_answered(rig: Rig, picky: bool) -> None:
    if picky:
        template = ChatTemplate(
            "{{ messages[0].content }}{{ documents }}{{ enable_thinking }}", {}, SystemClock().utc, "t"
        )
        object.__setattr__(rig.worker.parts.model, "template", template)
    tools = [{"type": "function", "function": {"name": "f"}}]
    refused = 0
    for fields in (
        {"tools": tools},
        {"tools": tools, "tool_choice": "none"},
        {"tools": tools, "tool_choice": "required"},
        {"tools": tools, "tool_choice": {"type": "function", "function": {"name": "g"}}},
        {"tool_choice": "required"},
        {"documents": [{"title": "a"}]},
        {"documents": "a"},
        {"reasoning_effort": "none"},
        {"reasoning_effort": "much"},
    ):
        chat: dict[str, Any] = {"model": "chat", "messages": HELLO} | fields
        counted = await rig.http.post("/tokenize", json=chat)
        answered = await rig.http.post("/v1/chat/completions", json=chat | {"max_tokens": 1})
        refused += answered.status_code != 200
        if answered.status_code == 200:
            assert counted.json()["count"] == answered.json()["usage"]["prompt_tokens"], fields
        else:
            assert counted.json()["error"] == answered.json()["error"], fields
    assert refused == 6


async def test_messages_may_be_told_without_the_assistants_turn(rig: Rig) -> None:
    asked = (await posted(rig, "/tokenize", messages=HELLO))["tokens"]
    bare = (await posted(rig, "/tokenize", messages=HELLO, add_generation_prompt=False))["tokens"]
    assert asked[: len(bare)] == bare
    assert len(bare) < len(asked)


async def test_tokens_have_names_when_asked_for(rig: Rig) -> None:
    told = await posted(rig, "/tokenize", prompt="a b", add_special_tokens=False, return_token_strs=True)
    assert told["token_strs"] == ["a", "Ġb"]


async def test_special_tokens_are_spelt(rig: Rig) -> None:
    spelt = (await posted(rig, "/detokenize", tokens=[0]))["prompt"]
    assert spelt.startswith("<")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {"model": "other", "prompt": "a"}, "model"),
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": HELLO}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "user"}]}, "messages[0].content"),
        ("/tokenize", {"prompt": "a" * ((1 << 18) + 1)}, "prompt"),
        ("/tokenize", {"messages": [{"role": "user", "content": "a" * (1 << 18)}]}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [10**7]}, "tokens"),
        ("/detokenize", {"tokens": [1] * (IDS_LIMIT + 1)}, "tokens"),
        ("/detokenize", {"tokens": [1] * 1_048_577}, "tokens"),
    ],
)
async def test_what_cannot_be_told_is_refused_by_name(rig: Rig, path: str, body: Any, param: str) -> None:
    response = await rig.http.post(path, json=body)
    assert (response.status_code // 100, response.json()["error"]["param"]) == (4, param)


@pytest.mark.parametrize("context", [2048, IDS_LIMIT + 1])
async def test_as_many_ids_as_the_context_are_spelt_and_many_in_any_case(folder: Path, context: int) -> None:
    most = max(IDS_LIMIT, context)
    async with running(Script(context=context), folder=folder) as rig:
        assert len((await posted(rig, "/detokenize", tokens=[5] * most))["prompt"]) >= most
        beyond = await rig.http.post("/detokenize", json={"tokens": [5] * (most + 1)})
    assert beyond.json()["error"]["message"] == f"`tokens` holds at most {most} ids."


async def test_a_body_over_the_limit_is_refused(folder: Path) -> None:
    async with running(Script(), folder=folder, body_limit=1024) as rig:
        response = await rig.http.post("/tokenize", json={"prompt": "a" * 2000})
    assert response.json()["error"]["code"] == "request_too_large"


async def test_a_text_as_long_as_may_be_is_counted(rig: Rig) -> None:
    told = await posted(rig, "/tokenize", prompt="ab cd ef " * ((1 << 18) // 9), return_token_strs=True)
    assert told["count"] == len(told["tokens"]) == len(told["token_strs"]) > 100_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": "hello " * 1000}),
        ("/v1/completions", {"model": "chat", "prompt": "hello " * 1000}),
        ("/v1/chat/completions", {"model": "chat", "messages": [{"role": "user", "content": "hello " * 1000}]}),
    ],
)
async def test_nobody_waits_for_the_tokenizer_once_their_client_has_left(rig: Rig, path: str, body: Any) -> None:
    threads, release = rig.worker.parts.model.tokenizer._threads, threading.Event()
    busy = [asyncio.create_task(threads.run(lambda: release.wait(LIMIT_S), 1)) for _ in range(THREADS)]
    call = rig.call(path, body)
    await eventually(lambda: threads.waiting == THREADS + 1)
    call.leave()
    await eventually(lambda: (threads.waiting, rig.worker.gate.open) == (THREADS, 0))
    release.set()
    assert all(await asyncio.gather(*busy))
    await asyncio.wait({call.task})


async def test_a_draining_worker_counts_nothing_more(rig: Rig) -> None:
    rig.worker.gate.drain()
    assert (await rig.http.post("/tokenize", json={"prompt": "a"})).status_code == 503
