"""A request that takes real workers with it: whatever process computes it is killed as soon as it brings a token."""

import asyncio
from pathlib import Path

import pytest
from tests.gateway.replicas import EMULATED, Replica, replicas
from tests.gateway.stand import Stand, gateway, until
from tests.gateway.test_resume_real import LONG, answer, ask

from paceline_core.auth import new_signing_key
from paceline_gateway.request import group_testing
from paceline_gateway.request.types import STREAMING

pytestmark = pytest.mark.real
KEY = new_signing_key()
INNOCENTS = 6
POISON = b"the-poison"


@pytest.fixture(autouse=True)
def certainty_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a trial may begin later than half a second after the death, and then a third worker may die."""
    monkeypatch.setattr(group_testing, "CERTAIN_S", 30.0)


async def kill_whoever_computes_it(stand: Stand, workers: list[Replica], killed: list[str]) -> None:
    """Looks at every turn of the gateway's own loop."""
    while True:
        for call in stand.calls:
            if call.request_id == POISON and call.machine.state is STREAMING and call.machine.worker not in killed:
                killed.append(call.machine.worker)
                next(worker for worker in workers if worker.name == call.machine.worker).kill()
        await asyncio.sleep(0)


async def test_two_real_workers_die_of_a_request_and_every_other_stream_is_whole(tmp_path: Path) -> None:
    bodies = [ask(number, seed=number, **LONG) for number in range(INNOCENTS)]
    with replicas(tmp_path, 4, KEY, engine=EMULATED) as workers:
        async with gateway(tmp_path, signing_key=KEY) as stand:
            await stand.serve([worker.endpoint for worker in workers])
            undisturbed = await asyncio.gather(*(answer(stand, body) for body in bodies))
            killed: list[str] = []
            killer = asyncio.create_task(kill_whoever_computes_it(stand, workers, killed))
            asked = [asyncio.create_task(answer(stand, body)) for body in bodies]
            await until(lambda: sum(call.machine.begun for call in stand.calls) == INNOCENTS)
            headers = {"x-request-id": POISON.decode()}
            response = await stand.client.post("/v1/chat/completions", json=ask(99, **LONG), headers=headers)
            assert await asyncio.gather(*asked) == undisturbed
            killer.cancel()
            assert '"code": "request_isolated"' in response.text
            assert len(killed) == 2
            assert await stand.metric("paceline_worker_deaths_total") == 2
            assert await stand.metric("paceline_requests_total", outcome="ok") == 2 * INNOCENTS


async def test_two_gateways_before_the_same_workers_refuse_the_poison_alone(tmp_path: Path) -> None:
    """Both have suspects after the first death, and their workers take one of them at a time."""
    bodies = [ask(number, seed=number, **LONG) for number in range(INNOCENTS)]
    (tmp_path / "other").mkdir()
    with replicas(tmp_path, 4, KEY, engine=EMULATED) as workers:
        async with (
            gateway(tmp_path, signing_key=KEY, name="one") as stand,
            gateway(tmp_path / "other", signing_key=KEY, name="other") as other,
        ):
            for each in (stand, other):
                await each.serve([worker.endpoint for worker in workers])
            undisturbed = await asyncio.gather(*(answer(stand, body) for body in bodies))
            killed: list[str] = []
            killer = asyncio.create_task(kill_whoever_computes_it(stand, workers, killed))
            asked = [asyncio.create_task(answer(each, body)) for body in bodies for each in (stand, other)]
            await until(lambda: sum(call.machine.begun for call in [*stand.calls, *other.calls]) == 2 * INNOCENTS)
            headers = {"x-request-id": POISON.decode()}
            response = await stand.client.post("/v1/chat/completions", json=ask(99, **LONG), headers=headers)
            assert await asyncio.gather(*asked) == [text for text in undisturbed for _ in range(2)]
            killer.cancel()
            assert '"code": "request_isolated"' in response.text
            assert len(killed) == 2
