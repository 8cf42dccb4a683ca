"""Embeddings and scores at the gateway: the prompt counts; nothing is reserved or learned for an output that never
comes.
"""

import json

import pytest
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, Stand
from tests.gateway.test_quota_front import limit
from tests.gateway.worker_double import Script

from paceline_core.registry import RequestClass
from paceline_gateway.request.prompt_size import PromptSize
from paceline_gateway.services.usage_estimates import PRIOR_OUTPUT

pytestmark = pytest.mark.real
OUTPUT = 2
INPUT = 1
VECTOR = {
    "object": "list",
    "data": [{"index": 0, "embedding": [1.0]}],
    "usage": {"prompt_tokens": 7, "total_tokens": 7},
}


async def test_an_embedding_uses_its_prompt_alone(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda seen: Script(body=json.dumps(VECTOR) if seen.path == "/v1/embeddings" else "")
    stand.work(worker)
    await limit(stand, outputTokensPerMinute=10_000)
    for _ in range(30):
        response = await stand.client.post("/v1/embeddings", json={"model": "chat", "input": "some text"})
        assert (response.status_code, response.json()) == (200, VECTOR)
    service = stand.process.registry.services["default/chat"]
    assert service.estimates.prompt_tokens(PromptSize(len("some text")), "team") == 7
    assert service.estimates.outputs[RequestClass.INTERACTIVE].expected("team", None, 1) == PRIOR_OUTPUT
    assert stand.process.requests.quotas.totals.reserved[OUTPUT] == 0
    assert (await stand.client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    assert stand.process.requests.quotas.totals.reserved[OUTPUT] == PRIOR_OUTPUT


async def test_a_rerank_reserves_what_its_texts_may_hold_and_is_refused_where_too_little_is_left(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker = await make_worker()
    ranked = {"results": [{"index": 0, "relevance_score": 1.0}], "usage": {"prompt_tokens": 60, "total_tokens": 60}}
    worker.script = lambda _: Script(body=json.dumps(ranked))
    stand.work(worker)
    await limit(stand, inputTokensPerMinute=100, outputTokensPerMinute=10_000)
    asked = {"model": "chat", "query": "q" * 40, "documents": [{"text": "d" * 40}, "d" * 40]}
    first = await stand.client.post("/v1/rerank", json=asked)
    assert (first.status_code, first.json()) == (200, ranked)
    assert first.headers["x-ratelimit-remaining-tokens"] == "70"
    assert worker.seen[-1].path == "/v1/rerank"
    second = await stand.client.post("/v1/rerank", json=asked | {"documents": ["d" * 170]})
    assert (second.status_code, second.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert stand.process.requests.quotas.totals.reserved[INPUT] == 30
    assert stand.process.requests.quotas.totals.reserved[OUTPUT] == 0
