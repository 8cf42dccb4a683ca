"""`/tokenize` and `/detokenize` at the gateway: a tenant's request to one worker of the model, and nothing more."""

import json
from pathlib import Path

import pytest
from tests.every import cases
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.manifests import route, service, tenant
from tests.gateway.pieces import snapshot
from tests.gateway.replicas import EMULATED, replicas
from tests.gateway.stand import Stand, gateway, until
from tests.gateway.test_quota_front import limit
from tests.gateway.worker_double import Script

from paceline_core.auth import new_signing_key
from paceline_core.errors import ERRORS, Code, RequestError
from paceline_gateway.api.admission import admit_tokens

IDS = {"count": 2, "max_model_len": 4096, "tokens": [5, 6], "token_strs": None}
ASKED: dict[str, dict[str, object]] = {
    "/tokenize": {"model": "chat", "prompt": "some text"},
    "/detokenize": {"model": "chat", "tokens": [5, 6]},
    "/v1/messages/count_tokens": {"model": "chat", "messages": [{"role": "user", "content": "hello"}]},
}


@pytest.mark.real
@pytest.mark.parametrize("path", ASKED)
async def test_it_is_a_request_of_the_tenant_and_uses_no_tokens(
    path: str, stand: Stand, make_worker: MakeWorker
) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(body=json.dumps(IDS))
    stand.work(worker)
    await limit(stand, requestsPerMinute=2)
    answers = [await stand.client.post(path, json=ASKED[path]) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].json() == IDS
    theirs = "rate_limit_error" if path.startswith("/v1/messages") else ERRORS[Code.RATE_LIMIT_EXCEEDED].type
    assert (answers[2].json()["error"]["type"], "retry-after" in answers[2].headers) == (theirs, True)
    assert (answers[2].json().get("type") == "error") is path.startswith("/v1/messages")
    assert answers[0].headers["x-ratelimit-remaining-requests"] == "1"
    seen = worker.seen[0]
    assert (seen.path, json.loads(seen.body)) == (path, ASKED[path])
    assert {"x-paceline-internal-token", "x-paceline-tenant", "x-request-id"} <= seen.headers.keys()
    await until(lambda: stand.process.requests.open == 0)
    totals = stand.process.requests.quotas.totals
    assert (totals.reserved[:3], totals.settled[:3]) == ([2, 0, 0], [2, 0, 0])
    assert await stand.metric("paceline_requests_total", pisvc="chat", outcome="ok") == 2
    assert await stand.metric("paceline_usage_requests_total", tenant="team") == 2
    assert await stand.metric("paceline_slo_requests_total") == 0


@pytest.mark.real
async def test_a_real_worker_sends_ids_that_it_decodes_back_into_the_text(tmp_path: Path) -> None:
    key = new_signing_key()
    with replicas(tmp_path, 1, key, engine=EMULATED) as workers:
        async with gateway(tmp_path, signing_key=key) as stand:
            await stand.serve([worker.endpoint for worker in workers])
            told = (await stand.client.post("/tokenize", json={"model": "chat", "prompt": "What is TTFT?"})).json()
            assert told["count"] == len(told["tokens"]) > 1
            back = await stand.client.post("/detokenize", json={"model": "chat", "tokens": told["tokens"]})
            assert back.json() == {"prompt": "What is TTFT?"}
            wrong = await stand.client.post("/detokenize", json={"model": "chat", "tokens": [1 << 40]})
            assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "tokens")
            asked = ASKED["/v1/messages/count_tokens"]
            counted = (await stand.client.post("/v1/messages/count_tokens", json=asked)).json()
            usage = (await stand.client.post("/v1/messages", json=asked | {"max_tokens": 1})).json()["usage"]
            assert counted == {"input_tokens": usage["input_tokens"]}


@pytest.mark.real
async def test_it_needs_a_key_a_model_and_the_right_method(stand: Stand) -> None:
    stranger = await stand.client.post("/tokenize", json=ASKED["/tokenize"], headers={"authorization": "Bearer pl_x"})
    assert stranger.status_code == 401
    nameless = await stand.client.post("/tokenize", json={"prompt": "text"})
    assert (nameless.status_code, nameless.json()["error"]["param"]) == (400, "model")
    assert (await stand.client.get("/detokenize")).status_code == 405
    path, bare = "/v1/messages/count_tokens", {"authorization": ""}
    keyless = await stand.client.post(path, json=ASKED[path], headers=bare)
    assert (keyless.status_code, keyless.json()["error"]["type"]) == (401, "authentication_error")
    assert (await stand.client.post(path, json=ASKED[path], headers=bare | {"x-api-key": "pl_x"})).status_code == 401
    wrong = await stand.client.get(path)
    assert (wrong.status_code, wrong.json()["type"]) == (405, "error")


@pytest.mark.real
async def test_a_worker_that_fails_is_passed_over_and_a_refusal_is_its_own(
    stand: Stand, make_worker: MakeWorker
) -> None:
    made = [await make_worker(name) for name in ("w0", "w1")]
    faults = [Script(cut_after=0), Script(body=json.dumps(IDS)), Script(status=400, body='{"error": {}}')]
    for worker in made:
        worker.script = lambda _: faults.pop(0)
    stand.work(*made)
    await stand.ready(2)
    assert (await stand.client.post("/tokenize", json=ASKED["/tokenize"])).json() == IDS
    assert {len(worker.seen) for worker in made} == {1}
    assert (await stand.client.post("/tokenize", json=ASKED["/tokenize"])).json() == {"error": {}}


@pytest.mark.real
async def test_no_other_model_of_a_route_stands_in_for_it(stand: Stand, make_worker: MakeWorker) -> None:
    """The other one's tokens would be others."""
    spare = await make_worker(service="default/spare")
    stand.cluster.put(manifests.service("spare"))
    stand.cluster.put(manifests.service(classes={"interactive": {"holdTimeout": "1s"}}))
    stand.cluster.put(manifests.route("public", {"service": "chat"}, fallback=["spare"]))
    stand.work(spare, service="default/spare")
    await stand.ready(service="default/spare")
    answer = await stand.client.post("/tokenize", json=ASKED["/tokenize"] | {"model": "public"})
    assert (answer.status_code, spare.seen) == (504, [])


@cases("path", ASKED)
@cases("runtime", ["ollama", "llamacpp", "tgi", "trtllm", "lmdeploy"])
def test_a_runtime_that_has_none_is_named(path: str, runtime: str) -> None:
    seen = snapshot(service("theirs", runtime={"name": runtime}), route("public", {"service": "theirs"}), tenant())
    with pytest.raises(RequestError, match=f"served by {runtime}, which has no {path}") as refused:
        admit_tokens(b'{"model": "public"}', {}, seen.tenants["team"], seen, 0.0, path=path)
    assert (refused.value.code, refused.value.row.status) == (Code.ROUTE_NOT_FOUND, 404)


@pytest.mark.parametrize("runtime", ["paceline", "vllm", "sglang", "custom"])
def test_what_does_not_belong_to_it_is_not_looked_at(runtime: str) -> None:
    own = {"name": runtime} | ({"image": "x", "args": []} if runtime == "custom" else {})
    seen = snapshot(service("theirs", runtime=own), tenant())
    body = json.dumps({"model": "theirs", "stream": True, "prompt": "a" * 4000}).encode()
    admission = admit_tokens(body, {}, seen.tenants["team"], seen, 0.0, path="/tokenize")
    assert (admission.stream, admission.prefix, admission.counts) == (False, None, True)
