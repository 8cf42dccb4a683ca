"""`use_beam_search`: one search goes to the engine, its best answers come back; what it cannot be combined with."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.conftest import TEXT
from tests.worker.harness import Rig, eventually, running
from tests.worker.scripted_engine import Script

from paceline_core.clock import SystemClock
from paceline_core.errors import RequestError
from paceline_workers.messages import Sampling, Started, Submit
from paceline_workers.server.http.caller import Caller
from paceline_workers.server.openai.completion_job import completion_job
from paceline_workers.server.openai.jobs import JobInput
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.text.tokenizer import Tokenizer

CHAT = "/v1/chat/completions"
TEXTS = "/v1/completions"
STARTED = Started(8, 16, 1, 100, 8, [0], False, {})
SEARCH: dict[str, Any] = {"use_beam_search": True, "max_tokens": 100}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"model": "chat", "messages": [{"role": "user", "content": "hello"}], **SEARCH},
    TEXTS: {"model": "chat", "prompt": "hello", **SEARCH},
}
SECOND = "Another answer."


@pytest.fixture
def script(tokenizer: Tokenizer, reply: list[int]) -> Script:
    return Script(reply=reply, others=[tokenizer.encode_now(SECOND, special=False)], pause_s=0.001, cached=2)


@pytest.fixture
async def rig(script: Script, folder: Path) -> AsyncIterator[Rig]:
    async with running(script, folder=folder) as rig:
        yield rig


def texts(answer: Any) -> list[str]:
    return [choice["text"] if "text" in choice else choice["message"]["content"] for choice in answer["choices"]]


async def submits(tokenizer: Tokenizer, **fields: Any) -> list[Submit]:
    model = ServedModel(("m",), tokenizer, None, SystemClock(), lambda: 99)
    body = {"model": "m", "prompt": [1, 2], "use_beam_search": True} | fields
    job = await completion_job(model, JobInput(json.dumps(body).encode(), Caller("r"), STARTED))
    return [choice.submit for choice in job.choices]


@pytest.mark.parametrize("path", [CHAT, TEXTS])
async def test_the_best_answers_are_told_and_they_alone_are_counted(rig: Rig, script: Script, path: str) -> None:
    answer = (await rig.http.post(path, json=BODIES[path] | {"n": 2, "best_of": 5})).json()
    assert texts(answer) == [TEXT, SECOND]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop", "stop"]
    assert answer["usage"]["completion_tokens"] == len(script.reply) + len(script.others[0]) + 2


@pytest.mark.parametrize("path", [CHAT, TEXTS])
async def test_one_answer_is_the_best_one_cut_at_a_stop(rig: Rig, path: str) -> None:
    word = TEXT.split()[1]
    answer = (await rig.http.post(path, json=BODIES[path] | {"best_of": 4, "stop": word})).json()
    assert texts(answer) == [TEXT.split(word)[0]]


async def test_log_probabilities_are_those_along_the_answer(rig: Rig, script: Script) -> None:
    answer = (await rig.http.post(TEXTS, json=BODIES[TEXTS] | {"logprobs": 0})).json()
    assert answer["choices"][0]["logprobs"]["token_logprobs"] == [-0.5] * len(script.reply)


async def test_a_client_that_leaves_ends_the_one_search(folder: Path) -> None:
    log = folder / "engine.log"
    async with running(Script(fault="hold", phase="prefill", log=str(log)), folder=folder) as rig:
        call = rig.call(CHAT, BODIES[CHAT] | {"n": 3})
        await eventually(lambda: log.exists() and log.read_text().split() == ["Submit"])
        call.leave()
        await call.done()
        await eventually(lambda: "Abort" in log.read_text())


async def test_the_engine_is_sent_one_search_with_an_id_for_each_answer(tokenizer: Tokenizer) -> None:
    first, second = await submits(tokenizer, n=2, best_of=5, length_penalty=0.5, early_stopping="never", logprobs=3)
    assert first.answers == second.answers == [first.id, second.id]
    assert (first.beams, first.length_penalty, first.early_stopping, first.group) == (5, 0.5, "never", "")
    assert first.sampling == Sampling(temperature=0.0, logprobs=3)


async def test_the_width_is_that_of_best_of_or_n(tokenizer: Tokenizer) -> None:
    assert [one.beams for one in await submits(tokenizer, n=3)] == [3, 3, 3]
    (one,) = await submits(tokenizer, best_of=4)
    assert (one.beams, one.answers) == (4, [one.id])


async def test_what_is_drawn_by_means_nothing(tokenizer: Tokenizer) -> None:
    (one,) = await submits(tokenizer, temperature=0.7, top_p=0.5, top_k=4, min_p=0.1, seed=4)
    assert one.sampling == Sampling(temperature=0.0)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream": True}, "stream"),
        ({"n": 9}, "n"),
        ({"best_of": 9}, "best_of"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"length_penalty": 9.0}, "length_penalty"),
        ({"early_stopping": "always"}, "early_stopping"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"repetition_penalty": 1.5}, "repetition_penalty"),
        ({"logit_bias": {"3": 1}}, "logit_bias"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"guided_regex": "a+"}, "guided_regex"),
    ],
)
async def test_what_a_search_cannot_follow_is_refused_by_name(tokenizer: Tokenizer, fields: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        await submits(tokenizer, **fields)
    assert (caught.value.param or "").startswith(param)
