"""Limits as a client meets them: headers, refusals, and what an answer that broke off costs."""

import asyncio

import httpx
import pytest
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.official_client import refused
from tests.gateway.stand import CHAT, STREAM, Stand, until
from tests.gateway.worker_double import Script

pytestmark = pytest.mark.real


async def limit(stand: Stand, **limits: int) -> None:
    """Change the tenant, and wait until the gateway has it."""
    stand.cluster.put(manifests.tenant(limits=limits))
    names = {
        "requestsPerMinute": "requests_per_minute",
        "inputTokensPerMinute": "input_tokens_per_minute",
        "outputTokensPerMinute": "output_tokens_per_minute",
    }
    await until(
        lambda: all(
            getattr(stand.process.registry.snapshot.tenants["team"], names[name]) == value
            for name, value in limits.items()
        )
    )


@pytest.mark.parametrize("body", [CHAT, STREAM], ids=["whole", "stream"])
async def test_an_answer_carries_the_tenants_limits(
    stand: Stand, make_worker: MakeWorker, body: dict[str, object]
) -> None:
    stand.work(await make_worker())
    await limit(stand, requestsPerMinute=10, outputTokensPerMinute=60000)
    response = await stand.client.post("/v1/chat/completions", json=body | {"max_tokens": 100})
    assert response.status_code == 200
    assert response.headers["x-ratelimit-limit-requests"] == "10"
    assert response.headers["x-ratelimit-remaining-requests"] == "9"
    assert response.headers["x-ratelimit-reset-requests"] == "6s"
    assert response.headers["x-ratelimit-limit-tokens"] == "60000"
    assert response.headers["x-ratelimit-remaining-tokens"] == "59900"
    assert response.headers["x-ratelimit-reset-tokens"] == "100ms"


@pytest.mark.parametrize(("status", "requests"), [(400, "9"), (501, "10")])
async def test_a_refusal_by_a_worker_reports_the_limits_after_the_refund(
    stand: Stand, make_worker: MakeWorker, status: int, requests: str
) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(status=status, body='{"error":{"message":"no"}}')
    stand.work(worker)
    await limit(stand, requestsPerMinute=10, outputTokensPerMinute=60000)
    response = await stand.client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 100})
    assert response.status_code == status
    assert response.headers["x-ratelimit-remaining-requests"] == requests
    assert response.headers["x-ratelimit-remaining-tokens"] == "60000"
    assert response.headers["x-ratelimit-reset-tokens"] == "0s"


async def test_a_request_that_no_worker_answered_is_not_charged(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(cut_after=0)
    stand.work(worker)
    await limit(stand, requestsPerMinute=10, outputTokensPerMinute=60000)
    response = await stand.client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 100})
    assert response.status_code == 502
    assert response.headers["x-ratelimit-remaining-requests"] == "10"
    assert response.headers["x-ratelimit-remaining-tokens"] == "60000"


async def test_without_limits_no_header_is_sent(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    response = await stand.client.post("/v1/chat/completions", json=CHAT)
    assert not [name for name in response.headers if name.startswith("x-ratelimit")]


async def test_a_refusal_carries_the_limits_and_the_official_client_reads_them(stand: Stand) -> None:
    await limit(stand, requestsPerMinute=0)
    refusal = await refused(stand)
    assert refusal.response.headers["x-ratelimit-limit-requests"] == "0"
    assert await stand.metric("paceline_requests_total", outcome="quota") == 1


async def test_five_at_once_cannot_pass_a_limit_of_100_tokens(stand: Stand, make_worker: MakeWorker) -> None:
    """litellm#18730, through real ports."""
    worker = await make_worker()
    worker.script = lambda _: Script(tokens=("a",) * 40, delay_s=0.01)
    stand.work(worker)
    await limit(stand, outputTokensPerMinute=100)
    posts = [stand.client.post("/v1/chat/completions", json=STREAM | {"max_tokens": 40}) for _ in range(5)]
    answers = await asyncio.gather(*posts)
    assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429, 429]
    assert len(worker.seen) == 2


async def test_a_client_that_leaves_pays_for_what_was_made(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(tokens=("a",) * 50, stall_after=8)
    stand.work(worker)
    await limit(stand, outputTokensPerMinute=60)
    quotas = stand.process.requests.quotas
    with pytest.raises(httpx.ReadTimeout):
        await stand.client.post(
            "/v1/chat/completions", json=STREAM | {"max_tokens": 50}, timeout=httpx.Timeout(5, read=0.3)
        )
    await until(lambda: quotas.totals.open[2] == 0)
    assert quotas.totals.reserved[2] == 50
    assert 0 < quotas.totals.settled[2] <= 8
    assert quotas.totals.refunded[2] == 50 - quotas.totals.settled[2]


async def test_a_request_that_no_worker_served_costs_nothing(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(status=500, body="{}")
    stand.work(worker)
    await limit(stand, requestsPerMinute=1)
    response = await stand.client.post("/v1/chat/completions", json=CHAT)
    assert response.status_code >= 500
    worker.script = lambda _: Script()
    assert (await stand.client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    assert (await stand.client.post("/v1/chat/completions", json=CHAT)).status_code == 429


@pytest.mark.parametrize("limits", [{"inputTokensPerMinute": 0}, {"monthly": {"tokens": 0}}])
async def test_a_tenant_without_quota_is_refused_before_its_body_is_parsed(
    stand: Stand, limits: dict[str, object]
) -> None:
    before = stand.process.registry.snapshot
    stand.cluster.put(manifests.tenant(limits=limits))
    await until(lambda: stand.process.registry.snapshot is not before)
    response = await stand.client.post("/v1/chat/completions", content=b"[" * (1 << 20))
    assert (response.status_code, response.json()["error"]["code"]) == (429, "insufficient_quota")
