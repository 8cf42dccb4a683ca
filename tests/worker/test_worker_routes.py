"""Every route over HTTP, and the answer to every kind of bad request: always an OpenAI error object."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.worker.conftest import TEXT
from tests.worker.harness import Rig, eventually, running
from tests.worker.scripted_engine import Script

from paceline_core.errors import ERRORS, Code, RequestError
from paceline_core.wire import LoadReport, WorkerState, decode
from paceline_workers.messages import Sampling, Submit
from paceline_workers.server.engine.client import EngineState
from paceline_workers.server.handlers.generation import generating
from paceline_workers.server.http.exchange import BodyMemory, Holding, read_body
from paceline_workers.server.http.middleware import CallerMiddleware
from paceline_workers.server.openai.jobs import GenerationJob
from paceline_workers.server.request_handler import GenerationRoute

CHAT = "/v1/chat/completions"
TEXTS = "/v1/completions"
HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
PROMPT: dict[str, Any] = {"model": "chat", "prompt": "hello"}


@pytest.fixture
async def rig(folder: Path, reply: list[int]) -> AsyncIterator[Rig]:
    async with running(Script(reply=reply, per_frame=3, cached=4), folder=folder, body_limit=4096) as rig:
        yield rig


def check_error(response: httpx.Response, code: Code, param: str | None = None) -> str:
    """The answer is the error table's row; its message comes back."""
    row = ERRORS[code]
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"], error["param"]) == (row.status, row.type, code, param)
    assert response.headers["x-should-retry"] == ("true" if row.should_retry else "false")
    assert response.headers["x-request-id"]
    return str(error["message"])


async def test_a_chat_in_one_answer(rig: Rig, reply: list[int]) -> None:
    response = await rig.http.post(CHAT, json=HELLO)
    answer = response.json()
    assert response.status_code == 200
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "chat"
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": TEXT, "refusal": None}
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "stop", None)
    usage = answer["usage"]
    assert usage["completion_tokens"] == len(reply) + 1
    assert usage["total_tokens"] == usage["prompt_tokens"] + len(reply) + 1
    assert usage["prompt_tokens_details"] == {"cached_tokens": 4}
    assert answer["system_fingerprint"].startswith("paceline-")


async def test_a_completion_in_one_answer(rig: Rig, reply: list[int]) -> None:
    answer = (await rig.http.post(TEXTS, json=PROMPT | {"max_tokens": 100})).json()
    assert (answer["object"], answer["id"][:5]) == ("text_completion", "cmpl-")
    assert answer["choices"] == [{"index": 0, "text": TEXT, "logprobs": None, "finish_reason": "stop"}]


async def test_a_completion_stops_after_16_tokens_unless_told_otherwise(rig: Rig) -> None:
    answer = (await rig.http.post(TEXTS, json=PROMPT)).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 16


async def test_a_prompt_of_token_ids_is_taken_as_it_is(rig: Rig) -> None:
    answer = (await rig.http.post(TEXTS, json=PROMPT | {"prompt": [5, 6, 7]})).json()
    assert answer["usage"]["prompt_tokens"] == 3


async def test_logprobs_of_a_chat(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply, logprobs=True), folder=folder) as rig:
        body = HELLO | {"logprobs": True, "top_logprobs": 2}
        (choice,) = (await rig.http.post(CHAT, json=body)).json()["choices"]
    entries = choice["logprobs"]["content"]
    assert bytes(byte for entry in entries for byte in entry["bytes"]) == TEXT.encode()
    assert all(entry["logprob"] == -0.5 and len(entry["top_logprobs"]) == 2 for entry in entries)


async def test_logprobs_of_a_completion(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply, logprobs=True), folder=folder) as rig:
        answer = (await rig.http.post(TEXTS, json=PROMPT | {"logprobs": 1, "max_tokens": 5})).json()
    logprobs = answer["choices"][0]["logprobs"]
    assert "".join(logprobs["tokens"]) == answer["choices"][0]["text"]
    assert logprobs["text_offset"] == [sum(map(len, logprobs["tokens"][:index])) for index in range(5)]
    assert logprobs["token_logprobs"] == [-0.5] * 5
    assert logprobs["top_logprobs"] == [{token: -0.5} for token in logprobs["tokens"]]


async def test_stop_strings_end_the_answer(rig: Rig) -> None:
    (choice,) = (await rig.http.post(CHAT, json=HELLO | {"stop": ["never", "ïve, 漢"]})).json()["choices"]
    assert choice["message"]["content"] == TEXT[: TEXT.index("ïve")]
    assert choice["finish_reason"] == "stop"


async def test_models_are_listed_by_all_their_names(rig: Rig) -> None:
    listed = (await rig.http.get("/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == ["chat", "team/chat"]
    assert [model["max_model_len"] for model in listed["data"]] == [2048, 2048]
    assert (await rig.http.get("/v1/models/team/chat")).json() == listed["data"][1]


async def test_an_unknown_model_is_not_found(rig: Rig) -> None:
    check_error(await rig.http.get("/v1/models/other"), Code.MODEL_NOT_FOUND, "model")
    check_error(await rig.http.post(CHAT, json=HELLO | {"model": "other"}), Code.MODEL_NOT_FOUND, "model")


async def test_malformed_json_is_refused(rig: Rig) -> None:
    message = check_error(await rig.http.post(CHAT, content=b'{"model": "chat", '), Code.INVALID_JSON)
    assert message.startswith("The body is not valid JSON")


async def test_an_unsupported_field_is_named(rig: Rig) -> None:
    message = check_error(await rig.http.post(CHAT, json=HELLO | {"audio": {}}), Code.INVALID_REQUEST, "audio")
    assert message == "`audio` is not supported here: the models here write text. Leave it out."


async def test_a_prompt_longer_than_the_context_is_told_the_numbers(folder: Path) -> None:
    async with running(Script(context=32), folder=folder) as rig:
        long = HELLO | {"messages": [{"role": "user", "content": "hello " * 200}]}
        message = check_error(await rig.http.post(CHAT, json=long), Code.CONTEXT_LENGTH_EXCEEDED, "messages")
        assert message.startswith(
            "This model's maximum context length is 32 tokens. However, your messages resulted in"
        )
        wish = check_error(
            await rig.http.post(TEXTS, json=PROMPT | {"max_tokens": 40}), Code.CONTEXT_LENGTH_EXCEEDED, "prompt"
        )
        assert "40 in the completion" in wish


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"prompt": ""}, "prompt"), ({"prompt": [10**9]}, "prompt"), ({"min_tokens": 17}, "min_tokens")],
)
async def test_a_prompt_that_cannot_be_served_is_refused(rig: Rig, fields: dict[str, Any], param: str) -> None:
    check_error(await rig.http.post(TEXTS, json=PROMPT | fields), Code.INVALID_REQUEST, param)


async def test_a_declared_body_over_the_cap_is_refused_unread(rig: Rig) -> None:
    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        yield b"x" * 5000

    response = await rig.http.post(CHAT, content=never(), headers={"content-length": "1000000"})
    message = check_error(response, Code.REQUEST_TOO_LARGE)
    assert message == "The body is over the limit of 4096 bytes."
    assert response.headers["connection"] == "close"


async def test_reading_stops_at_the_cap() -> None:
    reads = 0

    async def receive() -> Any:
        nonlocal reads
        reads += 1
        return {"type": "http.request", "body": b"x" * 100, "more_body": True}

    with pytest.raises(RequestError, match="over the limit of 250 bytes"):
        await read_body([], receive, Holding(BodyMemory(), 250))
    assert reads == 3


async def test_a_body_that_does_not_come_is_a_timeout() -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    with pytest.raises(RequestError, match="did not arrive within 0 s") as caught:
        await read_body([], never, Holding(BodyMemory(), 250), seconds=0.01)
    assert caught.value.code is Code.REQUEST_TIMEOUT


async def test_a_client_that_leaves_while_it_sends_is_let_go() -> None:
    events = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return events.pop(0)

    with pytest.raises(RequestError) as caught:
        await read_body([], receive, Holding(BodyMemory(), 250))
    assert caught.value.code is Code.CLIENT_CLOSED


async def test_an_unknown_route_and_a_wrong_method_are_named(rig: Rig) -> None:
    assert "/v1/nothing" in check_error(await rig.http.get("/v1/nothing"), Code.ROUTE_NOT_FOUND)
    wrong = await rig.http.get(CHAT)
    check_error(wrong, Code.METHOD_NOT_ALLOWED)
    assert wrong.headers["allow"] == "POST"
    check_error(await rig.http.get("/healthz/"), Code.ROUTE_NOT_FOUND)


async def test_a_hopeless_text_is_refused_before_it_is_encoded(folder: Path) -> None:
    text = "hello " * 500_000
    async with running(Script(), folder=folder) as rig:
        chat = await rig.http.post(CHAT, json=HELLO | {"messages": [{"role": "user", "content": text}]})
        assert "in at least " in check_error(chat, Code.CONTEXT_LENGTH_EXCEEDED, "messages")
        completion = await rig.http.post(TEXTS, json=PROMPT | {"prompt": text})
        assert "in at least " in check_error(completion, Code.CONTEXT_LENGTH_EXCEEDED, "prompt")


async def test_a_harmless_request_id_comes_back_on_every_answer(rig: Rig) -> None:
    for path in (CHAT, "/healthz", "/v1/nothing", "/internal/load"):
        response = await rig.http.post(path, json=HELLO, headers={"x-request-id": "abc_1"})
        assert response.headers["x-request-id"] == "abc_1"
    assert (await rig.http.get("/healthz", headers={"x-request-id": "no no"})).headers["x-request-id"] != "no no"


async def test_a_trusted_token_gets_the_phases_of_a_whole_answer(rig: Rig) -> None:
    timing = (await rig.http.post(CHAT, json=HELLO, headers=rig.gateway_headers)).headers["server-timing"]
    names = [part.split(";dur=")[0] for part in timing.split(", ")]
    assert names == ["tokenize", "queue", "batch_wait", "prefill", "decode", "post"]
    assert "server-timing" not in (await rig.http.post(CHAT, json=HELLO)).headers


async def test_a_ready_worker_says_so(rig: Rig) -> None:
    assert (await rig.http.get("/healthz")).status_code == 200
    assert (await rig.http.get("/readyz")).status_code == 200


async def test_a_loading_worker_is_alive_but_not_ready(folder: Path) -> None:
    async with running(Script(fault="hold", phase="loading"), folder=folder, ready=False) as rig:
        await rig.reaches(EngineState.LOADING)
        assert (await rig.http.get("/healthz")).status_code == 200
        assert "starting" in check_error(await rig.http.get("/readyz"), Code.NO_CAPACITY)
        refusal = await rig.http.post(CHAT, json=HELLO)
        check_error(refusal, Code.NO_CAPACITY)
        assert refusal.headers["retry-after"] == "1"


async def test_metrics_count_what_was_served(rig: Rig) -> None:
    await rig.http.post(CHAT, json=HELLO)
    await rig.http.post(CHAT, content=b"{")
    scrape = await rig.http.get("/metrics")
    assert scrape.headers["content-type"].startswith("text/plain")
    labels = 'pisvc="chat",pisvc_namespace="team",pool="main",revision="abcdefghij"'
    assert f'paceline_worker_requests_total{{outcome="ok",{labels}}} 1.0' in scrape.text
    assert f'paceline_worker_requests_total{{outcome="client_error",{labels}}} 1.0' in scrape.text


async def test_the_load_stream_is_for_trusted_tokens(rig: Rig) -> None:
    message = check_error(await rig.http.get("/internal/load"), Code.INVALID_API_KEY)
    assert "x-paceline-internal-token" in message


async def test_the_load_stream_tells_the_state_and_follows_it(rig: Rig) -> None:
    call = rig.call("/internal/load", headers=rig.gateway_headers)
    assert await call.status() == 200
    first = decode(LoadReport, await call.write())
    assert (first.state, first.max_model_len, first.seq) == (WorkerState.READY, 2048, 0)
    assert first.step_time.base == 0.01
    rig.worker.board.drain()
    report = first
    while report.state is not WorkerState.DRAINING:
        report = decode(LoadReport, await call.write())
    call.leave()
    await call.done()
    await eventually(lambda: rig.worker.board.subscribers == 0)


async def test_gateways_hear_how_many_of_them_share_the_slots(rig: Rig) -> None:
    first, second = (rig.call("/internal/load", headers=rig.gateway_headers) for _ in range(2))
    assert await first.status() == await second.status() == 200
    while decode(LoadReport, await first.write()).gateways != 2:
        pass
    second.leave()
    while decode(LoadReport, await first.write()).gateways != 1:
        pass
    first.leave()
    await first.done()


async def test_the_keys_of_a_prompt_are_told_while_it_is_under_way_and_taken_back_with_it(rig: Rig) -> None:
    reader = rig.call("/internal/load", headers=rig.gateway_headers)
    assert await reader.status() == 200
    prompt = Submit(
        id="s", prompt=[5, 6], max_tokens=2, sampling=Sampling(temperature=0.0), prefix_keys=[("a" * 16, 1)]
    )
    with rig.worker.parts.engine.submit(prompt):
        while decode(LoadReport, await reader.write()).prefix.added != ("a" * 16,):
            pass
    while decode(LoadReport, await reader.write()).prefix.evicted != ("a" * 16,):
        pass
    reader.leave()
    await reader.done()


async def test_load_readers_are_capped(rig: Rig) -> None:
    rig.worker.board.subscribers = 64
    check_error(await rig.http.get("/internal/load", headers=rig.gateway_headers), Code.QUEUE_FULL)


async def test_a_sequence_that_the_engine_fails_is_an_error_before_the_first_byte(folder: Path) -> None:
    async with running(Script(reply=[5], fault="error", phase="prefill"), folder=folder) as rig:
        for stream in (True, False):
            response = await rig.http.post(CHAT, json=HELLO | {"stream": stream})
            assert check_error(response, Code.ENGINE_FAILED) == "the prompt is poison"


async def test_a_fault_of_the_worker_is_answered_without_its_text(rig: Rig) -> None:
    async def broken(*_: object) -> GenerationJob:
        raise ZeroDivisionError("an inner secret")

    app = CallerMiddleware(GenerationRoute(rig.worker.parts, generating(broken)), rig.worker.trust, anonymous=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://worker") as client:
        message = check_error(await client.post(CHAT, json=HELLO), Code.INTERNAL_ERROR)
    assert "secret" not in message
