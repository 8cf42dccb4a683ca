"""Requests that go well, through real ports: what the client gets, what the worker is told, what is counted."""

import asyncio
import json

import openai
import pytest
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, Stand, until
from tests.gateway.worker_double import Script

from paceline_core import __version__
from paceline_core.auth import TokenVerifier, jwk_set, public_jwk
from paceline_core.auth.internal_token import HEADER
from paceline_core.clock import SystemClock
from paceline_core.wire import PREFIX
from paceline_gateway.routing.prefix import prefix_keys

pytestmark = pytest.mark.real


async def test_a_whole_answer_passes_through(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    response = await stand.client.post("/v1/chat/completions", json=CHAT, headers={"x-request-id": "abc-1"})
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == "Time to first token"
    assert response.headers["x-request-id"] == "abc-1"


async def test_a_stream_passes_through_without_the_workers_comments(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    response = await stand.client.post("/v1/chat/completions", json=CHAT | {"stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [block for block in response.text.split("\n\n") if block]
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"
    assert len(events) == 6


async def test_the_official_client_streams_and_asks_for_models(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    client = openai.AsyncOpenAI(api_key=stand.key, base_url=f"http://127.0.0.1:{stand.port}/v1")
    async with client:
        stream = await client.chat.completions.create(
            model="chat", messages=[{"role": "user", "content": "hi"}], stream=True,
            stream_options={"include_usage": True},
        )  # fmt: skip
        chunks = [chunk async for chunk in stream]
        names = [model.id async for model in client.models.list()]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Time to first token"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4
    assert names == ["chat"]


async def test_the_official_client_reads_an_error_as_one(stand: Stand) -> None:
    client = openai.AsyncOpenAI(api_key="pl_wrong", base_url=f"http://127.0.0.1:{stand.port}/v1", max_retries=0)
    async with client:
        with pytest.raises(openai.AuthenticationError, match="not valid"):
            await client.models.list()


async def test_the_worker_receives_the_caller_and_accepts_it(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    trace = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    forged = {HEADER: "forged", "x-paceline-tenant": "admin", "x-paceline-deadline-ms": "1", "cookie": "secret"}
    headers = {"x-paceline-class": "batch", "traceparent": trace} | forged
    await stand.client.post("/v1/chat/completions", json=CHAT, headers=headers)
    (seen,) = worker.seen
    assert (seen.headers["x-paceline-class"], seen.headers["x-paceline-tenant"]) == ("batch", "team")
    assert seen.headers["traceparent"] == trace
    assert int(seen.headers["x-paceline-deadline-ms"]) > 1000
    verifier = TokenVerifier(jwk_set([public_jwk(stand.signing_key, "gateway")]), "default/chat")
    claims = verifier.verify(seen.headers[HEADER], SystemClock().utc())
    assert claims.issuer == "gateway"
    assert "authorization" not in seen.headers
    assert "cookie" not in seen.headers


async def test_the_worker_receives_the_limit_of_the_class_and_never_a_clients(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker = await make_worker()
    stand.work(worker)
    await stand.client.post("/v1/chat/completions", json=CHAT, headers={"x-paceline-max-tokens": "1"})
    assert worker.seen[0].headers["x-paceline-max-tokens"] == "4096"


async def test_the_worker_receives_the_strictest_current_tpot_target(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    await stand.client.post("/v1/chat/completions", json=CHAT, headers={"x-paceline-tpot-ms": "1"})
    slo = {"interactive": {"slo": {"ttft": {"p95": "1s"}, "tpot": {"p50": "40ms", "p99": "90ms"}}}}
    stand.cluster.put(manifests.service(classes=slo))

    async def told() -> bool:
        await stand.client.post("/v1/chat/completions", json=CHAT)
        return worker.seen[-1].headers.get("x-paceline-tpot-ms") == "40"

    await until(told)
    assert "x-paceline-tpot-ms" not in worker.seen[0].headers


async def test_the_worker_receives_the_keys_of_a_long_prompt_and_never_a_clients(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker = await make_worker()
    stand.work(worker)
    long = CHAT | {"messages": [{"role": "user", "content": "Pace. " * 400}]}
    for body in (long, CHAT):
        await stand.client.post("/v1/chat/completions", json=body, headers={PREFIX: f"4096;{'0' * 16}"})
    told = prefix_keys(long, "team")
    assert told is not None
    assert [seen.headers.get(PREFIX) for seen in worker.seen] == [told.header(), None]


async def test_the_body_reaches_the_worker_byte_for_byte(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    body = b'{ "model" : "chat","messages":[{"role":"user","content":"\xc3\xa4 \\u00e4"}], "unknown": 1e2 }'
    await stand.client.post("/v1/chat/completions", content=body)
    assert worker.seen[0].body == body


async def test_a_public_name_is_exchanged_on_the_way(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.cluster.put(manifests.route("public", {"service": "chat"}))
    stand.work(worker)
    response = await stand.client.post("/v1/completions", json={"model": "public", "prompt": "x"})
    assert response.status_code == 200
    assert json.loads(worker.seen[0].body)["model"] == "chat"


async def test_of_a_renamed_body_one_copy_is_held(stand: Stand) -> None:
    stand.cluster.put(manifests.route("public", {"service": "chat"}))
    asking = asyncio.create_task(stand.client.post("/v1/completions", json={"model": "public", "prompt": "x"}))
    await until(lambda: stand.process.requests.open == 1)
    (call,) = stand.process.requests._open.values()
    assert call.admission is not None
    assert call.http.body is call.admission.body
    asking.cancel()


async def test_a_harmful_request_id_is_replaced(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    for given in ("a b", "x" * 65, "ä", ""):
        headers = [(b"x-request-id", given.encode())]
        response = await stand.client.post("/v1/chat/completions", json=CHAT, headers=headers)
        assert response.headers["x-request-id"].isalnum()
        assert response.headers["x-request-id"] != given


async def test_connections_to_workers_are_reused(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    await stand.ready()
    before = worker.connections
    for _ in range(5):
        await stand.client.post("/v1/chat/completions", json=CHAT | {"stream": True})
        await stand.client.post("/v1/chat/completions", json=CHAT)
    assert worker.connections == before + 1


async def test_requests_are_counted_and_judged(stand: Stand, make_worker: MakeWorker) -> None:
    classes = {"interactive": {"slo": {"ttft": {"p95": "30s"}, "tpot": {"p95": "30s"}}}}
    stand.cluster.put(manifests.service(classes=classes))
    stand.work(await make_worker())
    await stand.client.post("/v1/chat/completions", json=CHAT | {"stream": True})
    await stand.client.post("/v1/chat/completions", json=CHAT)
    await until(lambda: _counted(stand, 2))
    assert await stand.metric("paceline_slo_requests_total", slo="ttft_p95", verdict="good") == 1
    assert await stand.metric("paceline_slo_requests_total", slo="tpot_p95", verdict="good") == 1
    assert await stand.metric("paceline_slo_requests_total", slo="e2e_p95", verdict="good") == 1
    assert await stand.metric("paceline_slo_requests_total", slo="availability", verdict="good") == 2
    assert await stand.metric("paceline_slo_threshold_seconds", slo="ttft_p95") == 30
    assert await stand.metric("paceline_request_ttft_seconds_count") == 1
    assert await stand.metric("paceline_request_phase_seconds_count", phase="decode") == 2
    assert await stand.metric("paceline_request_tokens_sum", kind="output") == 8
    assert await stand.metric("paceline_tenant_tokens_total", tenant="team", kind="output") == 8


async def _counted(stand: Stand, count: int) -> bool:
    return await stand.metric("paceline_requests_total", outcome="ok") == count


async def test_the_phases_of_a_request_sum_to_its_time(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(delay_s=0.02)
    stand.work(worker)
    await stand.client.post("/v1/chat/completions", json=CHAT | {"stream": True})
    await until(lambda: _counted(stand, 1))
    spent = await stand.metric("paceline_request_phase_seconds_sum")
    whole = await stand.metric("paceline_request_duration_seconds_sum")
    assert abs(spent - whole) <= 0.05 * whole


async def test_work_is_spread_over_the_workers(stand: Stand, make_worker: MakeWorker) -> None:
    workers, go = [await make_worker(f"w{index}") for index in range(3)], asyncio.Event()
    for worker in workers:
        worker.script = lambda _: Script(until=go)
    stand.work(*workers)
    await stand.ready(3)
    posts = [stand.client.post("/v1/chat/completions", json=CHAT | {"stream": True}) for _ in range(30)]
    answers = asyncio.gather(*posts)
    await until(lambda: sum(len(worker.seen) for worker in workers) == 30)
    go.set()
    assert {response.status_code for response in await answers} == {200}
    assert [len(worker.seen) for worker in workers] == [10, 10, 10]


async def test_models_are_those_that_the_tenant_may_use(stand: Stand) -> None:
    stand.cluster.put(manifests.service("other", "secret"))
    stand.cluster.put(manifests.tenant(services=["default/*"]))
    listing = (await stand.client.get("/v1/models")).json()
    assert [model["id"] for model in listing["data"]] == ["chat"]
    named = {"id": "chat", "object": "model", "created": 1767225600, "owned_by": "default"}
    assert listing["data"][0] == named | {"max_model_len": None}
    assert (await stand.client.get("/v1/models/default/chat")).json()["id"] == "default/chat"
    assert (await stand.client.get("/v1/models/secret%2Fother")).status_code == 404


async def test_a_models_length_is_what_its_workers_report(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    await stand.ready()
    (told,) = (await stand.client.get("/v1/models")).json()["data"]
    assert told["max_model_len"] == (await stand.client.get("/v1/models/chat")).json()["max_model_len"] == 4096


async def test_the_version_is_sent_to_clients_with_a_key(stand: Stand) -> None:
    assert (await stand.client.get("/version")).json() == {"version": __version__}
    assert (await stand.client.get("/version", headers={"authorization": ""})).status_code == 401
    assert (await stand.client.post("/version", json={})).status_code == 405


async def test_health_needs_no_key(stand: Stand) -> None:
    response = await stand.client.get("/health", headers={"authorization": ""})
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_tokens_of_an_open_stream_are_counted_by_a_changed_target(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(tokens=("a",) * 10_000, delay_s=0.005)
    stand.work(worker)
    async with stand.client.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as response:
        await anext(response.aiter_bytes())
        stand.cluster.put(manifests.service(classes={"interactive": {"slo": {"tpot": {"p95": "80ms"}}}}))

        async def told() -> bool:
            return await stand.metric("paceline_slo_threshold_seconds", slo="tpot_p95") == 0.08

        async def counted() -> bool:
            return await stand.metric("paceline_stream_itl_seconds_bucket", le="0.08") > 0

        await until(told)
        await until(counted)
