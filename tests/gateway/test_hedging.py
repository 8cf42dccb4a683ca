"""Second attempts of slow streams: when, how many, and that whoever loses leaves nothing behind."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.conftest import MakeWorker
from tests.gateway.pieces import endpoint, report
from tests.gateway.stand import CHAT, STREAM, Stand, gateway, until
from tests.gateway.worker_double import Script, WorkerDouble, in_turn

from paceline_core.registry import RequestClass
from paceline_gateway.config import Hedging
from paceline_gateway.queues.dispatcher import Caps, Dispatcher
from paceline_gateway.queues.ticket import Ticket
from paceline_gateway.quota.outputs import ENOUGH
from paceline_gateway.requests.budget import WINDOW_S
from paceline_gateway.requests.hedging import Hedges
from paceline_gateway.routing.fleet import Fleet
from paceline_gateway.routing.pace import Pace

CLS = RequestClass.INTERACTIVE
NOW = 10.0
EAGER = Hedging(after_s=0.05, share=0.5)
TEXT = "Time to first token"


def test_nothing_is_late_before_something_is_known_and_then_what_is_beyond_the_p95() -> None:
    hedges = Hedges(None, 0.05)
    for number in range(ENOUGH):
        assert not hedges.late(CLS, 1000.0)
        hedges.began(CLS, 0.1 + 0.001 * number)
    assert not hedges.late(CLS, 0.1)
    assert hedges.late(CLS, 0.15)
    assert not hedges.late(RequestClass.BATCH, 1000.0)


def test_a_given_time_needs_no_knowledge() -> None:
    hedges = Hedges(0.5, 0.05)
    assert [hedges.late(CLS, seconds) for seconds in (0.4, 0.5)] == [False, True]


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=200))
def test_no_window_holds_more_second_attempts_than_a_share_of_its_requests(steps: list[tuple[float, bool]]) -> None:
    hedges, now, requests, doubled = Hedges(0.1, 0.05), 0.0, 0, list[float]()
    for wait, arrival in steps:
        now += wait
        if arrival:
            hedges.arrived(now)
            requests += 1
        elif hedges.allows(now):
            hedges.take(now)
            doubled.append(now)
        assert sum(int(at) > int(now) - WINDOW_S for at in doubled) <= max(1, 0.05 * requests)


def dispatcher(*names: str) -> Dispatcher:
    fleet = Fleet(Pace(0.5), silence_s=6.0, lookahead_s=0.5, prefix_bytes=1 << 20)
    fleet.update([endpoint(name) for name in names])
    for name in names:
        fleet.says(name, report(name, slots=1), NOW)
    return Dispatcher(fleet, Caps(held=10, size=10_000))


def test_a_second_worker_is_another_one_with_a_slot_to_spare() -> None:
    desk = dispatcher("w0", "w1")
    desk.join(Ticket(1, CLS, 10, 40, NOW + 30), NOW)
    ((ticket, first),) = desk.assign(NOW)
    found = desk.double(ticket, NOW)
    assert found is not None
    second, worker = found
    assert worker is not first
    assert [w.in_flight for w in desk.fleet] == [1, 1]
    for held in (second, ticket):
        desk.free(held, NOW, suspect=False)
    assert [w.in_flight for w in desk.fleet] == [0, 0]


def test_who_waits_comes_before_any_second_attempt_and_one_worker_is_not_two() -> None:
    alone = dispatcher("w0")
    alone.join(Ticket(1, CLS, 10, 40, NOW + 30), NOW)
    ((ticket, _),) = alone.assign(NOW)
    assert alone.double(ticket, NOW) is None
    crowded = dispatcher("w0", "w1")
    crowded.join(Ticket(1, CLS, 10, 40, NOW + 30), NOW)
    ((ticket, _),) = crowded.assign(NOW)
    crowded.join(Ticket(2, CLS, 10, 40, NOW + 30), NOW)
    assert crowded.double(ticket, NOW) is None


async def two(stand: Stand, make_worker: MakeWorker, *scripts: Script) -> list[WorkerDouble]:
    """Two workers; whoever is asked first takes the first script, and so on."""
    script = in_turn(*scripts)
    made = [await make_worker(name) for name in ("w0", "w1")]
    for worker in made:
        worker.script = script
    stand.work(*made)
    await stand.ready(2)
    return made


def hedges(stand: Stand, result: str) -> Any:
    return stand.metric("paceline_hedges_total", pisvc="chat", result=result)


async def nothing_is_left(stand: Stand) -> None:
    floor = stand.process.floor
    await until(lambda: floor.open == 0)
    assert not any(floor.quotas.totals.open)
    assert not [worker for worker in floor.desks["default/chat"].fleet if worker.in_flight]


def whole(text: str) -> bool:
    """One whole stream, and nothing of another."""
    return text.count('"role":"assistant"') == 1 and text.count('"content":"') == 5 and text.endswith("[DONE]\n\n")


@pytest.mark.real
async def test_a_stream_that_its_worker_keeps_waiting_is_answered_by_another_and_counted_once(
    tmp_path: Path, make_worker: MakeWorker
) -> None:
    async with gateway(tmp_path, hedging=EAGER) as stand:
        made = await two(stand, make_worker, Script(stall_after=0))
        answer = await stand.client.post("/v1/chat/completions", json=STREAM)
        assert whole(answer.text)
        assert [len(worker.seen) for worker in made] == [1, 1]
        await until(lambda: any(worker.seen[0].closed.is_set() for worker in made))
        await nothing_is_left(stand)
        assert await hedges(stand, "won") == 1
        assert await stand.metric("paceline_requests_total", outcome="ok") == 1
        assert await stand.metric("paceline_usage_requests_total") == 1
        assert await stand.metric("paceline_retries_total") == 0
        assert len({worker.seen[0].headers["x-paceline-seed"] for worker in made}) == 1


@pytest.mark.real
async def test_a_second_worker_that_is_slower_still_is_let_go(tmp_path: Path, make_worker: MakeWorker) -> None:
    heard = asyncio.Event()
    async with gateway(tmp_path, hedging=EAGER) as stand:
        made = await two(stand, make_worker, Script(until=heard), Script(stall_after=0))
        asked = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
        await until(lambda: all(worker.seen for worker in made))
        heard.set()
        assert whole((await asked).text)
        await until(lambda: sum(worker.seen[0].closed.is_set() for worker in made) >= 1)
        await nothing_is_left(stand)
        assert await hedges(stand, "lost") == 1


@pytest.mark.real
@pytest.mark.parametrize("fault", [Script(cut_after=0), Script(status=503), Script(status=400), Script(error_after=0)])
async def test_a_second_worker_that_fails_harms_nobody(tmp_path: Path, make_worker: MakeWorker, fault: Script) -> None:
    heard = asyncio.Event()

    async def failed() -> bool:
        return bool(await hedges(stand, "failed") >= 1)

    async with gateway(tmp_path, hedging=EAGER) as stand:
        await two(stand, make_worker, Script(until=heard), fault, Script(stall_after=0))
        asked = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
        await until(failed)
        heard.set()
        assert whole((await asked).text)
        await nothing_is_left(stand)


@pytest.mark.real
async def test_a_client_that_leaves_stops_both_workers(tmp_path: Path, make_worker: MakeWorker) -> None:
    async with gateway(tmp_path, hedging=EAGER) as stand:
        made = await two(stand, make_worker, Script(stall_after=0), Script(stall_after=0))
        asked = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
        await until(lambda: all(worker.seen for worker in made))
        asked.cancel()
        await until(lambda: all(worker.seen[0].closed.is_set() for worker in made))
        await nothing_is_left(stand)
        assert await stand.metric("paceline_requests_total", outcome="cancelled") == 1


@pytest.mark.real
async def test_a_second_workers_stream_that_breaks_later_goes_on_like_any(
    tmp_path: Path, make_worker: MakeWorker
) -> None:
    async with gateway(tmp_path, hedging=EAGER) as stand:
        await two(stand, make_worker, Script(stall_after=0), Script(cut_after=2))
        assert whole((await stand.client.post("/v1/chat/completions", json=STREAM)).text)
        await nothing_is_left(stand)
        assert await stand.metric("paceline_stream_resumed_total") == 1


@pytest.mark.real
async def test_it_is_off_unless_asked_for_and_whole_answers_are_never_doubled(
    tmp_path: Path, make_worker: MakeWorker
) -> None:
    for hedging, body in ((None, STREAM), (EAGER, CHAT)):
        async with gateway(tmp_path, hedging=hedging) as stand:
            made = await two(stand, make_worker, Script(tokens=("Time",), delay_s=0.6))
            assert (await stand.client.post("/v1/chat/completions", json=body)).status_code == 200
            assert sum(len(worker.seen) for worker in made) == 1
