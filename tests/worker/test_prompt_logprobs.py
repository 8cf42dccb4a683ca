"""Scores of prompts as clients see them: echo with logprobs, prompt_logprobs, max_tokens 0; and what is refused."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.harness import Rig, events, resuming, running
from tests.worker.scripted_engine import Script

from paceline_core.clock import SystemClock
from paceline_core.errors import Code, RequestError
from paceline_workers.messages import Started
from paceline_workers.server.http.caller import Caller
from paceline_workers.server.openai.completion_job import completion_job
from paceline_workers.server.openai.jobs import INLINE, GenerationJob, JobInput
from paceline_workers.server.openai.prompt_logprobs import CANDIDATES
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.text.tokenizer import Tokenizer

CHAT, TEXTS = "/v1/chat/completions", "/v1/completions"
HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
TEXT = "hello promise"


@pytest.fixture
async def rig(folder: Path, reply: list[int]) -> AsyncIterator[Rig]:
    async with running(Script(reply=reply[:3], logprobs=True, context=64), folder=folder) as rig:
        yield rig


async def answered(rig: Rig, **fields: Any) -> Any:
    path = CHAT if "messages" in fields else TEXTS
    response = await rig.http.post(path, json={"model": "chat"} | fields)
    assert response.status_code == 200, response.text
    return response.json()


async def test_echo_with_logprobs_tells_those_of_prompt_and_answer_in_a_row(
    rig: Rig, tokenizer: Tokenizer, reply: list[int]
) -> None:
    (choice,) = (await answered(rig, prompt=TEXT, echo=True, logprobs=2))["choices"]
    prompt = tokenizer.encode_now(TEXT, special=False)
    told, names = choice["logprobs"], [tokenizer.token_bytes(token).decode() for token in (*prompt, *reply[:3])]
    assert choice["text"] == "".join(names)
    assert told["tokens"] == names
    assert told["text_offset"] == [len("".join(names[:place])) for place in range(len(names))]
    assert told["token_logprobs"] == [None, *(-float(place) for place in range(1, len(prompt))), -0.5, -0.5, -0.5]
    one, two = (tokenizer.token_bytes(token).decode(errors="replace") for token in (1, 2))
    assert told["top_logprobs"][:2] == [None, {one: -0.1, two: -0.2, names[1]: -1.0}], "the prompt's own token too"
    (choice,) = (await answered(rig, prompt=TEXT, echo=True, logprobs=0))["choices"]
    told = choice["logprobs"]
    alone = [{name: value} for name, value in zip(told["tokens"][1:], told["token_logprobs"][1:], strict=True)]
    assert told["top_logprobs"] == [None, *alone]


async def test_max_tokens_0_scores_the_prompt_and_generates_nothing(rig: Rig, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_now(TEXT, special=False)
    for prompt in (TEXT, ids):
        answer = await answered(rig, prompt=prompt, max_tokens=0, echo=True, logprobs=1)
        (choice,) = answer["choices"]
        assert (choice["text"], choice["finish_reason"]) == (TEXT, "length")
        assert len(choice["logprobs"]["tokens"]) == len(ids)
        assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (len(ids), 0)
    (choice,) = (await answered(rig, prompt=TEXT, max_tokens=0))["choices"]
    assert (choice["text"], choice["logprobs"], choice["finish_reason"]) == ("", None, "length")


async def test_a_prompt_may_fill_the_context_where_nothing_follows(rig: Rig) -> None:
    full = [5] * 64
    (choice,) = (await answered(rig, prompt=full, max_tokens=0, echo=True, logprobs=0))["choices"]
    assert len(choice["logprobs"]["tokens"]) == 64
    for wrong in ({"prompt": full, "max_tokens": 1}, {"prompt": [*full, 5], "max_tokens": 0}, {"prompt": full}):
        response = await rig.http.post(TEXTS, json={"model": "chat"} | wrong)
        assert response.json()["error"]["code"] == Code.CONTEXT_LENGTH_EXCEEDED


async def test_a_chat_asks_for_a_token_at_least(rig: Rig) -> None:
    response = await rig.http.post(CHAT, json=HELLO | {"max_tokens": 0})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "max_tokens")


async def test_an_echo_is_streamed_with_its_logprobs_first(rig: Rig, tokenizer: Tokenizer) -> None:
    whole = (await answered(rig, prompt=TEXT, echo=True, logprobs=1, n=2))["choices"]
    body = {"model": "chat", "prompt": TEXT, "echo": True, "logprobs": 1, "n": 2, "stream": True}
    chunks = [event for event in events((await rig.http.post(TEXTS, json=body)).content) if event != "[DONE]"]
    for index, choice in enumerate(whole):
        own = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert own[0]["text"] == TEXT
        assert "".join(one["text"] for one in own) == choice["text"]
        told = [one["logprobs"] for one in own if one["logprobs"]]
        for part in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
            assert [entry for one in told for entry in one[part]] == choice["logprobs"][part]


async def test_a_stream_that_goes_on_elsewhere_counts_offsets_behind_the_prompt(
    rig: Rig, tokenizer: Tokenizer, reply: list[int]
) -> None:
    body = {"model": "chat", "prompt": TEXT, "echo": True, "logprobs": 0, "stream": True}
    sent, headers = resuming(body, {"ids": reply[:1]}, vocabulary=tokenizer.vocabulary)
    response = await rig.http.post(TEXTS, content=sent, headers=headers | dict(rig.gateway_headers))
    first = next(event for event in events(response.content) if event["choices"][0]["logprobs"])
    told = first["choices"][0]["logprobs"]
    assert told["text_offset"][0] == len(TEXT) + len(tokenizer.token_bytes(reply[0]).decode())


async def test_prompt_logprobs_stand_beside_a_chats_choices_and_in_those_of_a_completion(
    rig: Rig, tokenizer: Tokenizer
) -> None:
    prompt = tokenizer.encode_now(TEXT, special=False)
    answer = await answered(rig, prompt=TEXT, prompt_logprobs=1, n=2)
    expected = [None]
    for place, token in enumerate(prompt[1:], 1):
        own = {"logprob": -float(place), "rank": place + 1, "decoded_token": name(tokenizer, token)}
        best = {"logprob": -0.1, "rank": 1, "decoded_token": name(tokenizer, 1)}
        expected.append({str(token): own, "1": best})  # type: ignore[arg-type]
    assert [choice["prompt_logprobs"] for choice in answer["choices"]] == [expected, expected]
    assert [choice["logprobs"] for choice in answer["choices"]] == [None, None]
    chat = await answered(rig, **HELLO, prompt_logprobs=0, return_tokens_as_token_ids=True)
    ids = tokenizer.encode_now("<|user|>hello<|end|><|assistant|>", special=False)
    assert [next(iter(entry)) for entry in chat["prompt_logprobs"][1:]] == [str(token) for token in ids[1:]]
    assert chat["prompt_logprobs"][1][str(ids[1])]["decoded_token"] == f"token_id:{ids[1]}"
    assert "prompt_logprobs" not in chat["choices"][0]
    assert "prompt_logprobs" not in json.dumps(await answered(rig, **HELLO))


async def test_both_kinds_in_one_answer_tell_as_many_as_each_was_asked_for(rig: Rig) -> None:
    (choice,) = (await answered(rig, prompt=TEXT, prompt_logprobs=3, echo=True, logprobs=1))["choices"]
    assert len(choice["logprobs"]["top_logprobs"][1]) == 2
    assert len(choice["prompt_logprobs"][1]) == 4


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs", "not streamed"),
        ({"prompt_logprobs": 21}, "prompt_logprobs", "20 or less"),
        ({"prompt_logprobs": -1}, "prompt_logprobs", "0 or more"),
        ({"logprobs": 21}, "logprobs", "20 or less"),
        ({"max_tokens": 0, "use_beam_search": True, "n": 2}, "max_tokens", "1 or more"),
        ({"prompt_logprobs": 1, "use_beam_search": True, "n": 2}, "prompt_logprobs", "use_beam_search"),
        ({"echo": True, "logprobs": 1, "use_beam_search": True, "n": 2}, "echo", "use_beam_search"),
    ],
)
async def test_what_cannot_be_told_is_refused_by_name(rig: Rig, fields: dict[str, Any], param: str, words: str) -> None:
    response = await rig.http.post(TEXTS, json={"model": "chat", "prompt": TEXT} | fields)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param)
    assert words in error["message"]


async def job(tokenizer: Tokenizer, **fields: Any) -> GenerationJob:
    model = ServedModel(("m",), tokenizer, None, SystemClock())
    body = json.dumps({"model": "m", "prompt": [1] * 400} | fields).encode()
    return await completion_job(model, JobInput(body, Caller("r"), Started(8, 16, 1, 10**6, 8, [0], False, {})))


async def test_the_candidates_of_all_prompts_are_bounded_together(tokenizer: Tokenizer) -> None:
    most = CANDIDATES // 21
    await job(tokenizer, prompt=[1] * most, prompt_logprobs=20)
    await job(tokenizer, prompt=[1] * most, prompt_logprobs=20, n=2)
    for prompt in ([1] * (most + 1), [[1] * (most // 4 + 1)] * 4):
        with pytest.raises(RequestError, match=f"at most {CANDIDATES}") as caught:
            await job(tokenizer, prompt=prompt, prompt_logprobs=20)
        assert caught.value.param == "prompt_logprobs"
    with pytest.raises(RequestError, match=f"at most {CANDIDATES}"):
        await job(tokenizer, prompt=[1] * most, echo=True, logprobs=20, stream=True, n=2)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_long_prompts_scores_are_written_beside_the_loop(
    folder: Path, tokenizer: Tokenizer, stream: bool
) -> None:
    asked: dict[str, Any] = {"prompt": [5] * (INLINE + 1), "echo": True, "logprobs": 1, "max_tokens": 3}
    assert (await job(tokenizer, **asked)).long
    for other in ({"logprobs": None}, {"prompt": [5] * INLINE}):
        assert not (await job(tokenizer, **asked | other)).long
    async with running(Script(context=2 * INLINE, logprobs=True, reply=[7, 8]), folder=folder) as rig:
        response = await rig.http.post(TEXTS, json={"model": "chat", "stream": stream} | asked)
        answers = events(response.content)[:-1] if stream else [response.json()]
    told = [answer["choices"][0]["logprobs"] for answer in answers if answer["choices"][0]["logprobs"]]
    assert sum(len(each["tokens"]) for each in told) == INLINE + 3


async def test_a_prompt_is_scored_once_for_all_answers_that_come_whole(tokenizer: Tokenizer) -> None:
    def asked(made: GenerationJob) -> list[tuple[int, bool]]:
        return [(choice.submit.prompt_logprobs, bool(choice.submit.group)) for choice in made.choices]

    assert asked(await job(tokenizer, n=3, prompt_logprobs=2)) == [(2, True), (-1, True), (-1, True)]
    assert asked(await job(tokenizer, n=2, echo=True, logprobs=1, stream=True)) == [(1, False), (1, False)]
    assert asked(await job(tokenizer, n=2)) == [(-1, True), (-1, True)]


def name(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.token_bytes(token).decode(errors="replace")
