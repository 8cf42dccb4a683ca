"""Fields that change how an answer is told: what it ends with, special tokens, ids beside the text, the fingerprint."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.conftest import TEXT
from tests.worker.harness import Rig, events, resuming, running, settings
from tests.worker.scripted_engine import EOS, Script

from paceline_core.wire import VOCABULARY
from paceline_workers.server.process import fingerprint
from paceline_workers.server.text.output import TextOutput
from paceline_workers.server.text.tokenizer import Tokenizer

CHAT, TEXTS = "/v1/chat/completions", "/v1/completions"
HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
PROMPT: dict[str, Any] = {"model": "chat", "prompt": "hello"}
MARK = "<|assistant|>"


@pytest.fixture
async def rig(folder: Path, reply: list[int]) -> AsyncIterator[Rig]:
    async with running(Script(reply=reply, per_frame=3, logprobs=True), folder=folder) as rig:
        yield rig


async def answered(rig: Rig, path: str, **fields: Any) -> Any:
    response = await rig.http.post(path, json=(HELLO if path == CHAT else PROMPT) | fields)
    assert response.status_code == 200, response.text
    return response.json()


async def streamed(rig: Rig, path: str, **fields: Any) -> list[Any]:
    body = (HELLO if path == CHAT else PROMPT) | {"stream": True} | fields
    return [event for event in events((await rig.http.post(path, json=body)).content) if event != "[DONE]"]


async def test_include_stop_str_in_output_ends_the_text_with_it(rig: Rig) -> None:
    for stop, wanted in (("TTFT", "A promise on "), ("naïve, 漢", "A promise on TTFT: ")):
        (without,) = (await answered(rig, TEXTS, stop=stop, max_tokens=99))["choices"]
        (within,) = (await answered(rig, TEXTS, stop=stop, max_tokens=99, include_stop_str_in_output=True))["choices"]
        assert (without["text"], within["text"]) == (wanted, wanted + stop)
        assert without["finish_reason"] == within["finish_reason"] == "stop"
        chunks = await streamed(rig, TEXTS, stop=stop, max_tokens=99, include_stop_str_in_output=True)
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == wanted + stop


async def test_include_stop_str_in_output_shows_the_stop_token_too(rig: Rig, tokenizer: Tokenizer) -> None:
    plain = {"skip_special_tokens": False, "max_tokens": 99}
    (without,) = (await answered(rig, TEXTS, **plain))["choices"]
    (within,) = (await answered(rig, TEXTS, **plain, include_stop_str_in_output=True))["choices"]
    assert (without["text"], within["text"]) == (TEXT, TEXT + tokenizer.token_text(EOS))


async def test_skip_special_tokens_false_shows_them_by_name(folder: Path, tokenizer: Tokenizer) -> None:
    said = tokenizer.encode_now(f"a{MARK}b", special=False)
    async with running(Script(reply=said), folder=folder) as rig:
        for path in (CHAT, TEXTS):
            shown = [(await answered(rig, path, skip_special_tokens=skip))["choices"][0] for skip in (True, False)]
            texts = [choice["text"] if path == TEXTS else choice["message"]["content"] for choice in shown]
            assert texts == ["ab", f"a{MARK}b"]


@pytest.mark.parametrize("path", [CHAT, TEXTS])
async def test_return_token_ids_tells_those_of_answer_and_prompt(
    rig: Rig, reply: list[int], tokenizer: Tokenizer, path: str
) -> None:
    whole = await answered(rig, path, return_token_ids=True, max_tokens=99)
    (choice,) = whole["choices"]
    assert choice["token_ids"] == [*reply, EOS]
    told = whole if path == CHAT else choice
    text = "<|user|>hello<|end|><|assistant|>" if path == CHAT else "hello"
    assert told["prompt_token_ids"] == tokenizer.encode_now(text, special=False)
    chunks = await streamed(rig, path, return_token_ids=True, max_tokens=99)
    ids = [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]]
    assert ids == [*reply, EOS]
    places = [chunk if path == CHAT else chunk["choices"][0] for chunk in chunks]
    assert ["prompt_token_ids" in place for place in places] == [True] + [False] * (len(places) - 1)
    assert places[0]["prompt_token_ids"] == told["prompt_token_ids"]
    assert "token_ids" not in json.dumps(await answered(rig, path, max_tokens=9))


async def test_a_stream_that_goes_on_elsewhere_tells_each_id_once(
    rig: Rig, reply: list[int], tokenizer: Tokenizer
) -> None:
    body = HELLO | {"stream": True, "return_token_ids": True, "max_tokens": 99}
    sent, headers = resuming(body, {"ids": reply[:4]}, vocabulary=tokenizer.vocabulary)
    response = await rig.http.post(CHAT, content=sent, headers=headers | dict(rig.gateway_headers))
    assert VOCABULARY in response.headers
    chunks = [event for event in events(response.content) if event != "[DONE]"]
    assert [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]] == [*reply[4:], EOS]
    assert not any("prompt_token_ids" in chunk for chunk in chunks)


async def test_return_tokens_as_token_ids_names_tokens_by_number(rig: Rig, reply: list[int]) -> None:
    names = [f"token_id:{token}" for token in reply]
    (choice,) = (await answered(rig, CHAT, logprobs=True, top_logprobs=1, return_tokens_as_token_ids=True))["choices"]
    entries = choice["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == names
    assert [entry["top_logprobs"][0]["token"] for entry in entries] == names
    (choice,) = (await answered(rig, TEXTS, logprobs=1, max_tokens=99, return_tokens_as_token_ids=True))["choices"]
    assert choice["logprobs"]["tokens"] == names


async def test_return_prompt_text_tells_what_the_template_wrote(rig: Rig) -> None:
    text = "<|user|>hello<|end|><|assistant|>"
    assert (await answered(rig, CHAT, return_prompt_text=True))["prompt_text"] == text
    chunks = await streamed(rig, CHAT, return_prompt_text=True)
    assert [chunk.get("prompt_text") for chunk in chunks] == [text] + [None] * (len(chunks) - 1)


async def test_every_answer_and_chunk_tells_the_same_fingerprint(rig: Rig) -> None:
    for path in (CHAT, TEXTS):
        told = {(await answered(rig, path))["system_fingerprint"]}
        told |= {chunk["system_fingerprint"] for chunk in await streamed(rig, path)}
        assert told == {fingerprint(settings())}


def test_the_fingerprint_changes_with_what_the_answer_depends_on() -> None:
    plain = fingerprint(settings())
    assert fingerprint(settings(name="chat-main-1", drain_timeout_s=5.0)) == plain
    others: list[dict[str, Any]] = [{"revision": "other"}, {"model": "file:///m"}, {"engine": {"dtype": "bf16"}}]
    others.append({"engine": {"batch_invariant": True}})
    assert len({plain, *(fingerprint(settings(**other)) for other in others)}) == 5


@pytest.mark.parametrize("stop", ["", "b", "xyz"])
def test_text_that_no_stop_ends_is_the_same_with_it_and_without(stop: str) -> None:
    outputs = [TextOutput(lambda ids: "".join("xyz "[token] for token in ids), stops=[stop or "q"],
    include_stop=include)
               for include in (False, True)]  # fmt: skip
    told = [output.replay([0, 1, 3, 2], "length").text for output in outputs]
    assert told == ["xy z", "xy z"]
