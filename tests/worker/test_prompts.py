"""Several prompts in one completion, and prompts that are told again; by the official client over a real port."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from tests.worker.conftest import TEXT
from tests.worker.harness import Rig, events, listening, openai_client, resuming, running
from tests.worker.scripted_engine import Script

from paceline_workers.server.text.tokenizer import Tokenizer

PATH = "/v1/completions"
PROMPTS = ["hello there", "a promise on TTFT", TEXT]
ASKED: dict[str, Any] = {"model": "chat", "prompt": PROMPTS, "max_tokens": 100}


@pytest.fixture
async def rig(folder: Path) -> AsyncIterator[Rig]:
    async with running(Script(mirror=True, cached=2), folder=folder) as rig:
        yield rig


@pytest.fixture
async def client(rig: Rig) -> AsyncIterator[AsyncOpenAI]:
    async with listening(rig) as address, openai_client(address) as client:
        yield client


async def test_each_prompt_is_answered_in_order(client: AsyncOpenAI, tokenizer: Tokenizer) -> None:
    answer = await client.completions.create(**ASKED)
    assert [(choice.index, choice.text) for choice in answer.choices] == list(enumerate(PROMPTS))
    lengths = [len(tokenizer.encode_now(prompt, special=True)) for prompt in PROMPTS]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sum(lengths)
    assert answer.usage.completion_tokens == sum(lengths) + 3
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 6


async def test_choices_are_numbered_prompt_by_prompt(client: AsyncOpenAI) -> None:
    answer = await client.completions.create(**ASKED, n=2)
    wanted = [prompt for prompt in PROMPTS for _ in range(2)]
    assert [(choice.index, choice.text) for choice in answer.choices] == list(enumerate(wanted))


async def test_streamed_choices_have_the_same_numbers(client: AsyncOpenAI) -> None:
    told = [""] * 6
    async for chunk in await client.completions.create(**ASKED, n=2, stream=True):
        told[chunk.choices[0].index] += chunk.choices[0].text
    assert told == [prompt for prompt in PROMPTS for _ in range(2)]


async def test_lists_of_ids_are_prompts_too(client: AsyncOpenAI, tokenizer: Tokenizer) -> None:
    ids = [tokenizer.encode_now(prompt, special=False) for prompt in PROMPTS]
    answer = await client.completions.create(**(ASKED | {"prompt": ids}))
    assert [choice.text for choice in answer.choices] == PROMPTS


async def test_the_best_of_each_prompt_is_told(folder: Path) -> None:
    async with running(Script(mirror=True, logprobs=True), folder=folder) as rig:
        answer = (await rig.http.post(PATH, json=ASKED | {"best_of": 3, "n": 2})).json()
    wanted = [prompt for prompt in PROMPTS for _ in range(2)]
    assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == list(enumerate(wanted))


async def test_each_prompt_has_a_search_of_its_own(folder: Path, reply: list[int]) -> None:
    searched = ASKED | {"use_beam_search": True, "n": 2, "best_of": 3}
    async with running(Script(reply=reply, others=[reply[:5]]), folder=folder) as rig:
        alone = (await rig.http.post(PATH, json=searched | {"prompt": PROMPTS[0]})).json()
        answer = (await rig.http.post(PATH, json=searched)).json()
    texts = [choice["text"] for choice in alone["choices"]]
    assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == list(enumerate(texts * 3))


@pytest.mark.parametrize("stream", [False, True])
async def test_an_echo_stands_once_before_each_answer(client: AsyncOpenAI, stream: bool) -> None:
    asked: Any = ASKED | {"echo": True, "n": 2, "stream": stream}
    told = [""] * 6
    if stream:
        async for chunk in await client.completions.create(**asked):
            told[chunk.choices[0].index] += chunk.choices[0].text
    else:
        told = [choice.text for choice in (await client.completions.create(**asked)).choices]
    assert told == [prompt + prompt for prompt in PROMPTS for _ in range(2)]


async def test_ids_are_told_again_as_text(client: AsyncOpenAI, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_now("hello there", special=False)
    answer = await client.completions.create(model="chat", prompt=ids, echo=True, max_tokens=100)
    assert answer.choices[0].text == "hello therehello there"


async def test_a_resumed_stream_tells_no_echo_twice(rig: Rig, tokenizer: Tokenizer) -> None:
    ids = [tokenizer.encode_now(prompt, special=True) for prompt in PROMPTS]
    so_far = [{"ids": own[:2]} for own in ids]
    content, headers = resuming(ASKED | {"stream": True, "echo": True}, *so_far)
    told = [""] * 3
    for chunk in events(
        (await rig.http.post(PATH, content=content, headers={**rig.gateway_headers, **headers})).content
    )[:-1]:
        told[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert told == [tokenizer.decode(own[2:]) for own in ids]


@pytest.mark.parametrize(
    ("prompt", "param"), [(["a", ""], "prompt[1]"), ([[1], [10**9]], "prompt[1]"), (["a", "word " * 3000], "prompt[1]")]
)
async def test_the_wrong_one_of_several_is_named(rig: Rig, prompt: Any, param: str) -> None:
    response = await rig.http.post(PATH, json=ASKED | {"prompt": prompt})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_a_suffix_is_refused_by_name(rig: Rig) -> None:
    response = await rig.http.post(PATH, json=ASKED | {"suffix": "the end"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "suffix")
