"""From the body's fields to what the engine is told of sampling."""

import json
from typing import Any

import pytest
from msgspec import structs

from paceline_core.clock import SystemClock
from paceline_core.errors import Code, RequestError
from paceline_workers.messages import Sampling, Started, Submit
from paceline_workers.server.http.caller import Caller
from paceline_workers.server.openai.completion_job import completion_job
from paceline_workers.server.openai.jobs import JobInput
from paceline_workers.server.openai.requests import ALLOWED_LIMIT
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.text.tokenizer import Tokenizer

STARTED = Started(8, 16, 1, 100, 8, [0], False, {})


async def submit(
    tokenizer: Tokenizer, caller: Caller | None = None, started: Started = STARTED, **fields: Any
) -> Submit:
    model = ServedModel(("m",), tokenizer, None, SystemClock(), lambda: 99)
    body = json.dumps({"model": "m", "prompt": [1, 2]} | fields).encode()
    job = await completion_job(model, JobInput(body, caller or Caller("r"), started))
    return job.choices[0].submit


async def sampling(*given: Any, **fields: Any) -> Sampling:
    return (await submit(*given, **fields)).sampling


async def test_a_plain_request_changes_nothing(tokenizer: Tokenizer) -> None:
    assert await sampling(tokenizer) == Sampling(seed=99)


async def test_every_field_reaches_the_engine(tokenizer: Tokenizer) -> None:
    told = await sampling(
        tokenizer, temperature=0.5, top_p=0.9, top_k=5, min_p=0.1, seed=4, logprobs=2, repetition_penalty=1.1,
        presence_penalty=0.2, frequency_penalty=0.3, logit_bias={"7": -1.5}, allowed_token_ids=[3, 2, 3],
    )  # fmt: skip
    assert told == Sampling(
        temperature=0.5, top_p=0.9, top_k=5, min_p=0.1, seed=4, logprobs=2, repetition=1.1, presence=0.2,
        frequency=0.3, bias={7: -1.5}, allowed=[2, 3],
    )  # fmt: skip


async def test_the_bodys_seed_comes_before_the_gateways_and_that_before_a_drawn_one(tokenizer: Tokenizer) -> None:
    gateway = Caller("r", trusted=True, seed=0)
    assert (await sampling(tokenizer, gateway, seed=7)).seed == 7
    assert (await sampling(tokenizer, gateway)).seed == 0
    assert (await sampling(tokenizer)).seed == 99


@pytest.mark.parametrize(("limit", "told"), [(9, 9), (0, 16), (300, 16)])
async def test_the_gateways_limit_is_for_who_names_none(tokenizer: Tokenizer, limit: int, told: int) -> None:
    """A completion that names none gets OpenAI's 16."""
    gateway = Caller("r", trusted=True, max_tokens=limit)
    assert (await submit(tokenizer, gateway)).max_tokens == told
    assert (await submit(tokenizer, gateway, max_tokens=20)).max_tokens == 20


async def test_a_bias_on_an_id_that_the_model_has_not_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="not in 0 to") as caught:
        await sampling(tokenizer, logit_bias={str(tokenizer.size): 1})
    assert (caught.value.code, caught.value.param) == (Code.INVALID_REQUEST, "logit_bias")


@pytest.mark.parametrize("beyond", [False, True])
async def test_a_stop_id_that_the_model_has_not_is_refused(tokenizer: Tokenizer, beyond: bool) -> None:
    with pytest.raises(RequestError, match="not in 0 to") as caught:
        await sampling(tokenizer, stop_token_ids=[1, tokenizer.size if beyond else -1])
    assert (caught.value.code, caught.value.param) == (Code.INVALID_REQUEST, "stop_token_ids")


async def test_the_best_of_several_need_logprobs_that_nobody_asked_for(tokenizer: Tokenizer) -> None:
    assert (await sampling(tokenizer, best_of=2)).logprobs == 0
    assert (await sampling(tokenizer, best_of=2, logprobs=3)).logprobs == 3


async def test_what_a_request_leaves_out_is_as_the_model_advises(tokenizer: Tokenizer) -> None:
    advised = structs.replace(STARTED, defaults={"temperature": 0.6, "top_k": 20.0, "repetition_penalty": 1.05})
    assert await sampling(tokenizer, started=advised) == Sampling(temperature=0.6, top_k=20, repetition=1.05, seed=99)
    own = await sampling(tokenizer, started=advised, temperature=1, top_k=-1, repetition_penalty=None)
    assert own == Sampling(temperature=1.0, top_k=0, repetition=1.05, seed=99)


async def test_a_worker_that_follows_no_grammar_says_so(tokenizer: Tokenizer) -> None:
    without = structs.replace(STARTED, grammars=False)
    with pytest.raises(RequestError, match="cannot follow a grammar") as caught:
        await sampling(tokenizer, started=without, guided_regex="a")
    assert (caught.value.code, caught.value.param) == (Code.INVALID_REQUEST, "guided_regex")
    assert (await sampling(tokenizer, started=without)).grammar == ""


@pytest.mark.parametrize("word", ["hello", "the", "a", "  the", "A promise"])
async def test_bad_words_are_told_as_tokens_at_the_begin_of_a_text_and_behind_a_space(
    tokenizer: Tokenizer, word: str
) -> None:
    """Also where the two have different numbers of tokens, which vLLM leaves out."""
    forms = [tokenizer.encode_now(text, special=False) for text in (word.lstrip(), " " + word.lstrip())]
    assert (await sampling(tokenizer, bad_words=[word])).bad_words == forms


async def test_a_bad_word_whose_tokens_a_space_only_precedes_is_told_once(byte_fallback: Tokenizer) -> None:
    (once,) = (await sampling(byte_fallback, bad_words=["cat"])).bad_words
    assert byte_fallback.encode_now(" cat", special=False)[-len(once) :] == once


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("bad_words", [""], "none of them empty"),
        ("bad_words", "the", "must be a list"),
        ("bad_words", [" "], "has no tokens"),
        ("bad_words", ["a"] * 129, "at most 128"),
        ("bad_words", ["a" * 257], "256 characters"),
        ("allowed_token_ids", [], "at least one"),
        ("allowed_token_ids", [-1], "not in 0 to"),
        ("allowed_token_ids", [1 << 40], "not in 0 to"),
        ("allowed_token_ids", [1.0], "token ids"),
    ],
)
async def test_lists_that_make_no_sense_are_refused_by_name(
    tokenizer: Tokenizer, field: str, value: Any, words: str
) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        await sampling(tokenizer, **{field: value})
    assert (caught.value.code, caught.value.param) == (Code.INVALID_REQUEST, field)


@pytest.mark.parametrize("field", ["allowed_token_ids", "bad_words"])
async def test_a_beam_search_scores_all_tokens(tokenizer: Tokenizer, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        await sampling(tokenizer, use_beam_search=True, n=2, **{field: ["the"] if field == "bad_words" else [1]})
    assert caught.value.param == field


async def test_allowed_tokens_are_bounded_over_all_answers(tokenizer: Tokenizer) -> None:
    ids = list(range(ALLOWED_LIMIT // 16))
    with pytest.raises(RequestError, match="not in 0 to"):
        await sampling(tokenizer, allowed_token_ids=ids, n=16)
    with pytest.raises(RequestError, match=f"at most {ALLOWED_LIMIT}") as caught:
        await sampling(tokenizer, allowed_token_ids=ids, n=8, prompt=[[1]] * 3)
    assert caught.value.param == "allowed_token_ids"
