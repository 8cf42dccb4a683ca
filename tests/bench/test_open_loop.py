"""Offering a schedule without waiting for answers."""

import asyncio
from collections.abc import Iterable, Iterator

import pytest

from paceline_cli.bench.openloop import Arrival, Ending, OpenLoop, RequestSample
from paceline_cli.bench.profiles import schedule, steady
from paceline_core.clock import ManualClock


class Server:
    """Answers nothing until told to."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.release = asyncio.Event()
        self.seen: list[tuple[float, bytes]] = []

    async def send(self, arrival: Arrival, request: bytes) -> RequestSample:
        sent = self.clock.monotonic()
        self.seen.append((sent, request))
        await self.release.wait()
        return RequestSample(arrival, Ending.OK, sent, self.clock.monotonic(), (sent + 1,))


def body(arrival: Arrival) -> bytes:
    return b"%d" % arrival.number


def released_after(arrivals: Iterable[Arrival], server: Server) -> Iterator[Arrival]:
    """The same arrivals; the server answers once the last one has been offered."""
    yield from arrivals
    server.release.set()


async def test_requests_are_sent_on_time_though_none_is_answered() -> None:
    clock = ManualClock()
    server = Server(clock)
    loop = OpenLoop(body, server.send, clock)
    async with asyncio.timeout(5):
        samples = await loop.run(released_after(schedule(steady(4, 2, 1, 1), 0), server), start=0.0)
    assert [moment for moment, _ in server.seen] == pytest.approx([n / 4 for n in range(8)], abs=0.25)
    assert [request for _, request in server.seen] == [b"%d" % n for n in range(8)]
    assert [sample.arrival.number for sample in samples] == list(range(8))


async def test_times_are_told_from_the_runs_start() -> None:
    clock = ManualClock()
    clock.advance(1000)
    server = Server(clock)
    server.release.set()
    samples = await OpenLoop(body, server.send, clock).run([Arrival(0, 2.0, "load", 1, 1)], start=1000.0)
    assert (samples[0].sent, samples[0].end, samples[0].content) == (2.0, 2.0, (3.0,))
    assert samples[0].lateness == 0.0


async def test_a_late_start_is_measured() -> None:
    clock = ManualClock()
    server = Server(clock)
    server.release.set()
    clock.advance(5)
    samples = await OpenLoop(body, server.send, clock).run([Arrival(0, 2.0, "load", 1, 1)], start=0.0)
    assert samples[0].lateness == 3.0


async def test_a_request_over_the_cap_is_not_sent_and_not_forgotten() -> None:
    clock = ManualClock()
    server = Server(clock)
    loop = OpenLoop(body, server.send, clock, in_flight_limit=3)
    async with asyncio.timeout(5):
        samples = await loop.run(released_after(schedule(steady(1, 5, 1, 1), 0), server), start=0.0)
    assert [sample.ending for sample in samples] == [Ending.OK] * 3 + [Ending.NOT_SENT] * 2
    assert samples[-1].detail == "3 requests were already open"
    assert samples[-1].lateness is None
