"""Traffic beside a test: an open loop of streamed chats in a thread of its own, strictly checked, every end counted.

The client is that of `paceline bench`: one fresh connection a request, and a stream that is cut, malformed or without
its end is never taken for a whole one.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

import uvloop

from paceline_cli.bench.client import BenchTarget, Client
from paceline_cli.bench.openloop import Arrival, Ending, RequestSample
from paceline_cli.bench.profiles import Writer
from paceline_core.clock import SystemClock

REQUEST_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Kind:
    """What is asked for: so many a second, each of so many words and tokens."""

    rate: float
    words: int = 20
    tokens: int = 16


@dataclass(slots=True)
class Traffic:
    """What became of the requests so far."""

    samples: list[RequestSample] = field(default_factory=list)

    @property
    def endings(self) -> Counter[Ending]:
        """How many ended how."""
        return Counter(sample.ending for sample in self.samples)

    @property
    def failures(self) -> list[str]:
        """Everything that was not a whole, good answer."""
        return [f"{s.ending}: {s.detail}" for s in self.samples if s.ending is not Ending.OK]


@contextmanager
def traffic(target: BenchTarget, kind: Kind) -> Iterator[Traffic]:
    """Offer requests for the length of a `with`; at its end those still open are waited for."""
    seen, stop = Traffic(), threading.Event()
    thread = threading.Thread(target=lambda: uvloop.run(_offer(target, kind, seen, stop)))
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join(REQUEST_LIMIT_S + 10)
        assert not thread.is_alive(), "a request has no end"


@contextmanager
def streams(target: BenchTarget, number: int, tokens: int) -> Iterator[Traffic]:
    """So many long streams at once; at the end of the `with` all are waited for."""
    seen = Traffic()
    thread = threading.Thread(target=lambda: uvloop.run(_at_once(target, number, tokens, seen)))
    thread.start()
    try:
        yield seen
    finally:
        thread.join(REQUEST_LIMIT_S + 10)
        assert not thread.is_alive(), "a stream has no end"


async def _offer(target: BenchTarget, kind: Kind, seen: Traffic, stop: threading.Event) -> None:
    clock, writer = SystemClock(), Writer(seed=1)
    client = Client(target, clock, REQUEST_LIMIT_S)
    began = clock.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in count():
            await clock.sleep(max(began + number / kind.rate - clock.monotonic(), 0))
            if stop.is_set():
                return
            group.create_task(_one(client, writer.text(kind.words), kind.tokens, seen))


async def _at_once(target: BenchTarget, number: int, tokens: int, seen: Traffic) -> None:
    clock, writer = SystemClock(), Writer(seed=2)
    client = Client(target, clock, REQUEST_LIMIT_S)
    async with asyncio.TaskGroup() as group:
        for _ in range(number):
            group.create_task(_one(client, writer.text(8), tokens, seen))


async def _one(client: Client, prompt: str, tokens: int, seen: Traffic) -> None:
    arrival = Arrival(len(seen.samples), 0.0, "load", 0, tokens)
    seen.samples.append(await client.send(arrival, client.prepare(prompt, tokens)))
