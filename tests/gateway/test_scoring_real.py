"""`/v1/score` and `/v1/rerank` through a gateway, on the real engine: transformers' cosines, and the bill."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.replicas import EMULATED, replicas
from tests.gateway.stand import Stand, gateway

from paceline_core.auth import new_signing_key

pytestmark = pytest.mark.real
KEY = new_signing_key()
TOLERANCE = 1e-5
QUERY = "What is TTFT?"
TEXTS = ["TTFT is a latency.", "A node is one machine of a cluster.", "a " * 300, "What is TTFT?"]
RANKED: dict[str, Any] = {"model": "chat", "query": QUERY, "documents": TEXTS}
THREADS = {"threads": 1}


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    with replicas(tmp_path, 1, KEY, engine=THREADS) as workers:
        async with gateway(tmp_path, signing_key=KEY) as stand:
            await stand.serve([worker.endpoint for worker in workers])
            yield stand


async def test_scores_are_the_cosines_of_transformers_and_each_text_is_charged_once(stand: Stand) -> None:
    from tests.gateway.cosines import Judge

    judge, charged = Judge(), 0
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        response = await stand.client.post(path, json=RANKED | {"top_n": 3})
        assert response.status_code == 200, response.text
        answer, wanted = response.json(), judge.scores([QUERY], TEXTS)
        order = sorted(range(len(TEXTS)), key=wanted.__getitem__, reverse=True)
        assert order[0] == TEXTS.index(QUERY)
        assert [result["index"] for result in answer["results"]] == order[:3]
        told = [result["relevance_score"] for result in answer["results"]]
        assert told == pytest.approx([wanted[index] for index in order[:3]], abs=TOLERANCE)
        assert answer["usage"]["prompt_tokens"] == judge.tokens(QUERY, *TEXTS)
        charged += judge.tokens(QUERY, *TEXTS)
    queries = ["a promise", "a cluster", "nothing", "TTFT"]
    for path in ("/v1/score", "/score"):
        answer = (await stand.client.post(path, json={"model": "chat", "text_1": queries, "text_2": TEXTS})).json()
        told = [entry["score"] for entry in answer["data"]]
        assert told == pytest.approx(judge.scores(queries, TEXTS), abs=TOLERANCE)
        charged += judge.tokens(*queries, *TEXTS)
    assert await stand.metric("paceline_tenant_tokens_total", kind="input") == charged
    assert await stand.metric("paceline_tenant_tokens_total", kind="output") == 0
    assert await stand.metric("paceline_requests_total", outcome="ok") == 5
    assert (await stand.client.post("/v1/rerank", json=RANKED | {"top_n": -1})).json()["error"]["param"] == "top_n"
    anonymous = await stand.client.post("/v1/rerank", json=RANKED, headers={"authorization": "Bearer wrong"})
    assert anonymous.status_code == 401
    assert (await stand.client.get("/v1/score")).status_code == 405


async def test_an_emulated_model_is_refused_by_name(tmp_path: Path) -> None:
    with replicas(tmp_path, 1, KEY, engine=EMULATED) as workers:
        async with gateway(tmp_path, signing_key=KEY) as stand:
            await stand.serve([worker.endpoint for worker in workers])
            response = await stand.client.post("/v1/rerank", json=RANKED)
            assert (response.status_code, response.json()["error"]["param"]) == (400, "model")
