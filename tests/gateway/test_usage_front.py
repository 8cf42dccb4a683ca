"""Monthly budgets and usage as clients, Prometheus and the API server see them."""

import asyncio
import json
from decimal import Decimal
from typing import Any

import pytest
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.official_client import refused
from tests.gateway.stand import CHAT, STREAM, Stand, until
from tests.gateway.test_quota_front import limit
from tests.gateway.worker_double import Script

from paceline_core.clock import SystemClock
from paceline_core.errors import Unreachable
from paceline_core.wire import StepTime
from paceline_gateway.usage.cost import PricedReplica, cost_of
from paceline_gateway.usage_writer import UsageWriter
from paceline_planner.accelerators import CATALOGUE

pytestmark = pytest.mark.real
TEAM = "paceline-system/team"
USAGE = STREAM | {"stream_options": {"include_usage": True}}


async def budget(stand: Stand, **monthly: Any) -> None:
    """Change the tenant's budget, and wait until the gateway has it."""
    known = stand.cluster.board("Tenant").items[TEAM]
    spec = manifests.tenant(limits={"monthly": monthly})["spec"]
    before = stand.process.registry.snapshot
    stand.cluster.put({**known, "spec": spec})
    await until(lambda: stand.process.registry.snapshot is not before)


def entries(stand: Stand) -> dict[str, dict[str, Any]]:
    """What the status says."""
    usage = stand.cluster.board("Tenant").items[TEAM].get("status", {}).get("usage", {})
    return {entry["id"]: entry for entry in usage.get("gateways", ())}


def name(stand: Stand) -> str:
    """The gateway's."""
    return stand.process.requests.billing.ledger.gateway


def used(stand: Stand) -> int:
    """Tokens that the gateway knows of."""
    return stand.process.requests.billing.ledger.used("team").tokens


async def ended(stand: Stand) -> None:
    """A client has its answer a moment before the gateway has counted it."""
    await until(lambda: stand.process.requests.open == 0)


async def test_concurrent_requests_cannot_pass_a_monthly_budget_together(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(tokens=("a",) * 40, delay_s=0.01)
    stand.work(worker)
    await budget(stand, tokens=150)
    posts = [stand.client.post("/v1/chat/completions", json=STREAM | {"max_tokens": 40}) for _ in range(6)]
    answers = await asyncio.gather(*posts)
    await ended(stand)
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 429}
    assert used(stand) <= 150


async def test_short_answers_let_no_flood_of_long_ones_past_a_monthly_budget(
    stand: Stand, make_worker: MakeWorker
) -> None:
    """21 answers of one token, then 60 streams at once of up to 1,000: all were let in before, three budgets' worth."""
    worker, goes_on = await make_worker(slots=64), asyncio.Event()
    worker.script = lambda seen: Script(
        tokens=("a",), until=goes_on if json.loads(seen.body)["max_tokens"] > 1 else None
    )
    stand.work(worker)
    await budget(stand, tokens=20_000)
    for _ in range(21):
        assert (await stand.client.post("/v1/chat/completions", json=USAGE | {"max_tokens": 1})).status_code == 200
    await ended(stand)
    long = USAGE | {"max_tokens": 1000}
    posts = [asyncio.create_task(stand.client.post("/v1/chat/completions", json=long)) for _ in range(60)]
    await until(lambda: stand.process.requests.open + sum(post.done() for post in posts) == 60)
    let_in, before = stand.process.requests.open, used(stand)
    goes_on.set()
    answers = await asyncio.gather(*posts)
    assert [answer.status_code for answer in answers].count(200) == let_in
    assert 10 <= let_in < 60
    assert before + let_in * 1000 <= 22_000


async def test_what_an_answer_has_for_certain_is_reserved_times_its_choices(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker = await make_worker()
    stand.work(worker)
    totals = stand.process.requests.quotas.totals
    reserved = []
    for more in ({"min_tokens": 700, "n": 3}, {"ignore_eos": True, "n": 2}):
        before = totals.reserved[2]
        await stand.client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 900} | more)
        reserved.append(totals.reserved[2] - before)
    assert reserved == [2100, 1800]


async def test_short_answers_let_no_flood_past_a_limit_per_minute(stand: Stand, make_worker: MakeWorker) -> None:
    """Once what is open may pass it by a minute's limit, each reserves what a newcomer does."""
    worker, goes_on = await make_worker(slots=64), asyncio.Event()

    def script(seen: Any) -> Script:
        return Script(tokens=("a",), until=goes_on if json.loads(seen.body)["max_tokens"] > 1 else None)

    worker.script = script
    stand.work(worker)
    await limit(stand, outputTokensPerMinute=2900)
    for _ in range(21):
        assert (await stand.client.post("/v1/chat/completions", json=USAGE | {"max_tokens": 1})).status_code == 200
    await ended(stand)
    posts = [
        asyncio.create_task(stand.client.post("/v1/chat/completions", json=USAGE | {"max_tokens": 1000}))
        for _ in range(60)
    ]
    await until(lambda: stand.process.requests.open + sum(post.done() for post in posts) == 60)
    let_in = stand.process.requests.open
    goes_on.set()
    await asyncio.gather(*posts)
    assert 3 < let_in <= 15, (
        "3 by what they were taught, 11 by a newcomer's 256, and one for what is refilled meanwhile"
    )


async def test_prompts_that_taught_to_be_cheap_let_no_flood_past_a_limit_of_input(
    stand: Stand, make_worker: MakeWorker
) -> None:
    """2,000 bytes that had few tokens are expected to have 255, a newcomer's 505; at most they are 2,005."""
    worker, goes_on = await make_worker(slots=64), asyncio.Event()
    stand.work(worker)
    asked = USAGE | {"messages": [{"role": "user", "content": "x" * 2000}], "max_tokens": 1}
    for _ in range(4):
        assert (await stand.client.post("/v1/chat/completions", json=asked)).status_code == 200
    await ended(stand)
    await limit(stand, inputTokensPerMinute=2800)
    worker.script = lambda _: Script(tokens=("a",), until=goes_on)
    posts = [asyncio.create_task(stand.client.post("/v1/chat/completions", json=asked)) for _ in range(20)]
    await until(lambda: stand.process.requests.open + sum(post.done() for post in posts) == 20)
    let_in = stand.process.requests.open
    goes_on.set()
    await asyncio.gather(*posts)
    assert 2 < let_in <= 2 + (2800 - 2 * 255) // 505


async def test_a_used_up_budget_is_insufficient_quota_until_it_is_raised(stand: Stand) -> None:
    await budget(stand, tokens=1)
    refusal = await refused(stand)
    assert "retry-after" not in refusal.response.headers
    assert "the month ends at" in refusal.message
    assert await stand.metric("paceline_requests_total", outcome="quota") == 1


async def test_a_raised_budget_lets_requests_in_at_once(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    await budget(stand, tokens=1)
    assert (await stand.client.post("/v1/chat/completions", json=CHAT)).status_code == 429
    await budget(stand, tokens=100_000)
    assert (await stand.client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    await ended(stand)
    assert 0 < await stand.metric("paceline_tenant_budget_ratio", tenant="team", kind="tokens") < 1


async def test_use_and_cost_are_exported_by_service_class_and_tenant(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    answer = await stand.client.post("/v1/chat/completions", json=CHAT, headers={"x-paceline-class": "batch"})
    await ended(stand)
    usage = answer.json()["usage"]
    place = {"pisvc_namespace": "default", "pisvc": "chat", "class": "batch", "tenant": "team"}
    assert await stand.metric("paceline_usage_requests_total", **place) == 1
    assert await stand.metric("paceline_usage_tokens_total", **place, kind="input") == usage["prompt_tokens"]
    assert await stand.metric("paceline_usage_tokens_total", **place, kind="output") == usage["completion_tokens"]
    assert await stand.metric("paceline_usage_dollars_total", **place) > 0


async def test_a_stream_that_went_on_elsewhere_is_paid_at_each_workers_own_price(
    stand: Stand, make_worker: MakeWorker
) -> None:
    """The first worker is a thousand times faster, and gone when the stream ends."""
    made = [await make_worker(name) for name in ("w0", "w1")]
    steps = [StepTime(base=0.001, prefill=0.00001), StepTime(base=1.0, prefill=0.01)]
    for worker, step, cut_after in zip(made, steps, (3, None), strict=True):
        worker.script = lambda _, cut_after=cut_after: Script(tokens=("a",) * 7, cut_after=cut_after)  # type: ignore[misc]
        worker.say(step_time=step)
    stand.work(made[0])
    asked = asyncio.create_task(stand.client.post("/v1/chat/completions", json=USAGE))
    await until(lambda: bool(made[0].seen) and stand.process.registry.services["default/chat"].dispatcher.waiting == 1)
    stand.work(made[1])
    usage = json.loads((await asked).text.split("\n\n")[-3].removeprefix("data: "))["usage"]
    await ended(stand)
    engine = stand.process.registry.snapshot.services["default/chat"].engine
    fast, slow = (PricedReplica(step, 16, engine.step_tokens, CATALOGUE["cpu"].price or Decimal(0)) for step in steps)
    dollars = cost_of([(fast, 3), (slow, 7)], prompt=usage["prompt_tokens"], cached=0)
    assert 0 < dollars < slow.cost(prompt=usage["prompt_tokens"], cached=0, output=7)
    assert await stand.metric("paceline_usage_dollars_total") == pytest.approx(float(dollars))


async def test_what_others_used_counts_and_is_read_at_the_start(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    await budget(stand, tokens=100_000)
    tenant = stand.cluster.board("Tenant").items[TEAM]
    month = stand.process.requests.billing.ledger.month
    theirs = {"id": "other", "requests": 9, "inputTokens": 50_000, "outputTokens": 50_000, "dollars": "1.5"}
    stand.cluster.put({**tenant, "status": {"usage": {"month": month, "gateways": [theirs]}}})
    await until(lambda: used(stand) == 100_000)
    assert (await stand.client.post("/v1/chat/completions", json=CHAT)).status_code == 429


async def test_an_orderly_end_writes_everything(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    for _ in range(3):
        await stand.client.post("/v1/chat/completions", json=CHAT)
    await ended(stand)
    assert await stand.metric("paceline_usage_checkpoint_age_seconds") > 0
    stand.stop.set()
    await stand.run
    assert entries(stand)[name(stand)]["requests"] == 3


async def test_an_end_while_somebody_else_writes_still_writes_everything(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    await stand.client.post("/v1/chat/completions", json=CHAT)
    await ended(stand)
    cluster, rivals = stand.cluster, iter(range(3))

    async def rival() -> None:
        if next(rivals, None) is not None:
            cluster.put(cluster.board("Tenant").items[TEAM])

    cluster.before_write = rival  # type: ignore[method-assign]
    stand.stop.set()
    await stand.run
    assert entries(stand)[name(stand)]["requests"] == 1


async def test_an_api_server_that_is_away_blocks_nothing_and_hears_of_it_later(
    stand: Stand, make_worker: MakeWorker
) -> None:
    stand.work(await make_worker())
    cluster, asked = stand.cluster, asyncio.Event()

    async def away() -> None:
        asked.set()
        raise Unreachable("it is away")

    async def back() -> None:
        pass

    cluster.before_write = away  # type: ignore[method-assign]
    await stand.client.post("/v1/chat/completions", json=CHAT)
    await ended(stand)
    requests = stand.process.requests
    eager = UsageWriter(requests.billing.ledger, cluster, manifests.NAMESPACE, SystemClock(), every_s=0.0)
    eager.start()
    await asyncio.wait_for(asked.wait(), 20)
    assert (await stand.client.post("/v1/chat/completions", json=CHAT)).status_code == 200
    await ended(stand)
    assert not entries(stand)
    cluster.before_write = back  # type: ignore[method-assign]
    await eager.close()
    assert entries(stand)[name(stand)]["requests"] == 2
