"""`/v1/embeddings` over HTTP, with the official client, behind an engine whose vectors tell what it was given."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI
from tests.worker.harness import Rig, eventually, listening, openai_client, running
from tests.worker.scripted_engine import Script

from paceline_core.errors import InvalidInput
from paceline_workers import demo
from paceline_workers.messages import Sampling, Submit
from paceline_workers.server.handlers.embed import AT_ONCE, batches, refusal
from paceline_workers.server.text.tokenizer import Tokenizer

PATH = "/v1/embeddings"
SIZE = 5
ASKED: dict[str, Any] = {"model": "chat", "input": "hello there"}
TEXTS = ["hello there", "a promise", "TTFT"]


@pytest.fixture
async def rig(folder: Path) -> AsyncIterator[Rig]:
    async with running(Script(embedding=SIZE), folder=folder) as rig:
        yield rig


@pytest.fixture
async def client(rig: Rig) -> AsyncIterator[AsyncOpenAI]:
    """The official client, which asks for base64 unless it is told otherwise."""
    async with listening(rig) as address, openai_client(address) as client:
        yield client


def expected(ids: list[int]) -> list[float]:
    return [float(number) for number in [len(ids), *ids, *[0] * SIZE][:SIZE]]


async def test_the_official_client_gets_vectors_in_order(client: AsyncOpenAI, tokenizer: Tokenizer) -> None:
    ids = [tokenizer.encode_now(text, special=True) for text in TEXTS]
    answer = await client.embeddings.create(model="chat", input=TEXTS)
    assert [entry.embedding for entry in answer.data] == [expected(own) for own in ids]
    assert [entry.index for entry in answer.data] == [0, 1, 2]
    total = sum(map(len, ids))
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (total, total)
    assert (answer.object, answer.data[0].object, answer.model) == ("list", "embedding", "chat")


@pytest.mark.parametrize("given", ["hello there", ["hello there"], [5, 6, 7], [[5, 6, 7], [8]]])
async def test_every_form_of_input_is_taken(client: AsyncOpenAI, tokenizer: Tokenizer, given: Any) -> None:
    ids = tokenizer.encode_now("hello there", special=True)
    wanted = {"hello there": [ids], "[5": [[5, 6, 7]], "[[5": [[5, 6, 7], [8]], "['": [ids]}
    (own,) = [wanted[key] for key in wanted if str(given).startswith(key)]
    answer = await client.embeddings.create(model="chat", input=given, encoding_format="float")
    assert [entry.embedding for entry in answer.data] == [expected(one) for one in own]


async def test_floats_and_base64_are_the_same_numbers(rig: Rig, client: AsyncOpenAI) -> None:
    plain = await client.embeddings.create(model="chat", input=TEXTS, encoding_format="float")
    packed = await client.embeddings.create(model="chat", input=TEXTS)
    assert plain.data == packed.data
    raw = (await rig.http.post(PATH, json=ASKED | {"encoding_format": "base64"})).json()
    assert isinstance(raw["data"][0]["embedding"], str)


async def test_the_models_own_size_may_be_named(client: AsyncOpenAI) -> None:
    answer = await client.embeddings.create(model="chat", input="hello", dimensions=SIZE)
    assert len(answer.data[0].embedding) == SIZE


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"input": []}, "input", "at least one token"),
        ({"input": ""}, "input", "at least one token"),
        ({"input": ["a", ""]}, "input[1]", "at least one token"),
        ({"input": [["a"]]}, "input", "a text, a list of token ids"),
        ({"input": [1, "a"]}, "input", "a text, a list of token ids"),
        ({"input": {"a": 1}}, "input", "a text, a list of token ids"),
        ({"input": [True]}, "input", "a text, a list of token ids"),
        ({"input": ["a"] * 2049}, "input", "at most 2048"),
        ({"input": [[1], [10**9]]}, "input[1]", "not in 0 to"),
        ({"input": [-1]}, "input", "not in 0 to"),
        ({"input": None}, "input", "is required"),
        ({"encoding_format": "hex"}, "encoding_format", "base64"),
        ({"dimensions": SIZE - 1}, "dimensions", "must be 5"),
        ({"dimensions": 0}, "dimensions", "must be 1 or more"),
        ({"model": "other"}, "model", "does not exist"),
    ],
)
async def test_a_wrong_field_is_named(rig: Rig, fields: dict[str, Any], param: str, words: str) -> None:
    error = (await rig.http.post(PATH, json=ASKED | fields)).json()["error"]
    assert error["param"] == param
    assert words in error["message"]


async def test_an_input_longer_than_the_context_is_named(folder: Path) -> None:
    async with running(Script(embedding=SIZE, context=16), folder=folder) as rig:
        response = await rig.http.post(PATH, json=ASKED | {"input": ["short", "hello " * 100]})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "input[1]")
    assert response.json()["error"]["code"] == "context_length_exceeded"


async def test_an_engine_without_vectors_refuses_in_words(folder: Path) -> None:
    async with running(Script(), folder=folder) as rig:
        error = (await rig.http.post(PATH, json=ASKED)).json()["error"]
    assert (error["code"], error["param"]) == ("invalid_request", "model")
    assert "emulates its model" in error["message"]


async def test_a_long_list_takes_few_places_at_a_time(folder: Path) -> None:
    log = folder / "engine.log"
    script = Script(embedding=SIZE, fault="hold", phase="prefill", log=str(log))
    async with running(script, folder=folder) as rig:
        call = rig.call(PATH, ASKED | {"input": ["hello"] * 3 * AT_ONCE})
        await eventually(lambda: log.exists() and log.read_text().split() == ["Submit"] * AT_ONCE)
        call.leave()
        await call.done()
        await eventually(lambda: log.read_text().split() == ["Submit"] * AT_ONCE + ["Abort"] * AT_ONCE)
        assert rig.worker.gate.open == 0


async def test_a_list_of_long_texts_takes_one_step_of_the_engine_at_a_time(folder: Path) -> None:
    log = folder / "engine.log"
    script = Script(embedding=SIZE, fault="hold", phase="prefill", log=str(log))
    async with running(script, folder=folder, engine={"step_tokens": 256}) as rig:
        call = rig.call(PATH, ASKED | {"input": [[1] * 100] * 10})
        await eventually(lambda: log.exists() and log.read_text().split() == ["Submit"] * 2)
        call.leave()
        await call.done()


@given(st.lists(st.integers(1, 300), min_size=1, max_size=80))
def test_batches_hold_every_text_in_order_and_no_more_than_a_step(lengths: list[int]) -> None:
    submits = [Submit(str(place), [1] * length, 1, Sampling()) for place, length in enumerate(lengths)]
    made = list(batches(submits, 256))
    assert [submit for batch in made for submit in batch] == submits
    for batch in made:
        tokens = sum(len(submit.prompt) for submit in batch)
        assert 0 < len(batch) <= AT_ONCE
        assert tokens <= 256 or len(batch) == 1


async def test_a_list_longer_than_one_turn_comes_back_whole(client: AsyncOpenAI) -> None:
    answer = await client.embeddings.create(model="chat", input=[[place] for place in range(2 * AT_ONCE + 3)])
    assert [entry.embedding[1] for entry in answer.data] == [float(place) for place in range(2 * AT_ONCE + 3)]


async def test_one_input_that_fails_fails_the_request(folder: Path) -> None:
    async with running(Script(embedding=SIZE, fault="error", phase="prefill"), folder=folder) as rig:
        response = await rig.http.post(PATH, json=ASKED)
    assert (response.status_code, response.json()["error"]["code"]) == (500, "engine_failed")


async def test_an_engine_that_dies_is_an_answer(folder: Path) -> None:
    once = str(folder / "struck")
    async with running(Script(embedding=SIZE, fault="crash", phase="prefill", once=once), folder=folder) as rig:
        response = await rig.http.post(PATH, json=ASKED)
    assert (response.status_code, response.json()["error"]["code"]) == (500, "engine_failed")


async def test_a_trusted_caller_is_told_the_phases(rig: Rig) -> None:
    response = await rig.http.post(PATH, json=ASKED, headers=rig.gateway_headers)
    assert "queue;dur=1.000" in response.headers["server-timing"]
    assert "server-timing" not in (await rig.http.post(PATH, json=ASKED)).headers


async def test_the_tokens_of_inputs_are_counted(rig: Rig) -> None:
    await rig.http.post(PATH, json=ASKED | {"input": [[5, 6], [7]]})
    metrics = (await rig.http.get("/metrics")).text.splitlines()
    (counted,) = [line for line in metrics if line.startswith("paceline_worker_tokens_total") and '"input"' in line]
    assert counted.endswith(" 3.0")


async def test_many_requests_do_not_mix(client: AsyncOpenAI) -> None:
    asked = [[[number, place] for place in range(9)] for number in range(12)]
    answers = await asyncio.gather(
        *(client.embeddings.create(model="chat", input=one, encoding_format="float") for one in asked)
    )
    for number, answer in enumerate(answers):
        assert [entry.embedding[1:3] for entry in answer.data] == [[number, place] for place in range(9)]


def pooled(folder: Path, settings: Any, modules: Any = None) -> Path:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    if modules is not None:
        types = [{"type": f"sentence_transformers.models.{module}"} for module in modules]
        (folder / "modules.json").write_text(json.dumps(types))
    return folder


def test_a_folder_that_says_nothing_or_last_token_can_embed(folder: Path) -> None:
    assert refusal(folder) == ""
    last = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}
    assert refusal(pooled(folder, last, ["Transformer", "Pooling", "Normalize"])) == ""


@pytest.mark.parametrize("mode", ["pooling_mode_mean_tokens", "pooling_mode_cls_token", "pooling_mode_new"])
def test_another_pooling_is_refused_by_name(folder: Path, mode: str) -> None:
    assert f"asks for {mode};" in refusal(pooled(folder, {mode: True, "pooling_mode_lasttoken": False}))


def test_a_layer_behind_the_pooling_is_refused_by_name(folder: Path) -> None:
    last = {"pooling_mode_lasttoken": True}
    assert "module Dense" in refusal(pooled(folder, last, ["Transformer", "Pooling", "Dense"]))


@pytest.mark.parametrize("content", ["{", "{}", "[1]"])
def test_a_broken_list_of_modules_is_named(folder: Path, content: str) -> None:
    (folder / "modules.json").write_text(content)
    with pytest.raises(InvalidInput, match=r"modules\.json"):
        refusal(folder)


async def test_a_model_pooled_otherwise_generates_but_does_not_embed(folder: Path, reply: list[int]) -> None:
    model = folder / "model"
    shutil.copytree(demo.FOLDER, model)
    pooled(model, {"pooling_mode_mean_tokens": True})
    async with running(Script(reply=reply, embedding=SIZE), folder=folder, model=f"file://{model}") as rig:
        error = (await rig.http.post(PATH, json=ASKED)).json()["error"]
        assert "pooling_mode_mean_tokens" in error["message"]
        assert (await rig.http.post("/v1/completions", json={"model": "chat", "prompt": "a"})).status_code == 200
