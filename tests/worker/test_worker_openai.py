"""The official client against real workers: the demo model on the CPU, and an emulated 8B model."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from tests.worker.processes import HTTP, LIMIT_S, WorkerProcess, until, worker_process
from websockets.sync.client import connect

from paceline_workers import demo

pytestmark = pytest.mark.real

QUESTION: Any = [{"role": "user", "content": "What is TTFT?"}]
ANSWER = "TTFT (time to first token) is the time from the arrival of a request to the first token of its answer."


def client_of(worker: WorkerProcess) -> OpenAI:
    return OpenAI(base_url=f"{worker.url}/v1", api_key="none", timeout=LIMIT_S, max_retries=0)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """The demo model on the CPU."""
    folder = tmp_path_factory.mktemp("demo")
    with worker_process(folder, watchdog_s=LIMIT_S, engine={"threads": 1}) as worker:
        worker.ready()
        yield worker


@pytest.fixture(scope="module")
def client(worker: WorkerProcess) -> OpenAI:
    return client_of(worker)


def test_the_model_is_listed(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["chat", "team/chat"]
    assert client.models.retrieve("chat").owned_by == "paceline"


def test_a_chat_answers_the_question(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="chat", messages=QUESTION, temperature=0)
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_streamed_chat_has_the_same_text_and_counts(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="chat", messages=QUESTION, temperature=0)
    stream = client.chat.completions.create(
        model="chat", messages=QUESTION, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == ANSWER
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_a_chat_over_websocket_has_the_same_text(worker: WorkerProcess) -> None:
    body = {"model": "chat", "messages": QUESTION, "temperature": 0, "stream": True}
    told = []
    with connect(f"ws{worker.url.removeprefix('http')}/v1/chat/completions", open_timeout=LIMIT_S) as socket:
        socket.send(json.dumps(body))
        while (message := socket.recv(LIMIT_S)) != "[DONE]":
            told.append(json.loads(message)["choices"][0]["delta"].get("content", ""))
    assert "".join(told) == ANSWER


def test_filters_of_a_manifest_change_what_is_told(folder: Path) -> None:
    filters = [{"name": "words", "config": {"words": "TTFT, arrival", "replacement": "…"}, "failure": "open"}]
    with worker_process(folder, watchdog_s=LIMIT_S, engine={"threads": 1}, filters=filters) as worker:
        worker.ready()
        answer = client_of(worker).chat.completions.create(model="chat", messages=QUESTION, temperature=0)
    assert answer.choices[0].message.content == ANSWER.replace("TTFT", "…").replace("arrival", "…")


def test_a_stop_string_ends_the_text(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="chat", messages=QUESTION, temperature=0, stop=["arrival of a"])
    assert answer.choices[0].message.content == ANSWER[: ANSWER.index("arrival of a")]
    assert answer.choices[0].finish_reason == "stop"


def test_a_completion_takes_the_newer_name_of_its_limit_too(client: OpenAI) -> None:
    how: dict[str, Any] = {"model": "chat", "prompt": "The gateway", "temperature": 0}
    answer = client.completions.create(**how, extra_body={"max_completion_tokens": 20, "ignore_eos": True})
    assert answer.usage
    assert answer.usage.completion_tokens == 20
    with pytest.raises(openai.BadRequestError, match="`max_completion_tokens` differ"):
        client.completions.create(**how, max_tokens=3, extra_body={"max_completion_tokens": 20})


def test_max_completion_tokens_cuts(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="chat", messages=QUESTION, temperature=0, max_completion_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3


def test_ignore_eos_runs_to_max_tokens(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="chat", messages=QUESTION, temperature=0, max_tokens=60, extra_body={"ignore_eos": True}
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 60


def test_a_seed_repeats_a_sampled_answer(client: OpenAI) -> None:
    def ask(seed: int) -> str:
        answer = client.completions.create(model="chat", prompt="The", seed=seed, temperature=2.0, max_tokens=24)
        return answer.choices[0].text

    assert ask(7) == ask(7)
    assert len({ask(seed) for seed in range(4)}) > 1


def test_choices_are_drawn_apart_and_repeat_with_their_seed(client: OpenAI) -> None:
    def ask(stream: bool) -> list[str]:
        asked: Any = {"model": "chat", "prompt": "The", "n": 3, "seed": 5, "temperature": 2.0, "max_tokens": 12}
        if not stream:
            return [choice.text for choice in client.completions.create(**asked).choices]
        told = ["", "", ""]
        for chunk in client.completions.create(**asked, stream=True):
            told[chunk.choices[0].index] += chunk.choices[0].text
        return told

    assert len(set(ask(stream=False))) == 3
    assert ask(stream=True) == ask(stream=False)


def test_the_best_of_several_is_one_of_them(client: OpenAI) -> None:
    asked: Any = {"model": "chat", "prompt": "The", "seed": 5, "temperature": 2.0, "max_tokens": 12}
    all_of_them = client.completions.create(**asked, n=4, logprobs=0)
    means = {
        sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs): choice.text
        for choice in all_of_them.choices
        if choice.logprobs and choice.logprobs.token_logprobs
    }
    best = client.completions.create(**asked, best_of=4)
    assert [choice.text for choice in best.choices] == [means[max(means)]]
    assert best.usage == all_of_them.usage


def test_a_beam_search_tells_its_best_answers_and_counts_them_alone(client: OpenAI) -> None:
    asked: Any = {"model": "chat", "prompt": "The", "max_tokens": 12, "logprobs": 0}
    extra = {"use_beam_search": True, "ignore_eos": True, "length_penalty": 0.0}
    answer = client.completions.create(**asked, n=3, best_of=4, extra_body=extra)
    scores = [sum(choice.logprobs.token_logprobs or []) for choice in answer.choices if choice.logprobs]
    assert scores == sorted(scores, reverse=True)
    assert len({choice.text for choice in answer.choices}) == 3
    assert answer.usage
    assert answer.usage.completion_tokens == 3 * 12
    alone = client.completions.create(**asked, best_of=4, extra_body=extra)
    assert [choice.text for choice in alone.choices] == [answer.choices[0].text]
    greedy = client.completions.create(**asked, temperature=0, extra_body={"ignore_eos": True})
    assert greedy.choices[0].logprobs
    rounding = 1e-5  # the two run in other batches, whose products add up in another order
    assert scores[0] >= sum(greedy.choices[0].logprobs.token_logprobs or []) - rounding


def test_penalties_and_bias_change_the_answer_as_they_say(client: OpenAI) -> None:
    def ask(**fields: Any) -> list[str]:
        asked: Any = {"model": "chat", "prompt": "The", "temperature": 0, "max_tokens": 24, "logprobs": 0}
        extra = {"ignore_eos": True} | fields
        logprobs = client.completions.create(**asked, extra_body=extra).choices[0].logprobs
        return list(logprobs.tokens or []) if logprobs else []

    plain = ask()
    assert len(set(ask(repetition_penalty=100))) > len(set(plain)) > len(set(ask(repetition_penalty=0.5)))
    many = {str(token): 100 for token in range(40, 240)}
    once = len(set(ask(logit_bias=many)))
    assert len(set(ask(logit_bias=many, presence_penalty=2))) > once
    assert len(set(ask(logit_bias=many, frequency_penalty=2))) > once
    assert len(set(ask(logit_bias={"40": 100}))) == 1
    assert ask(temperature=5, seed=1) != plain
    assert ask(temperature=5, seed=1, min_p=1) == plain


def test_logprobs_name_the_tokens_of_the_answer(client: OpenAI) -> None:
    choice = client.chat.completions.create(
        model="chat", messages=QUESTION, temperature=0, logprobs=True, top_logprobs=2, max_tokens=8
    ).choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert "".join(entry.token for entry in choice.logprobs.content) == choice.message.content
    for entry in choice.logprobs.content:
        best, second = entry.top_logprobs
        assert (entry.token, entry.logprob) == (best.token, best.logprob)
        assert second.logprob <= best.logprob <= 0


def test_a_completion_continues_token_ids_as_it_does_text(client: OpenAI) -> None:
    text = client.completions.create(model="chat", prompt="TTFT is", temperature=0)
    assert text.usage is not None
    assert text.usage.completion_tokens <= 16
    ids = client.completions.create(model="chat", prompt=[5, 6, 7], temperature=0, max_tokens=4)
    assert ids.usage is not None
    assert ids.usage.prompt_tokens == 3


def test_embeddings_are_of_length_one_and_of_their_text_alone(client: OpenAI) -> None:
    texts = ["What is TTFT?", "The promise of a service.", "What is TTFT?"]
    first, other, again = (entry.embedding for entry in client.embeddings.create(model="chat", input=texts).data)
    (alone,) = client.embeddings.create(model="chat", input=texts[0], encoding_format="float").data
    assert sum(number * number for number in first) == pytest.approx(1.0, abs=1e-5)
    assert first == pytest.approx(again, abs=1e-5)
    assert first == pytest.approx(alone.embedding, abs=1e-5)
    assert first != pytest.approx(other, abs=1e-2)


def test_a_shared_prefix_is_served_from_the_cache(client: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "What is the promise of a service? " * 20}]
    asked = [client.chat.completions.create(model="chat", messages=messages, max_tokens=1).usage for _ in range(2)]
    details = [usage.prompt_tokens_details for usage in asked if usage is not None]
    assert details[1] is not None
    assert details[1].cached_tokens


@pytest.mark.parametrize(
    ("fields", "error", "code", "param"),
    [
        ({"model": "other"}, openai.NotFoundError, "model_not_found", "model"),
        ({"n": 33}, openai.BadRequestError, "invalid_request", "n"),
        ({"max_tokens": 10**6}, openai.BadRequestError, "context_length_exceeded", "messages"),
        ({"messages": [{"role": "pirate", "content": "x"}]}, openai.BadRequestError, "invalid_request", "messages"),
    ],
)
def test_a_wrong_request_raises_the_clients_own_error(
    client: OpenAI, fields: dict[str, Any], error: type[openai.APIStatusError], code: str, param: str
) -> None:
    with pytest.raises(error) as caught:
        client.chat.completions.create(**({"model": "chat", "messages": QUESTION} | fields))
    assert (caught.value.code, caught.value.param) == (code, param)
    assert caught.value.request_id


def test_concurrent_streams_are_each_their_own(client: OpenAI) -> None:
    def ask(_: int) -> str:
        stream = client.chat.completions.create(model="chat", messages=QUESTION, temperature=0, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(ask, range(16))) == {ANSWER}


def test_a_killed_engine_raises_and_comes_back(worker: WorkerProcess, client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="chat", messages=QUESTION, stream=True, max_tokens=1900, extra_body={"ignore_eos": True}
    )
    next(stream)
    worker.engine.kill()
    with pytest.raises(openai.APIError, match="engine ended"):
        list(stream)
    worker.ready()
    answer = client.chat.completions.create(model="chat", messages=QUESTION, temperature=0)
    assert answer.choices[0].message.content == ANSWER


def test_an_emulated_worker_serves_loads_and_drains(folder: Path) -> None:
    emulate = {"accelerator": "h100", "model": "llama-3.1-8b", "cold_start_s": 0.2}
    with worker_process(folder, engine={"emulate": emulate}, drain_timeout_s=LIMIT_S) as worker:
        worker.ready()
        body = {"model": "chat", "messages": QUESTION, "max_tokens": 32, "stream": True, "ignore_eos": True}
        answer = HTTP.post(
            f"{worker.url}/v1/chat/completions", json=body, headers=worker.gateway_headers, timeout=LIMIT_S
        )
        assert answer.text.count(": p ") >= 1
        assert answer.text.endswith("data: [DONE]\n\n")
        hurry = {**worker.gateway_headers, "x-paceline-deadline-ms": "1"}
        vectors = HTTP.post(f"{worker.url}/v1/embeddings", json={"model": "chat", "input": "a"}).json()
        assert "emulates its model" in vectors["error"]["message"]
        late = HTTP.post(f"{worker.url}/v1/chat/completions", json=body, headers=hurry, timeout=LIMIT_S)
        assert (late.status_code, late.json()["error"]["code"]) == (504, "held_timeout")
        with HTTP.stream("GET", f"{worker.url}/internal/load", headers=worker.gateway_headers, timeout=LIMIT_S) as load:
            line = next(load.iter_lines())
        assert '"emulated":true' in line
        until(lambda: "paceline_emulated_step_lateness_ratio_count" in HTTP.get(f"{worker.url}/metrics").text)
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0


def test_a_truncated_model_is_one_clear_line(folder: Path) -> None:
    model = folder / "model"
    model.mkdir()
    for path in demo.FOLDER.iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with worker_process(folder, model=f"file://{model}") as worker:
        assert worker.ended() == 2
        last = worker.said().splitlines()[-1]
        assert last.startswith("paceline worker: ")
        assert "model.safetensors" in last
        assert "Traceback" not in worker.said()
