"""Fields of vLLM's clients through OpenAI's own client, on the real engine with the demo model."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from tests.worker.processes import LIMIT_S, worker_process

from paceline_workers.server.text.tokenizer import Tokenizer

pytestmark = pytest.mark.real

QUESTION: Any = [{"role": "user", "content": "What is TTFT?"}]
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    with worker_process(tmp_path_factory.mktemp("demo"), watchdog_s=LIMIT_S, engine={"threads": 1}) as worker:
        worker.ready()
        with OpenAI(base_url=f"{worker.url}/v1", api_key="none", timeout=LIMIT_S, max_retries=0) as client:
            yield client


def chat(client: OpenAI, messages: Any = QUESTION, **fields: Any) -> Any:
    plain: Any = {"model": "chat", "messages": messages, "max_tokens": 12, "temperature": 0}
    own = {name: fields.pop(name) for name in ("logprobs", "stop", "max_tokens") if name in fields}
    return client.chat.completions.create(**plain | own, extra_body=fields)


def complete(client: OpenAI, prompt: Any, **fields: Any) -> Any:
    plain: Any = {"model": "chat", "prompt": prompt, "max_tokens": 8, "temperature": 0}
    own = {name: fields.pop(name) for name in ("logprobs", "echo", "max_tokens") if name in fields}
    return client.completions.create(**plain | own, extra_body=fields)


def test_a_text_scores_as_it_was_generated(client: OpenAI) -> None:
    """What lm-eval's loglikelihood rests on: prompts as ids, in one request, scored whatever is cached."""
    made = complete(client, "A promise on", logprobs=1, return_token_ids=True).choices[0]
    ids, prompt = made.token_ids, made.prompt_token_ids
    assert len(ids) == 8
    for max_tokens in (0, 1):
        answer = complete(client, [prompt + ids, prompt + ids], echo=True, logprobs=1, max_tokens=max_tokens)
        for choice in answer.choices:
            told = choice.logprobs
            values, tops = told.token_logprobs[: len(prompt) + 8], told.top_logprobs[: len(prompt) + 8]
            assert values[0] is None
            assert values[len(prompt) :] == pytest.approx(made.logprobs.token_logprobs, abs=TOLERANCE)
            for value, top in zip(values[len(prompt) :], tops[len(prompt) :], strict=True):
                assert value == pytest.approx(max(top.values())), "greedy"
            assert len(told.tokens) == len(prompt) + 8 + max_tokens
        assert answer.usage.completion_tokens == 2 * max_tokens


def test_prompt_logprobs_of_a_chat_name_the_prompts_tokens(client: OpenAI) -> None:
    answer = chat(client, prompt_logprobs=2, return_token_ids=True)
    ids, told = answer.prompt_token_ids, answer.prompt_logprobs
    assert told[0] is None
    assert [next(iter(entry)) for entry in told[1:]] == [str(token) for token in ids[1:]]
    assert all(2 <= len(entry) <= 3 for entry in told[1:])
    for token, entry in zip(ids[1:], told[1:], strict=True):
        likelier = sum(other["logprob"] > entry[str(token)]["logprob"] for other in entry.values())
        assert min(entry[str(token)]["rank"], 3) == likelier + 1


def test_lists_of_tokens_are_kept_to(client: OpenAI, tokenizer: Tokenizer) -> None:
    plain = chat(client, return_token_ids=True).choices[0]
    allowed = sorted(set(plain.token_ids[:3]))
    kept = chat(client, allowed_token_ids=allowed, return_token_ids=True).choices[0]
    assert set(kept.token_ids) <= set(allowed)
    assert kept.finish_reason == "length"
    word = plain.message.content.split()[1]
    assert word in plain.message.content
    assert word not in chat(client, bad_words=[word]).choices[0].message.content


def test_a_message_is_continued_where_it_ends(client: OpenAI) -> None:
    whole = chat(client, max_tokens=20).choices[0].message.content
    half = [*QUESTION, {"role": "assistant", "content": whole[: len(whole) // 2]}]
    fields = {"continue_final_message": True, "add_generation_prompt": False, "return_prompt_text": True}
    rest = chat(client, half, **fields)
    assert rest.prompt_text.endswith(half[-1]["content"])
    echoed = chat(client, half, **fields, echo=True)
    assert echoed.choices[0].message.content == half[-1]["content"] + rest.choices[0].message.content


def test_the_end_of_the_text_is_shown_as_asked(client: OpenAI) -> None:
    whole = chat(client, max_tokens=200)
    assert whole.choices[0].finish_reason == "stop"
    shown = chat(client, max_tokens=200, skip_special_tokens=False, include_stop_str_in_output=True)
    assert shown.choices[0].message.content == whole.choices[0].message.content + "<|end|>"
    assert shown.system_fingerprint == whole.system_fingerprint


def test_a_prompt_is_cut_to_its_last_tokens(client: OpenAI, tokenizer: Tokenizer) -> None:
    text = "one two three four five six"
    cut = complete(client, text, truncate_prompt_tokens=4, return_token_ids=True)
    assert cut.choices[0].prompt_token_ids == tokenizer.encode_now(text, special=False)[-4:]
    assert cut.usage.prompt_tokens == 4


def test_a_salt_parts_what_is_cached(client: OpenAI) -> None:
    long = [{"role": "user", "content": "What is TTFT? " * 40}]

    def cached(**fields: Any) -> int:
        return int(chat(client, long, **fields).usage.prompt_tokens_details.cached_tokens)

    assert [cached(), cached() > 0, cached(cache_salt="s"), cached(cache_salt="s") > 0] == [0, True, 0, True]
    assert cached(prompt_logprobs=0) == 0


def test_what_leaves_nothing_to_say_is_the_clients_error(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="leave no token"):
        chat(client, allowed_token_ids=[5], logit_bias={}, bad_words=["%"], response_format={"type": "json_object"})
    with pytest.raises(BadRequestError, match="trust_request_chat_template"):
        chat(client, chat_template="x")
