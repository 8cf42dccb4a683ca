"""Watching a stack through the Cluster seam, with fakes for it and for the workers."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable

import pytest

from paceline_cli.bench.observation import BenchObservation, Emulation
from paceline_cli.bench.watch import LATENESS, Watch, lateness
from paceline_core.clock import ManualClock
from paceline_core.errors import Unreachable
from paceline_core.kube import Endpoint, Listed, ObjectKey, Scale, ScaleTarget, ServiceEndpoints, Upserted, WatchLost
from paceline_core.kube.cluster import WatchEvent

SERVICE = ObjectKey("default", "chat")
TARGET = ScaleTarget(SERVICE, "main")
Events = asyncio.Queue[WatchEvent[ServiceEndpoints]]


def worker(number: int, *, ready: bool = True, terminating: bool = False) -> Endpoint:
    return Endpoint(f"chat-main-{number}", "main", "stable", "r1", "127.0.0.1", 9000 + number, ready, terminating)


def service(*workers: Endpoint) -> ServiceEndpoints:
    return ServiceEndpoints(SERVICE, workers)


def page(*counts: int) -> str:
    """An exposition with a histogram of these cumulative counts below 1 %, 5 % and infinity."""
    edges = zip(("0.01", "0.05", "+Inf"), counts, strict=True)
    lines = [f'{LATENESS}_bucket{{pool="main",le="{edge}"}} {count}' for edge, count in edges]
    return "\n".join(["# TYPE other gauge", "other 1", f"# TYPE {LATENESS} histogram", *lines, f"{LATENESS}_sum 1", ""])


class Stack:
    """A cluster of one service whose endpoints and scale the test sets."""

    def __init__(self, *workers: Endpoint) -> None:
        self.events: Events = asyncio.Queue()
        self.events.put_nowait(Listed((service(*workers),)))
        self.desired = 1
        self.reachable = True
        self.pages: dict[str, str] = {}
        self.scrapes = 0

    async def watch_endpoints(self) -> AsyncIterator[WatchEvent[ServiceEndpoints]]:
        while True:
            yield await self.events.get()

    async def get_scale(self, target: ScaleTarget) -> Scale:
        assert target == TARGET
        if not self.reachable:
            raise Unreachable("gone")
        return Scale(self.desired, "1")

    async def scrape(self, endpoint: Endpoint) -> str:
        self.scrapes += 1
        return self.pages.get(endpoint.name, "")


class Pace(ManualClock):
    """Lets the test run code at the beginning of each second."""

    def __init__(self, script: Callable[[int], None], end: int) -> None:
        super().__init__()
        self._script = script
        self._end = end
        self.over = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        self._script(round(self.monotonic()))
        await asyncio.sleep(0)
        if self.monotonic() >= self._end:
            self.over.set()
            await asyncio.Event().wait()


async def watched(stack: Stack, script: Callable[[int], None], seconds: int) -> BenchObservation:
    clock = Pace(script, seconds)
    watch = Watch(stack, [TARGET], clock, stack.scrape)  # type: ignore[arg-type]  # the parts of a Cluster it uses
    async with asyncio.timeout(5):
        await watch.begin(0.0)
        await clock.over.wait()
        return await watch.end()


async def test_replicas_are_counted_by_state_every_second() -> None:
    stack = Stack(worker(1))

    def script(second: int) -> None:
        if second == 1:
            stack.desired = 2
            stack.events.put_nowait(Upserted(service(worker(1), worker(2, ready=False))))
        if second == 3:
            stack.events.put_nowait(Upserted(service(worker(1, terminating=True), worker(2))))

    seen = await watched(stack, script, seconds=5)
    states = [(round(r.at), r.desired, r.ready, r.starting, r.draining) for r in seen.replicas]
    assert states == [(0, 1, 1, 0, 0), (1, 2, 1, 1, 0), (2, 2, 1, 1, 0), (3, 2, 1, 0, 1), (4, 2, 1, 0, 1)]
    assert seen.host is not None
    assert seen.host.cores >= 1


async def test_a_lost_watch_keeps_the_last_picture() -> None:
    stack = Stack(worker(1), worker(2))
    seen = await watched(stack, lambda second: stack.events.put_nowait(WatchLost("restart")), seconds=3)
    assert [r.ready for r in seen.replicas] == [2, 2, 2]


async def test_a_stack_that_does_not_answer_leaves_a_gap() -> None:
    stack = Stack(worker(1))

    def script(second: int) -> None:
        stack.reachable = second not in (1, 2)

    seen = await watched(stack, script, seconds=4)
    assert [round(r.at) for r in seen.replicas] == [0, 3]


async def test_lateness_is_the_runs_own_and_a_leaving_worker_is_heard_to_its_end() -> None:
    stack = Stack(worker(1))
    stack.pages["chat-main-1"] = page(100, 100, 200)

    def script(second: int) -> None:
        if second == 1:
            stack.events.put_nowait(Upserted(service(worker(1, terminating=True), worker(2))))
        stack.pages["chat-main-1"] = page(100, 100 + 10 * second, 200 + 10 * second)
        if second == 4:
            stack.events.put_nowait(Upserted(service(worker(2))))
            stack.pages = {"chat-main-2": page(0, 7, 7)}

    seen = await watched(stack, script, seconds=6)
    assert seen.emulation == Emulation(37, 0.05)


async def test_workers_are_scraped_seldom() -> None:
    stack = Stack(worker(1))
    await watched(stack, lambda second: None, seconds=10)
    assert stack.scrapes == 1 + 2 + 1


def test_lateness_is_read_from_an_exposition_and_summed_over_series() -> None:
    assert lateness(page(1, 2, 3)) == {0.01: 1.0, 0.05: 2.0, math.inf: 3.0}
    twice = page(1, 2, 3) + f'{LATENESS}_bucket{{pool="b",le="0.05"}} 5\n'
    assert lateness(twice)[0.05] == 7.0


@pytest.mark.parametrize("text", ["", "other 1\n", "<html>"])
def test_a_page_without_lateness_says_nothing(text: str) -> None:
    assert lateness(text) == {}
