"""What a client can do wrong, or do to us: each has one answer, in OpenAI's form, and leaves nothing behind."""

import gzip
import json

import httpx
import pytest
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, Stand, until
from tests.gateway.worker_double import Script

from paceline_core.registry import RequestClass

pytestmark = pytest.mark.real


def code(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-should-retry"] in ("true", "false")
    error = response.json()["error"]
    assert error["message"]
    return response.status_code, error["code"]


async def test_a_wrong_key_is_refused(stand: Stand) -> None:
    for header in ("", "Bearer pl_aaaaaaaa_" + "a" * 32, "Basic x"):
        response = await stand.client.post("/v1/chat/completions", json=CHAT, headers={"authorization": header})
        assert code(response) == (401, "invalid_api_key")
        assert response.headers["www-authenticate"] == "Bearer"


async def test_a_revoked_key_stops_working_without_a_restart(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    assert (await stand.client.get("/v1/models")).status_code == 200
    (secret,) = stand.cluster.board("Secret").items
    stand.cluster.drop("Secret", secret)

    async def revoked() -> bool:
        return (await stand.client.get("/v1/models")).status_code == 401

    await until(revoked)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model": "chat",', (400, "invalid_json")),
        (b"[1]", (400, "invalid_request")),
        (b'{"messages": []}', (400, "invalid_request")),
        (b'{"model": "chat", "stream": 1}', (400, "invalid_request")),
        (b'{"model": "chat", "max_tokens": 999999}', (400, "invalid_request")),
        (b'{"model": "nonsense"}', (404, "model_not_found")),
    ],
)
async def test_a_wrong_body_is_named(stand: Stand, body: bytes, expected: tuple[int, str]) -> None:
    assert code(await stand.client.post("/v1/chat/completions", content=body)) == expected


async def test_an_unknown_path_and_a_wrong_method_are_refused(stand: Stand) -> None:
    assert code(await stand.client.post("/v1/nonsense", json=CHAT)) == (404, "route_not_found")
    assert code(await stand.client.get("/v1/models/")) == (404, "route_not_found")
    wrong = [await stand.client.get("/v1/chat/completions"), await stand.client.post("/v1/models", json=CHAT)]
    assert [code(response) for response in wrong] == [(405, "method_not_allowed")] * 2
    assert [response.headers["allow"] for response in wrong] == ["POST", "GET, HEAD"]
    for path in ("/metrics", "/internal/demand", "/v1", "/v1/audio"):
        response = await stand.client.get(path)
        assert code(response) == (404, "route_not_found")
        assert "POST /v1/chat/completions, " in response.json()["error"]["message"]
        assert ("admin port" in response.json()["error"]["message"]) == (path == "/metrics")


async def test_a_packed_body_is_refused_by_its_header(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    body = gzip.compress(json.dumps(CHAT).encode())
    response = await stand.client.post("/v1/chat/completions", content=body, headers={"content-encoding": "gzip"})
    assert code(response) == (400, "invalid_request")
    assert response.json()["error"]["param"] == "content-encoding"
    plain = await stand.client.post("/v1/chat/completions", json=CHAT, headers={"content-encoding": "identity"})
    assert plain.status_code == 200


async def test_a_body_over_the_cap_is_refused(stand: Stand) -> None:
    response = await stand.client.post("/v1/chat/completions", content=b"x" * (9 << 20))
    assert code(response) == (413, "request_too_large")


async def test_a_class_that_is_not_open_is_forbidden(stand: Stand) -> None:
    stand.cluster.put(manifests.tenant(classes=["interactive"]))
    response = await stand.client.post("/v1/chat/completions", json=CHAT, headers={"x-paceline-class": "batch"})
    assert code(response) == (403, "class_forbidden")


async def test_refusals_are_counted_without_naming_what_the_client_wrote(stand: Stand) -> None:
    await stand.client.post("/v1/chat/completions", json={"model": "attack-1"})
    await stand.client.post("/v1/chat/completions", json=CHAT, headers={"authorization": "Bearer x"})
    assert await stand.metric("paceline_tenant_requests_total", tenant="team", outcome="client_error") == 1
    assert await stand.metric("paceline_tenant_requests_total", tenant="_none", outcome="client_error") == 1
    assert "attack" not in (await stand.admin.get("/metrics")).text


async def test_a_client_that_leaves_mid_stream_stops_the_worker(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(stall_after=2)
    stand.work(worker)
    async with stand.client.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as response:
        async for line in response.aiter_lines():
            if line:
                break
    await until(worker.seen[0].closed.is_set)
    await until(lambda: _cancelled(stand, 1))
    assert stand.process.requests.open == 0


async def test_a_client_that_leaves_before_the_answer_stops_the_worker(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(stall_after=0)
    stand.work(worker)
    with pytest.raises(httpx.ReadTimeout):
        await stand.client.post("/v1/chat/completions", json=CHAT, timeout=httpx.Timeout(5, read=0.2))
    await until(lambda: bool(worker.seen) and worker.seen[0].closed.is_set())
    await until(lambda: _cancelled(stand, 1))


async def test_a_client_that_leaves_the_queue_is_not_dispatched(stand: Stand, make_worker: MakeWorker) -> None:
    with pytest.raises(httpx.ReadTimeout):
        await stand.client.post("/v1/chat/completions", json=CHAT, timeout=httpx.Timeout(5, read=0.2))
    await until(lambda: _cancelled(stand, 1))
    worker = await make_worker()
    stand.work(worker)
    await stand.ready()
    assert worker.seen == []


async def _cancelled(stand: Stand, count: int) -> bool:
    return await stand.metric("paceline_requests_total", outcome="cancelled") == count


async def test_a_prompt_never_reaches_the_metrics(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    body = json.loads(json.dumps(CHAT).replace("What is TTFT?", "my secret plan"))
    await stand.client.post("/v1/chat/completions", json=body)
    assert "secret plan" not in (await stand.admin.get("/metrics")).text
    assert "secret plan" not in json.dumps(await stand.workers() + [await stand.queue()])


async def test_a_tenant_over_its_limit_gets_retry_after(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    stand.cluster.put(manifests.tenant(limits={"requestsPerMinute": 2}))
    answers = [await stand.client.post("/v1/chat/completions", json=CHAT) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert code(answers[-1]) == (429, "rate_limit_exceeded")
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 30
    assert await stand.metric("paceline_requests_total", outcome="quota") == 1
    assert await stand.metric("paceline_slo_requests_total", slo="availability", verdict="bad_failed") == 0
    assert stand.process.registry.services["default/chat"].tallies[RequestClass.INTERACTIVE].arrivals == 2


async def test_a_request_that_no_worker_could_answer_is_not_charged(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(cut_after=0)
    stand.work(worker)
    stand.cluster.put(manifests.tenant(limits={"requestsPerMinute": 1, "concurrency": 1}))
    for _ in range(2):
        assert code(await stand.client.post("/v1/chat/completions", json=CHAT)) == (502, "upstream_error")
