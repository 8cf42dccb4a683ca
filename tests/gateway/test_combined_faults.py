"""Everything at once: faults, leavers, dying workers; afterwards the books are balanced and nothing is left."""

import asyncio
import random

import httpx
import pytest
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, Stand, until
from tests.gateway.worker_double import Script, Seen

from paceline_core.registry import Outcome, RequestClass

pytestmark = pytest.mark.real
REQUESTS = 100
SCRIPTS = [
    Script(),
    Script(),
    Script(delay_s=0.01),
    Script(cut_after=0),
    Script(cut_after=2),
    Script(error_after=0),
    Script(error_after=3),
    Script(done=False),
    Script(status=503, body="{}"),
    Script(status=500, body="{}"),
    Script(status=400, body="{}"),
    Script(raw=b"junk"),
]


async def one(stand: Stand, dice: random.Random) -> str:
    """One request that may leave early; how it ended for the client."""
    body = CHAT | {"stream": dice.random() < 0.7}
    headers = {"x-paceline-class": dice.choice(list(RequestClass)).value}
    patience = httpx.Timeout(20, read=0.02 if dice.random() < 0.15 else 20)
    try:
        response = await stand.client.post("/v1/chat/completions", json=body, headers=headers, timeout=patience)
    except httpx.ReadTimeout:
        return "left"
    streamed = response.headers["content-type"].startswith("text/event-stream")
    assert not streamed or response.text.endswith("data: [DONE]\n\n")
    return "stream" if streamed else str(response.status_code)


@pytest.mark.parametrize("seed", [1, 2])
async def test_after_a_storm_nothing_is_left(stand: Stand, make_worker: MakeWorker, seed: int) -> None:
    dice = random.Random(seed)
    stand.cluster.put(manifests.tenant(limits={"concurrency": 1000, "outputTokensPerMinute": 10_000_000}))

    def script(_: Seen) -> Script:
        return dice.choice(SCRIPTS)

    workers = [await make_worker(f"w{index}", slots=8) for index in range(4)]
    for worker in workers:
        worker.script = script
    stand.work(*workers)
    await stand.ready(4)
    tasks = []
    for number in range(REQUESTS):
        tasks.append(asyncio.create_task(one(stand, dice)))
        await asyncio.sleep(dice.random() * 0.004)
        if number == REQUESTS // 2:
            await workers[0].stop()
    ends = await asyncio.gather(*tasks)
    assert len(ends) == REQUESTS
    assert {"stream", "200", "400"} <= set(ends)
    await nothing_left(stand)


async def nothing_left(stand: Stand) -> None:
    requests, server = stand.process.requests, stand.process.server
    await until(lambda: requests.open == 0 and server.busy == 0 and server.memory.used == 0)
    service = stand.process.registry.services["default/chat"]
    assert service.dispatcher.waiting == 0
    assert [worker.in_flight for worker in service.pool] == [0] * 4
    assert [sum(worker.unbegun_tokens) for worker in service.pool] == [0] * 4
    assert not any(tally.open for tally in service.tallies.values())
    counted = [await stand.metric("paceline_requests_total", outcome=outcome) for outcome in Outcome]
    assert sum(counted) == sum(tally.arrivals for tally in service.tallies.values()) == REQUESTS
    judged = await stand.metric("paceline_slo_requests_total", slo="availability")
    uncounted = sum(
        [await stand.metric("paceline_requests_total", outcome=o) for o in ("cancelled", "client_error", "quota")]
    )
    assert judged + uncounted == REQUESTS
